"""Recipes on people's own data: headers, columns, encodings, catalogue names, and dry runs."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

import jumok
from catalogue_cache import download_or_skip
from jumok.cli import main
from jumok.data.datasets import text_corpora
from jumok.errors import ArgumentError, DataError, JumokError
from jumok.recipes import TrainingRequest, describe_fields, get_recipe, preview_training, resume_run, train
from jumok.recipes.recipe import RECIPES
from jumok.training.displays import LineDisplay, ProgressDisplay, SilentDisplay
from recipe_runs import SHORT, SMALL, create_task, write_pairs
from toys import skip_plots

TINY_CLASSIFIER = {"width": 16, "heads": 2, "hidden": 32, "layers": 1, "vocabulary": 300}
READS_TABLES = {
    "text": {"text", "header"},
    "text-fast": {"text", "header"},
    "gpt2": {"text", "header"},
    "masked": {"text", "header"},
    "induction": {"text", "header"},
    "copy": {"text", "header"},
    "reverse": {"text", "header"},
    "translate": {"source", "target", "header"},
    "sentiment": {"text", "label", "header"},
    "caption": {"file", "caption", "header"},
    "listen": {"file", "transcript", "header"},
}


class Messages(ProgressDisplay):
    """Collects the messages for the user."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def show_message(self, line: str, transient: bool = False) -> None:
        self.lines.append(line)


def write_reviews(path: Path, encoding: str = "utf-8", header: str = "리뷰,감정") -> Path:
    rows = [f'"영화 {number}, 정말",{"긍정" if number % 2 else "부정"}' for number in range(60)]
    path.write_bytes("\n".join([*([header] if header else []), *rows, ""]).encode(encoding))
    return path


def test_header_does_not_become_a_class_or_a_pair(tmp_path: Path) -> None:
    reviews = write_reviews(tmp_path / "reviews.csv", header="review,sentiment")
    task = create_task("sentiment", tmp_path / "a", reviews, TINY_CLASSIFIER)
    assert task.loaded.labels == ("긍정", "부정")
    pairs = write_pairs(tmp_path / "pairs.tsv")
    changes = {**SMALL, "vocabulary": 320, "length": 32}
    plain = create_task("translate", tmp_path / "b", pairs, changes)
    pairs.write_text("english\tkorean\n" + pairs.read_text(encoding="utf-8"), encoding="utf-8")
    task = create_task("translate", tmp_path / "c", pairs, changes)
    assert {name: task.data[name] for name in ("pairs", "held_out")} == {
        name: plain.data[name] for name in ("pairs", "held_out")
    }


def test_every_recipe_that_reads_tables_declares_its_columns(tmp_path: Path) -> None:
    for recipe in RECIPES:
        rows = {row["field"]: row for row in describe_fields(TrainingRequest(recipe, Path(), str(tmp_path)))}
        columns = READS_TABLES.get(recipe, set())
        names = ("text", "label", "source", "target", "file", "caption", "transcript", "header")
        declared = {name for name in names if name in rows}
        assert {name for name in declared if rows[name]["group"] == "recipe"} == columns, recipe
        for name in columns:
            assert rows[name]["condition"] == "only with --data", (recipe, name)
        if columns:
            assert rows["header"]["options"] == ("auto", "yes", "no")


def test_sentiment_trains_a_head_of_two_layers(tmp_path: Path) -> None:
    """As in the document: 256 -> 128 -> 3 with a feed-forward network of 2,048, at a smaller size."""
    reviews = write_reviews(tmp_path / "reviews.csv", "utf-8", header="text,label")
    fields = {**SHORT, **TINY_CLASSIFIER, "head_hidden": 5, "hidden": 37}
    with skip_plots():
        train("sentiment", data=reviews, out=tmp_path / "run", display=Messages(), **fields)
        model = jumok.load(tmp_path / "run").model
        assert model.inner.weight.shape == (5, model.config.encoder.width) and model.config.encoder.hidden == 37
        assert len(jumok.run(tmp_path / "run", "영화")) == model.class_count
        # another head starts anew, on the same encoder
        train(
            "sentiment", data=reviews, out=tmp_path / "next", start=tmp_path / "run", display=Messages(), **SHORT,
            head_hidden=3,
        )  # fmt: skip
    assert jumok.load(tmp_path / "next").model.inner.weight.shape[0] == 3


def test_resumed_run_keeps_encoding_columns_and_header(tmp_path: Path) -> None:
    reviews = write_reviews(tmp_path / "reviews.csv", "cp949", header="영화평,기분")
    messages = Messages()
    fields = {**SHORT, **TINY_CLASSIFIER, "text": "영화평", "label": "기분", "header": True}
    with skip_plots():
        outcome = train("sentiment", data=reviews, out=tmp_path / "run", encoding="cp949", display=messages, **fields)
    stored = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))
    assert stored["encoding"] == "cp949" and stored["changes"]["text"] == "영화평"
    shown = [line for line in messages.lines if "the first row is a header" in line]
    assert len(shown) == 1, "the data is read several times, but described once"
    assert "text = '영화평' (column 1), label = '기분' (column 2); first example: text '영화 0, 정말'" in shown[0]

    with skip_plots():
        resumed = resume_run(tmp_path / "run", 8)
    assert resumed.progress.step == 8 and outcome.progress.step == 6
    with pytest.raises(ArgumentError, match="a resumed run keeps its data"):
        train(resume=tmp_path / "run", encoding="utf-8", display=SilentDisplay())


def test_run_of_an_earlier_version_has_no_encoding() -> None:
    stored = TrainingRequest("text", Path(), "book.txt").to_json()
    del stored["encoding"]
    assert TrainingRequest.from_json(stored, Path(), print).encoding is None


@pytest.mark.parametrize(
    ("recipe", "changes", "encoding", "message"),
    [
        ("sentiment", {"text": "reveiw"}, None, "there is no column 'reveiw'.*did you mean text=review"),
        ("sentiment", {}, "cp94", "unknown encoding 'cp94'; did you mean 'cp949'"),
        ("sentiment", {}, "cp949", "the file is in UTF-8: remove --encoding cp949"),
        ("image", {}, "cp949", "--encoding applies only to text files of your own"),
        ("sentiment", {"header": "maybe"}, None, "header .* must be one of auto, yes, no"),
        ("sentiment", {"headr": "yes"}, None, "did you mean 'header'"),
        ("translate", {"text": "review"}, None, "choose the columns of your table with source=NAME and target=NAME"),
        ("sentiment", {"source": "review"}, None, "choose the columns of your table with text=NAME and label=NAME"),
    ],
)
def test_wrong_names_are_answered_with_one_sentence(
    tmp_path: Path, recipe: str, changes: dict[str, Any], encoding: str | None, message: str
) -> None:
    reviews = write_reviews(tmp_path / "reviews.csv", header="review,sentiment")
    with pytest.raises(JumokError, match=message) as refused:
        train(recipe, data=reviews, out=tmp_path / "run", encoding=encoding, display=SilentDisplay(), **changes)
    assert "\n" not in str(refused.value) and not (tmp_path / "run").exists()


def test_labels_in_the_first_column_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("".join(f"{n % 2},film {n}\n" for n in range(40)), encoding="utf-8")
    with pytest.raises(
        ArgumentError, match="40 texts have 40 different labels, such as 'film 0'; if the labels are in"
    ):
        preview_training("sentiment", data=tmp_path / "a.csv", display=SilentDisplay())
    fields = {"text": 2, "label": 1}
    preview = preview_training("sentiment", data=tmp_path / "a.csv", display=SilentDisplay(), **fields)
    assert preview["counts"]["classes"] == 2 and preview["tables"][0]["header"] is False


def test_texts_of_a_table_are_not_joined(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("title,text\n" + "x,first\ny,second\n" * 40, encoding="utf-8")
    preview = preview_training("text", data=tmp_path / "a.csv", display=SilentDisplay(), length=8, **SMALL)
    assert preview["examples"][0]["text"].startswith("first\nsecond\nfirst\n")


def test_licences_and_readmes_are_not_learned(tmp_path: Path) -> None:
    (tmp_path / "poem.txt").write_text("ab\n" * 100, encoding="utf-8")
    (tmp_path / "LICENSE").write_text("XYZ\n" * 100, encoding="utf-8")
    (tmp_path / "README.md").write_text("XYZ\n" * 100, encoding="utf-8")
    messages = Messages()
    preview = preview_training("text", data=tmp_path, display=messages, length=8, **SMALL)
    assert preview["vocabulary"] == len(set("ab\n")) + 1 and sum(preview["counts"].values()) == 300
    assert [Path(name).name for name in preview["not_read"]] == ["LICENSE", "README.md"]
    assert sum("2 files were not read" in line for line in messages.lines) == 1


# the catalogue


def test_catalogue_names_are_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JUMOK_CACHE", str(tmp_path / "cache"))

    def preview(recipe: str, name: str, **fields: Any) -> dict[str, Any]:
        return preview_training(recipe, data=name, display=SilentDisplay(), **fields)

    for recipe, name in (
        ("text", "gutenberg"),
        ("masked", "shakespeare"),
        ("induction", "shakespeare"),
        ("translate", "en-ko"),
        ("sentiment", "movie-reviews"),
        ("caption", "emoji-twitter"),
        ("image", "cifar10"),
    ):
        missing = "emoji" if name.startswith("emoji") else name
        with pytest.raises(
            DataError, match=f"{missing} is not in the cache; download it with: jumok data get {missing}"
        ):
            preview(recipe, name)
    assert not (tmp_path / "cache").exists(), "nothing is downloaded"
    with pytest.raises(ArgumentError, match="translate recipe cannot read shakespeare; give en-ko or sentences, or"):
        preview("translate", "shakespeare")
    with pytest.raises(ArgumentError, match=r"the copy recipe cannot read shakespeare; give files of your own"):
        preview("copy", "shakespeare")
    with pytest.raises(ArgumentError, match="smollm2 is a model, not data; start from it with --from smollm2"):
        preview("text", "smollm2")
    with pytest.raises(DataError, match="shakespear does not exist; did you mean shakespeare, of the catalogue"):
        preview("text", "shakespear")
    with pytest.raises(ArgumentError, match="header of the text recipe applies to files of your own, not to gutenberg"):
        preview("text", "gutenberg", header="yes")
    with pytest.raises(ArgumentError, match="set of the image recipe applies only without --data"):
        preview("image", "cifar10", set="mnist")

    monkeypatch.setitem(text_corpora.TEXTS, "gutenberg", lambda split, report: iter(["abc", "cba\n"] * 50))
    assert preview("text", "gutenberg", length=8, **SMALL)["counts"]["training tokens"] == 720
    (tmp_path / "gutenberg").write_text("de\n" * 100, encoding="utf-8")
    assert preview("text", "gutenberg", length=8, **SMALL)["vocabulary"] == 4, "a file of that name is the user's own"


def test_default_data_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = download_or_skip("shakespeare")
    monkeypatch.setenv("JUMOK_CACHE", str(folder.parent))
    request = TrainingRequest("text", Path("never"), "shakespeare")
    passages = text_corpora.TEXTS["shakespeare"]("train", request.show_download)
    assert request.show_download is None and next(passages).startswith("ALL'S WELL")


# dry runs


def test_dry_run_reads_the_data_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_reviews(tmp_path / "reviews.csv", "cp949")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["jumok", "train", "sentiment", "--data", "reviews.csv", *arguments])
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        output = capsys.readouterr()
        return code, output.out, output.err

    code, output, errors = run("--dry-run")
    assert code != 0 and "reads as CP949: add --encoding cp949" in errors
    code, output, errors = run("--dry-run", "--encoding", "cp949", "--set", "width=16", "--set", "heads=2")
    assert code == 0 and "- training texts: 47" in output and "| 영화 " in output
    assert "reviews.csv: the first row is a header; text = '리뷰' (column 1)" in errors
    code, output, errors = run("--dry-run", "--encoding", "cp949", "--json")
    preview = json.loads(output)
    assert code == 0 and not errors
    assert preview["tables"][0]["header"] is True and preview["tables"][0]["columns"] == {
        "text": {"name": "리뷰", "number": 1},
        "label": {"name": "감정", "number": 2},
    }
    assert preview["counts"]["classes"] == 2 and sum(preview["counts"][f"{part} texts"] for part in PARTS) == 60
    assert preview["parameters"] > 0 and len(preview["examples"]) == 3
    assert sorted(os.listdir(tmp_path)) == ["reviews.csv", "temporary"] and not os.listdir(tmp_path / "temporary")


PARTS = ("training", "validation", "held-out")


@pytest.mark.parametrize("recipe", ["numbers", "sort", "copy", "induction"])
def test_dry_run_of_generated_data(recipe: str) -> None:
    changes = {"copy": {"examples": 20, "held_out": 5}}.get(recipe, {})
    preview = preview_training(recipe, display=SilentDisplay(), **changes)
    assert preview["parameters"] > 0 and preview["data"] is None
    assert json.loads(json.dumps(preview)) == preview
    if recipe == "copy":
        assert preview["counts"]["training sequences"] == 20 and preview["examples"][0]["source"]


def test_messages_with_brackets_and_wide_letters_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    from jumok.training.displays import BarDisplay

    for display in (LineDisplay(), BarDisplay()):
        display.show_message("a.csv: first example: text '[/b] 한글 [red]'")
        assert "[/b] 한글 [red]" in capsys.readouterr().err
    assert get_recipe("sentiment").options.describe_condition("header") == "only with --data"


@pytest.mark.parametrize("path", ["", " "])
def test_empty_data_is_not_the_current_folder(path: str) -> None:
    with pytest.raises(ArgumentError, match=r"data \(--data\) is empty; give a file"):
        preview_training("text", data=path)


@pytest.mark.parametrize(
    ("width", "message"),
    [(999_999_998, "this config describes an impossible model"), (999_998, "more than the memory of this machine")],
)
def test_a_model_that_no_memory_holds_is_refused(width: int, message: str) -> None:
    with pytest.raises(JumokError, match=message):
        preview_training("numbers", width=width)
