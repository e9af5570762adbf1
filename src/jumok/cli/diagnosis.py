"""Collect what ``jumok doctor`` prints: versions, threads, device, caches, extras, and problems."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

REQUIREMENT = re.compile(
    r"(?P<name>[\w.-]+)(?:>=(?P<minimum>[\d.]+))?[^;]*(?:;.*extra == [\"'](?P<extra>[\w-]+)[\"'])?"
)
HIDDEN_EXTRAS = ("all", "dev")  # a list of the others, and the tools of developers
EXTRA_PURPOSES = {
    "draw": "figures as PNG and SVG",
    "gguf": "models in .gguf files",
    "chat": "chat templates (jumok run --chat)",
    "hub": "downloads from the Hugging Face Hub",
    "images": "image files as model input",
    "audio": "audio files as model input",
    "retrieval": "searching your own files (jumok index, jumok ask)",
    "large-retrieval": "searching more than 500,000 passages",
    "datasets": "datasets of the Hugging Face Hub",
    "parquet": "Parquet files",
    "train": "BLEU, chrF and baselines in training reports",
    "tensorboard": "metrics in TensorBoard (jumok train --tensorboard)",
    "wandb": "metrics in Weights & Biases (jumok train --wandb)",
    "transformers": "a lens on models of transformers",
    "page": "the page in a browser (jumok look --open)",
    "notebook": "the page in a notebook (jumok.show)",
    "docs": "building the documentation (make docs)",
}


@dataclass(frozen=True)
class Package:
    """A package that jumok uses.

    Args:
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


@dataclass(frozen=True)
class CacheFolder:
    """A folder of downloaded files.

    Args:
        path: The folder; it may not exist.
        exists: True if the folder exists.
        size: The total size of its files in bytes.
    """

    name: str
    path: Path
    exists: bool
    size: int


@dataclass(frozen=True)
class Diagnosis:
    """The state of an installation.

    Args:
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
    extras = [Extra(name, EXTRA_PURPOSES.get(name, ""), tuple(packages)) for name, packages in optional.items()]
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
