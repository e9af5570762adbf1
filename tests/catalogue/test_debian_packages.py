"""Test catalogue entries from Debian packages: apt-get with a repository in a folder, and the reader of .deb files."""

from __future__ import annotations

import gzip
import io
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from jumok.data import catalogue
from jumok.data.catalogue import Archive, Entry, FileSet, unpack
from jumok.data.catalogue.fetch import build_apt_commands
from jumok.errors import FetchError
from package_archives import LICENCE, POEM, sha256

apt = pytest.mark.skipif(shutil.which("apt-get") is None, reason="apt-get is not installed")
CONTROL = b"Package: sample\nVersion: 1.0-2\nArchitecture: all\nMaintainer: a <a@b.c>\nDescription: a poem\n"
FILE_SETS = (
    FileSet("usr/share/sample/*.txt", "*.txt", len(POEM) + 1, "", count=2),
    FileSet("usr/share/doc/sample/copyright", "LICENSE", len(LICENCE), sha256(LICENCE)),
)


def build_tar_xz(files: dict[str, bytes], *members: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz") as archive:
        for member in members:
            archive.addfile(member)
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def build_ar(members: dict[str, bytes]) -> bytes:
    content = b"!<arch>\n"
    for name, body in members.items():
        content += (
            f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(body):<10}`\n".encode() + body + b"\n" * (len(body) % 2)
        )
    return content


def build_package(*members: tarfile.TarInfo, files: dict[str, bytes] | None = None) -> bytes:
    """Return a .deb file with a poem, a page, a licence, and more members."""
    files = files or {
        "./usr/share/sample/poem.txt": POEM,
        "./usr/share/sample/page.txt": b"1",
        "./usr/share/doc/sample/copyright": LICENCE,
        "./usr/share/sample/skipped.png": b"picture",
    }
    control = build_tar_xz({"./control": CONTROL})
    parts = {"debian-binary": b"2.0\n", "control.tar.xz": control, "data.tar.xz": build_tar_xz(files, *members)}
    return build_ar(parts)


def build_member(name: str, kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, "/etc/passwd"
    return member


def build_entry(package: bytes) -> Entry:
    pages = sha256(f"page.txt\0{sha256(b'1')}\npoem.txt\0{sha256(POEM)}\n".encode())
    file_sets = (replace(FILE_SETS[0], sha256=pages), FILE_SETS[1])
    archive = Archive("apt", "sample", "1.0-2", len(package), sha256(package), file_sets)
    return Entry("sample", "data", "MIT", "a poem", "시 한 편", (archive,))


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Configure apt for one repository in a folder, with package lists of its own, and use an empty cache."""
    folder = tmp_path / "repository"
    folder.mkdir()
    (tmp_path / "lists/partial").mkdir(parents=True)
    (tmp_path / "sources.list").write_text(f"deb [trusted=yes] copy:{folder} ./\n")
    settings = {
        "Dir::Etc::sourcelist": tmp_path / "sources.list",
        "Dir::Etc::sourceparts": tmp_path / "none",
        "Dir::Etc::parts": tmp_path / "none",
        "Dir::State::lists": tmp_path / "lists",
        "Dir::State::status": "/dev/null",
    }
    (tmp_path / "apt.conf").write_text("".join(f'{name} "{setting}";\n' for name, setting in settings.items()))
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))
    monkeypatch.setenv("JUMOK_CACHE", str(tmp_path / "cache"))
    return folder


def publish(folder: Path, package: bytes) -> None:
    (folder / "sample_1.0-2_all.deb").write_bytes(package)
    fields = f"Filename: ./sample_1.0-2_all.deb\nSize: {len(package)}\nSHA256: {sha256(package)}\n"
    (folder / "Packages.gz").write_bytes(gzip.compress(CONTROL + fields.encode()))


def use_entry(monkeypatch: pytest.MonkeyPatch, entry: Entry) -> None:
    monkeypatch.setattr(catalogue.entries, "list_entries", lambda: (entry,))


@apt
def test_download_with_apt(repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = build_package()
    publish(repository, package)
    entry = build_entry(package)
    assert entry.packages == "apt sample=1.0-2"
    use_entry(monkeypatch, entry)
    lines: list[str] = []
    folder = catalogue.download_entry("sample", lines.append)
    assert sorted(path.name for path in folder.iterdir()) == ["LICENSE", "manifest.json", "page.txt", "poem.txt"]
    assert (folder / "poem.txt").read_bytes() == POEM and catalogue.find_damage("sample") is None
    assert lines[0] == "sample: sample=1.0-2 with apt, 0.0 MB"
    assert list((tmp_path / "lists").rglob("*")) == [tmp_path / "lists/partial"]  # the system's lists are not changed
    assert [path.name for path in catalogue.get_cache_folder().iterdir()] == ["sample"]


@apt
def test_lists_are_downloaded_only_if_the_system_s_do_not_have_the_version(repository: Path, tmp_path: Path) -> None:
    package = build_package()
    publish(repository, package)
    archive = build_entry(package).archives[0]

    def list_actions(name: str) -> list[str]:
        (tmp_path / name).mkdir()
        commands = build_apt_commands(archive, tmp_path / name)
        return [word for command in commands for word in command if word in ("update", "download")]

    assert list_actions("first") == ["update", "download"]
    subprocess.run(["apt-get", "-qq", "update"], check=True, capture_output=True)  # into the lists of the fixture
    assert list_actions("second") == ["download"]


@apt
def test_a_package_that_differs_is_refused(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = build_entry(build_package())
    publish(repository, build_package(build_member("./usr/bin/evil", tarfile.SYMTYPE)))
    use_entry(monkeypatch, entry)
    with pytest.raises(
        FetchError, match=r"sample=1\.0-2 from apt does not have the expected SHA-256; nothing was kept"
    ):
        catalogue.download_entry("sample")

    use_entry(monkeypatch, replace(entry, archives=(replace(entry.archives[0], version="2.0-1"),)))
    with pytest.raises(FetchError, match=r"apt says: Version '2\.0-1' for 'sample' was not found"):
        catalogue.download_entry("sample")
    use_entry(monkeypatch, replace(entry, archives=(replace(entry.archives[0], package="other"),)))
    with pytest.raises(FetchError, match=r"apt says: Unable to locate package other"):
        catalogue.download_entry("sample")
    assert list(catalogue.get_cache_folder().iterdir()) == []


def test_without_apt_the_message_says_what_is_needed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JUMOK_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    use_entry(monkeypatch, build_entry(build_package()))
    with pytest.raises(FetchError, match=r"apt-get is needed to download sample=1\.0-2, which is a Debian package"):
        catalogue.download_entry("sample")
    assert list(tmp_path.iterdir()) == []


def unpack_package(content: bytes, folder: Path) -> dict[str, int]:
    path = folder / "sample.deb"
    path.write_bytes(content)
    return unpack.unpack_archive("sample", build_entry(content).archives[0], path, folder / "target")


def test_links_are_not_followed(tmp_path: Path) -> None:
    links = [build_member(f"./usr/share/sample/{kind}.txt", kind.encode()) for kind in "12"]
    sizes = unpack_package(build_package(*links), tmp_path)
    assert sizes == {"poem.txt": len(POEM), "page.txt": 1, "LICENSE": len(LICENCE)}


DAMAGED: dict[str, tuple[Callable[[], bytes], str]] = {
    "text": (lambda: b"hello " * 50, "is not a Debian package"),
    "empty": (lambda: b"", "is not a Debian package"),
    "no-files": (lambda: build_ar({"debian-binary": b"2.0\n"}), "has no data.tar.xz"),
    "other-compression": (lambda: build_ar({"data.tar.zst": b"\x28\xb5\x2f\xfd"}), "has no data.tar.xz"),
    "header": (lambda: build_package().replace(b"`\n", b"``"), "header at byte 8 of the Debian package is damaged"),
    "cut-header": (lambda: build_package()[:100], "header at byte 72 of the Debian package is damaged"),
    "size": (lambda: build_ar({"x": b"1"}).replace(b"1         `", b"-1        `"), "header at byte 8"),
    "truncated": (lambda: build_package()[:-200], "was rejected"),
    "not-xz": (lambda: build_ar({"data.tar.xz": b"12345678" * 99}), "cannot be read"),
    "flipped": (lambda: (content := build_package())[:-150] + b"\xaa" * 20 + content[-130:], "was rejected"),
    "absolute": (lambda: build_package(files={"/etc/cron.d/x": b"1"}), "is outside the folder"),
    "climbing": (lambda: build_package(files={"./usr/../../x": b"1"}), "is outside the folder"),
    "device": (lambda: build_package(build_member("./dev/x", tarfile.CHRTYPE)), "is a link or a device"),
    "pipe": (lambda: build_package(build_member("./pipe", tarfile.FIFOTYPE)), "is a link or a device"),
    "missing": (lambda: build_package(files={"./usr/share/sample/poem.txt": POEM}), "expected 2 files, got 1"),
    "twice": (
        lambda: build_package(files={"./usr/share/sample/poem.txt": POEM, "usr/share/sample/poem.txt": POEM}),
        "contains usr/share/sample/poem.txt twice",
    ),
    "larger": (lambda: build_package(files={"./usr/share/sample/poem.txt": POEM * 9}), "is larger than the expected"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_package_is_refused(name: str, tmp_path: Path) -> None:
    build, message = DAMAGED[name]
    with pytest.raises(FetchError, match=re.escape(message)):
        unpack_package(build(), tmp_path)
