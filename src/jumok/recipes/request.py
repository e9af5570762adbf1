"""A training request: the recipe, its data, the model to start from and the fields to change."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from jumok.checkpoint import Loaded
from jumok.checkpoint.tensor_files import check_path_encoding
from jumok.data import catalogue
from jumok.data.readers.file_format import FileFormat
from jumok.data.readers.lines import Notice, ProblemLog
from jumok.data.readers.tables import HUB_PREFIX
from jumok.errors import ArgumentError, DataError, DrawError
from jumok.fields import FieldsType
from jumok.reporting import Report

# what run.json stores of a request, and the types of the values
STORED_KINDS = {
    "recipe": str, "data": str | None, "start": str | None, "changes": dict, "skip_bad": bool, "encoding": str | None,
}  # fmt: skip
GENERATED_DATA = ("sentences", "stories")  # not read from files: Korean and English sentences, Korean stories
MAX_NOTICES = 10  # facts about the data that are shown


@dataclass
class TrainingRequest:
    """The user's request to train a model with a recipe."""

    recipe: str
    folder: Path  # of the run; a recipe may store its prepared data there
    # a file or folder, or the name of a catalogue entry or of generated data; None = the recipe's default data
    data: str | None = None
    start: str | None = None  # the model to start from: a folder, a run or a name; None = a new model
    changes: Mapping[str, Any] = field(default_factory=dict)  # of the recipe's options, the config and the settings
    skip_bad: bool = False  # skip and count lines that cannot be read, instead of raising an error
    show_message: Report = lambda line: None
    encoding: str | None = None  # of the user's text files; None = UTF-8
    notices: dict[object, Notice] = field(default_factory=dict)  # facts that the user was shown, by their topic

    def __post_init__(self) -> None:
        for path in (self.folder, self.data, self.start):
            check_path_encoding(path or "")
        if self.data is not None and not self.data.strip():  # an unset variable; Path("") is the current folder
            raise ArgumentError("data (--data) is empty; give a file, a folder or a name, or leave it out")

    def to_json(self) -> dict[str, Any]:
        """Return what run.json stores of this request."""
        values = {name: getattr(self, name) for name in STORED_KINDS}
        if self.data is not None and Path(self.data).exists():  # absolute: the run can resume from another folder
            values["data"] = str(Path(self.data).absolute())
        return values | {"changes": dict(self.changes)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any], folder: Path, show_message: Report) -> TrainingRequest:
        """Return the request that ``to_json`` stored."""
        values = {"encoding": None, **values}  # runs of development versions before 0.1.0 have none
        for name, kind in STORED_KINDS.items():
            if name not in values:
                raise ArgumentError(f"{name} is missing")
            if not isinstance(values[name], kind):
                raise ArgumentError(f"{name} is {str(values[name])[:80]!r}")
        return cls(**{name: values[name] for name in STORED_KINDS}, folder=folder, show_message=show_message)

    def change(self, default: FieldsType) -> FieldsType:
        """Return a config or settings with the user's changes."""
        names = {declared.name for declared in fields(default)}
        changes = {name: value for name, value in self.changes.items() if name in names}
        return default.replace(**changes) if changes else default

    @property
    def catalogue_name(self) -> str | None:
        """The catalogue entry that ``data`` names; None without data, or if it is a path or another name."""
        if self.data is None or Path(self.data).exists():
            return None
        return next((entry.name for entry in catalogue.list_entries() if entry.name == self.data), None)

    @property
    def generated_name(self) -> str | None:
        """The generated data that ``data`` names; None without data, or if it is a path or another name."""
        return self.data if self.data in GENERATED_DATA and not Path(self.data).exists() else None

    @property
    def has_own_files(self) -> bool:
        """Whether ``data`` is the user's own: a path or a Hugging Face dataset, not a catalogue entry or generated."""
        return self.data is not None and self.catalogue_name is None and self.generated_name is None

    @property
    def show_download(self) -> Report | None:
        """What readers of the catalogue receive: only a recipe's default data is downloaded without being named."""
        return self.show_message if self.data is None else None

    def select_dataset(self, default: str | None, available: Collection[str]) -> str | None:
        """Return the catalogue entry or the generated data to read; None if the data is the user's own."""
        if self.data is None:
            return default
        name = self.catalogue_name or self.generated_name
        if name is None or name in available:
            return name
        if self.generated_name is None and catalogue.find_entry(name).kind == "model":
            raise ArgumentError(f"{name} is a model, not data; start from it with --from {name}")
        choices = f"give {' or '.join(available)}, or files of your own" if available else "give files of your own"
        raise ArgumentError(f"the {self.recipe} recipe cannot read {name}; {choices}")

    def require_files(self) -> str:
        """Return the path of the user's own files, or the name of a Hugging Face dataset."""
        assert self.data is not None
        if self.data.startswith(HUB_PREFIX) or Path(self.data).exists():
            return self.data
        names = [entry.name for entry in catalogue.list_entries() if entry.kind == "data"]
        near = difflib.get_close_matches(self.data.lower(), names, 1)
        hint = f"did you mean {near[0]}, of the catalogue?" if near else "give a file, a folder or a catalogue name"
        raise DataError(f"{self.data[:200]} does not exist; {hint}")

    def create_file_format(self, header: str) -> FileFormat:
        """Return how the user's files are written."""
        return FileFormat(self.encoding or "utf-8", header)

    def create_problem_log(self) -> ProblemLog:
        """Return a log that skips bad lines if the request says so, and shows notices to the user."""

        def show_notice(notice: Notice) -> None:  # data is read several times, but each fact is shown once
            if notice.topic not in self.notices and len(self.notices) < MAX_NOTICES:
                self.notices[notice.topic] = notice
                self.show_message(str(notice))

        return ProblemLog(self.skip_bad, show_notice)

    def show_problems(self, problems: ProblemLog) -> None:
        """Show how many lines or files were skipped, if any."""
        if problems.count:
            self.show_message(str(problems))

    @contextmanager
    def skip_undrawn(self, name: str) -> Iterator[None]:
        """Continue if a figure cannot be drawn, and say why: figures need optional packages."""
        try:
            yield
        except DrawError as error:
            self.show_message(f"{name} was not drawn: {error}")

    def explain_start(self, expected: str, loaded: Loaded) -> ArgumentError:
        """Return the error that says why the recipe cannot start from the loaded model."""
        lack = " without a tokenizer" if loaded.tokenizer is None and "tokenizer" in expected else ""
        return ArgumentError(
            f"the {self.recipe} recipe can start only from {expected}; "
            f"the family of {self.start} is {loaded.family}{lack}"
        )


def parse_changes(words: Iterable[str]) -> dict[str, Any]:
    """Parse FIELD=VALUE: numbers, true and false, JSON lists, or text.

    >>> parse_changes(["width=128", "tokens=bytes", "tied=false"])
    {'width': 128, 'tokens': 'bytes', 'tied': False}
    """
    changes: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name.strip():
            raise ArgumentError(f"--set takes FIELD=VALUE, not {word!r}; for example --set width=128")
        try:
            changes[name.strip()] = json.loads(text)
        except ValueError:
            changes[name.strip()] = text.strip()
    return changes
