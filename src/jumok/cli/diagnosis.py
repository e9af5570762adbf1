"""The command ``jumok doctor``: check versions, threads, device, caches and extras of this installation."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

import click

from jumok.bilingual_text import Text, Texts
from jumok.translation import translate

from .command import json_option
from .command_output import CommandOutput
from .help import Command

REQUIREMENT = re.compile(
    r"(?P<name>[\w.-]+)(?:>=(?P<minimum>[\d.]+))?[^;]*(?:;.*extra == [\"'](?P<extra>[\w-]+)[\"'])?"
)
HIDDEN_EXTRAS = ("all", "dev")  # a list of the others, and the tools of developers
TEXTS = Texts(__file__)
BUSY = 0.5  # threads that ran or waited for each CPU, in the mean


@click.command(cls=Command)
@json_option
def doctor(as_json: bool) -> None:
    """The command ``jumok doctor``."""
    output = CommandOutput(as_json)
    diagnosis = diagnose()
    if as_json:
        output.print_json(diagnosis.to_json())
    else:
        diagnosis.print(output)
    if diagnosis.problems:
        sys.exit(2)


@dataclass(frozen=True)
class Package:
    """A package that jumok uses.

    Attributes:
        minimum: The oldest version that jumok supports; None = any.
        version: The installed version; None = not installed.
    """

    name: str
    minimum: str | None
    version: str | None

    @property
    def is_usable(self) -> bool:
        """True if the package is installed and not too old."""
        if self.version is None:
            return False
        return self.minimum is None or _parse_version(self.version) >= _parse_version(self.minimum)

    def describe(self) -> object:
        """Return the version, and what is missing."""
        version = self.version or TEXTS("states.missing")
        if self.is_usable or self.minimum is None:
            return version
        return TEXTS("states.needs", version=version, minimum=self.minimum)


@dataclass(frozen=True)
class Extra:
    """An optional feature of jumok."""

    name: str
    purpose: str
    packages: tuple[Package, ...]

    @property
    def is_installed(self) -> bool:
        """True if every package is usable."""
        return all(package.is_usable for package in self.packages)

    @property
    def install_command(self) -> str:
        """The command that installs the extra."""
        return f'pip install "jumok[{self.name}]"'

    def describe(self) -> tuple[object, ...]:
        """Return the cells of its row."""
        if self.is_installed:
            versions = ", ".join(f"{package.name} {package.version}" for package in self.packages)
            return self.name, TEXTS("states.installed"), versions
        purpose = TEXTS(f"purposes.{self.name}")
        install = TEXTS("states.install", purpose=purpose, command=self.install_command)
        return self.name, TEXTS("states.missing"), install


@dataclass(frozen=True)
class CacheFolder:
    """A folder of downloaded files, which may not exist, and their size in bytes."""

    name: str
    path: Path
    exists: bool
    size: int


@dataclass(frozen=True)
class Diagnosis:
    """The state of an installation.

    Attributes:
        packages: The packages that jumok always needs.
        transformers: transformers, whose models a lens can open; it is not needed otherwise.
        threads: The number of threads that torch uses; None if torch cannot be imported.
        cores: The number of CPUs that this process may use.
        load: The mean number of threads that ran or waited for a CPU in the last minute; None if unavailable.
        device: The best device that torch can use; None if torch cannot be imported.
        npm: The program that downloads some catalogue entries; None = not installed.
        problems: Sentences that say what is wrong and how to fix it.
    """

    jumok: str
    python: str
    system: str
    packages: tuple[Package, ...]
    transformers: Package
    threads: int | None
    cpus: int | None
    cores: int | None
    load: float | None
    device: str | None
    npm: str | None
    caches: tuple[CacheFolder, ...]
    extras: tuple[Extra, ...]
    problems: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the fields of --json."""
        fields = asdict(self)
        fields["caches"] = [{**asdict(cache), "path": str(cache.path)} for cache in self.caches]
        fields["extras"] = [
            {**asdict(extra), "installed": extra.is_installed, "install": extra.install_command}
            for extra in self.extras
        ]
        return fields

    def print(self, output: CommandOutput) -> None:
        """Print the versions and the threads, the caches, the extras, and the problems."""
        from jumok.data.catalogue import format_megabytes

        rows = [
            ("jumok", self.jumok),
            ("python", self.python),
            (TEXTS("titles.system"), self.system),
            *((package.name, package.describe()) for package in self.packages),
            ("transformers", self.transformers.version or TEXTS("states.no_transformers")),
            (TEXTS("titles.threads"), self._describe_threads()),
            (TEXTS("titles.device"), self.device or "-"),
            ("npm", self.npm or TEXTS("states.no_npm")),
        ]
        output.print_table("ll", rows)

        output.print(TEXTS("titles.caches"))
        sizes = [format_megabytes(cache.size) if cache.exists else TEXTS("states.empty") for cache in self.caches]
        caches = [(cache.name, size, cache.path) for cache, size in zip(self.caches, sizes, strict=True)]
        output.print_table("lrl", caches, indent=2)

        output.print(TEXTS("titles.extras"))
        output.print_table("lll", [extra.describe() for extra in self.extras], indent=2)

        output.print()
        for problem in self.problems:
            output.print(TEXTS("states.problem", problem=translate(problem)))
        if not self.problems:
            output.print(TEXTS("states.no_problems"))

    def _describe_threads(self) -> Text:
        """Describe threads, cores and load, with a hint if other programs keep the cores busy."""
        counts = {"threads": self.threads or "-", "cores": self.cores or "-", "cpus": self.cpus or "-"}
        text = TEXTS("states.threads", **counts)
        if self.load is None:
            return text
        text = TEXTS("states.load", text=text, load=self.load)
        if self.cpus is not None and self.load > BUSY * self.cpus and self.threads != 1:
            text = TEXTS("states.busy", text=text)
        return text


def diagnose() -> Diagnosis:
    """Inspect this installation."""
    from jumok import __version__

    packages, extras = _read_requirements()
    problems = [_describe_problem(package) for package in packages if not package.is_usable]
    threads, cores, load, device = None, None, None, None
    try:
        import torch

        from jumok.threads import count_cores, read_load

        threads, device = torch.get_num_threads(), _find_device()
        cores, load = count_cores(), read_load()
    except Exception as error:  # a broken installation of torch fails in many ways
        problems.append(f"torch cannot be imported ({type(error).__name__}: {error}); reinstall it")
    if not packages:
        problems.append("jumok is not installed as a package, so its requirements are unknown; run: pip install -e .")

    return Diagnosis(
        jumok=__version__,
        python=f"{platform.python_version()} ({sys.executable})",
        system=f"{platform.platform()}, {platform.machine()}",
        packages=packages,
        transformers=_inspect_package("transformers", None),
        threads=threads,
        cpus=os.cpu_count(),
        cores=cores,
        load=None if load is None else round(load, 2),
        device=device,
        npm=shutil.which("npm"),
        caches=tuple(_inspect_caches()),
        extras=extras,
        problems=problems,
    )


def _read_requirements() -> tuple[tuple[Package, ...], tuple[Extra, ...]]:
    """Return the required packages and the extras, as the metadata of the installed package declares them."""
    try:
        lines = requires("jumok") or []
    except PackageNotFoundError:
        return (), ()
    required: list[Package] = []
    optional: dict[str, list[Package]] = {}
    for line in lines:
        match = REQUIREMENT.match(line)
        if match is None or match["name"] == "jumok" or match["extra"] in HIDDEN_EXTRAS:
            continue
        package = _inspect_package(match["name"], match["minimum"])
        if match["extra"] is None:
            required.append(package)
        else:
            optional.setdefault(match["extra"], []).append(package)
    extras = [Extra(name, TEXTS(f"purposes.{name}").english, tuple(packages)) for name, packages in optional.items()]
    return tuple(required), tuple(extras)


def _inspect_package(name: str, minimum: str | None) -> Package:
    try:
        return Package(name, minimum, version(name))
    except PackageNotFoundError:
        return Package(name, minimum, None)


def _describe_problem(package: Package) -> str:
    requirement = package.name if package.minimum is None else f"{package.name}>={package.minimum}"
    state = "is not installed" if package.version is None else f"{package.version} is too old"
    return f'{package.name} {state}; run: pip install "{requirement}"'


def _parse_version(text: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: "2.10.0+cpu" -> (2, 10, 0)."""
    match = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(number) for number in match.group().split(".")) if match else ()


def _find_device() -> str:
    import torch

    if torch.cuda.is_available():
        return f"cuda ({torch.cuda.get_device_name()})"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def _inspect_caches() -> Iterator[CacheFolder]:
    from jumok.checkpoint.resolve import locate_hub_cache
    from jumok.data.catalogue import get_cache_folder

    for name, path in (("jumok", get_cache_folder()), ("Hugging Face Hub", locate_hub_cache())):
        yield CacheFolder(name, path, path.is_dir(), _measure_folder(path))


def _measure_folder(folder: Path) -> int:
    """Return the total size of a folder's files in bytes, without following links."""
    size = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                size += os.lstat(os.path.join(root, name)).st_size
            except OSError:  # removed in the meantime
                continue
    return size
