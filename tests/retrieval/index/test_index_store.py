"""The stored index: incremental, equal to a fresh build, and safe when it is damaged or outdated."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from jumok.errors import ArgumentError, CheckpointError, DataError
from jumok.retrieval import open_index
from jumok.retrieval.search import embedding
from jumok.retrieval.store import build, index_version, passage_database
from jumok.retrieval.store.folder_index import FolderIndex, inspect_index, list_indexes, remove_index
from retrieval.index_folders import describe_contents, save_small_embedder, write_files, write_notes


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUMOK_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_small_embedder(tmp_path_factory.mktemp("embedder") / "model")


@pytest.fixture
def read_files(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that are read, as they are read."""
    paths: list[str] = []
    read = build.read_open_file

    def record(descriptor: int, relative: str, report: Callable[[int, str], None]) -> object:
        paths.append(relative)
        return read(descriptor, relative, report)

    monkeypatch.setattr(build, "read_open_file", record)
    return paths


@pytest.fixture
def embedded_texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts whose vectors are computed."""
    computed: list[str] = []
    embed = embedding.embed_passages

    def record(loaded: object, texts: list[str], progress: object = None) -> object:
        computed.extend(texts if progress is not None else ())  # a question has none
        return embed(loaded, texts, progress)  # type: ignore[arg-type]

    monkeypatch.setattr(embedding, "embed_passages", record)
    return computed


def build_fresh(
    folder: Path, embedder: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, object]:
    """Return the contents of an index that is built in an empty cache."""
    with monkeypatch.context() as patch:
        patch.setenv("JUMOK_CACHE", str(tmp_path / "fresh"))
        shutil.rmtree(tmp_path / "fresh", ignore_errors=True)
        with open_index(folder, embedder=embedder) as index:
            return describe_contents(index)


def test_passages_and_searches(tmp_path: Path, embedder: str) -> None:
    folder = write_notes(tmp_path / "notes")
    stages: list[tuple[int, int, str]] = []
    with open_index(folder, embedder=embedder, progress=lambda *step: stages.append(step)) as index:
        assert [index.get(number).location for number in range(len(index))] == [
            *("boat.txt:1", "garden/bees.md:3", "garden/bees.md:7"),
            *("numbers/0.txt:1", "numbers/1.txt:1", "numbers/2.txt:1", "고양이.txt:1"),
        ]
        answer = index.search("When does the boat leave for the island?", 2, "bm25")
        assert answer.hits[0].passage == index.get(0)
        assert answer.hits[0].passage.text == "The boat to the island leaves at seven.\nIt returns at noon."
        assert index.search("boat", method="fused").hits[0].cosine is not None
        assert index.search("고양이는 어디에?").method == "bm25"
        for number in (-1, 7):
            with pytest.raises(ArgumentError, match="the index has 7 passages"):
                index.get(number)

        status = index.status
        assert (status.action, status.files, status.passages, status.embedder) == ("built", 6, 7, embedder)
        assert (status.vectors, status.unreadable) == (6, 1)
        assert status.passages_per_second > 0 and status.skipped == () and status.notices == ()
        assert json.loads(json.dumps(status.to_json()))["changes"] == {"new": 0, "changed": 0, "removed": 0}
    assert {stage for _, _, stage in stages} == {"reading", "embedding", "indexing"}
    assert all(done <= total for done, total, _ in stages)
    assert [path.name for path in tmp_path.iterdir() if path.name != "cache"] == ["notes"]
    assert not list(folder.rglob(".*")), "the index is not in the folder"
    assert Path(status.location).stat().st_mode & 0o077 == 0, "other users cannot read it"


def test_vectors_belong_to_their_passages(tmp_path: Path, embedder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from jumok.retrieval.search.embedding import embed_question, load_model

    monkeypatch.setattr(build, "CHUNK", 2)
    loaded = load_model(embedder)
    with open_index(write_notes(tmp_path / "notes"), embedder=embedder) as index:
        matrix = index._vectors._matrix
        for number in range(len(index)):
            text = index.get(number).text
            expected = embed_question(loaded, text) if text.isascii() else np.zeros(24)
            assert np.allclose(matrix[number], expected, atol=2e-3)
        dense = index.search("boat", 7, "dense").hits
    assert sorted(hit.number for hit in dense) == [0, 1, 2, 3, 4, 5], (
        "a passage without a vector is not found by vectors"
    )


def test_only_changed_files_are_read_again(
    tmp_path: Path, embedder: str, read_files: list[str], embedded_texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_notes(tmp_path / "notes")
    open_index(folder, embedder=embedder).close()
    assert len(read_files) == 6 and len(embedded_texts) == 6

    for _ in range(2):
        read_files.clear()
        embedded_texts.clear()
        with open_index(folder, embedder=embedder) as index:
            assert index.status.action == "opened"
        assert read_files == embedded_texts == []

    # changed, with the same size and modification time
    before = (folder / "boat.txt").stat()
    (folder / "boat.txt").write_text((folder / "boat.txt").read_text().replace("seven", "eight"))
    os.utime(folder / "boat.txt", ns=(before.st_atime_ns, before.st_mtime_ns))
    (folder / "numbers" / "1.txt").unlink()
    write_files(folder, {"a/new.txt": "A new file."})
    (folder / "garden" / "bees.md").rename(folder / "garden" / "moved.md")
    with open_index(folder, embedder=embedder) as index:
        contents = describe_contents(index)
        changes = index.status.changes
        assert index.status.action == "updated" and (changes.new, changes.changed, changes.removed) == (2, 1, 2)
    assert sorted(read_files) == ["a/new.txt", "boat.txt", "garden/moved.md"]
    assert sorted(embedded_texts) == ["A new file.", "The boat to the island leaves at eight.\nIt returns at noon."]
    assert contents == build_fresh(folder, embedder, tmp_path, monkeypatch)


def test_index_without_vectors_and_with_them_later(
    tmp_path: Path, embedder: str, read_files: list[str], embedded_texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_notes(tmp_path / "notes")
    with open_index(folder, embedder=None) as index:
        assert index.status.embedder is None and index.search("boat").method == "bm25"
        with pytest.raises(ArgumentError, match="needs vectors"):
            index.search("boat", method="dense")
    read_files.clear()
    with open_index(folder, embedder=embedder) as index:
        assert index.status.vectors == 6 and index.search("boat").method == "fused"
    assert read_files == [] and len(embedded_texts) == 6

    # without an embedding model, the vectors that are there are kept
    embedded_texts.clear()
    write_files(folder, {"new.txt": "A new file."})
    with open_index(folder, embedder=None) as index:
        assert index.status.vectors == 6 and index.search("boat").method == "bm25"
    assert embedded_texts == []
    with open_index(folder, embedder=embedder) as index:
        contents = describe_contents(index)
    assert embedded_texts == ["A new file."]
    assert contents == build_fresh(folder, embedder, tmp_path, monkeypatch)


def test_another_embedding_model(
    tmp_path: Path, embedder: str, read_files: list[str], embedded_texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_notes(tmp_path / "notes")
    open_index(folder, embedder=embedder).close()
    read_files.clear()
    embedded_texts.clear()
    other = save_small_embedder(tmp_path / "other", seed=1)
    reported: list[str] = []
    with open_index(folder, embedder=other, report=reported.append) as index:
        assert index.status.embedder == other
        assert reported == list(index.status.notices)
        assert "from another embedding model" in reported[0]
        contents = describe_contents(index)
    assert read_files == [] and len(embedded_texts) == 6
    assert contents == build_fresh(folder, other, tmp_path, monkeypatch)

    # the same name, other parameters
    shutil.rmtree(other)
    save_small_embedder(Path(other), seed=2)
    with open_index(folder, embedder=other) as index:
        assert "from another embedding model" in index.status.notices[0]


def test_the_model_of_the_index_or_none(tmp_path: Path, embedder: str) -> None:
    folder = write_notes(tmp_path / "notes")
    with open_index(folder, embedder="auto") as index:  # no model is in this cache
        assert index.status.embedder is None
        assert "searched by words only: e5-multilingual is not on this machine yet" in index.status.notices[0]
    open_index(folder, embedder=embedder).close()
    with open_index(folder, embedder="auto") as index:
        assert index.status.action == "opened" and index.search("boat").method == "fused"
    with pytest.raises(CheckpointError, match="jumok data get minilm"):
        open_index(folder)
    with pytest.raises(ArgumentError, match="embeds text"):
        open_index(write_files(tmp_path / "more", {"a.txt": "x"}), embedder="tiny")


@pytest.mark.parametrize("version", ["FORMAT_VERSION", "PASSAGES_VERSION", "TERMS_VERSION"])
def test_another_version(
    tmp_path: Path, embedder: str, version: str, read_files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_notes(tmp_path / "notes")
    with monkeypatch.context() as patch:
        patch.setattr(index_version, version, 0)
        open_index(folder, embedder=embedder).close()
    read_files.clear()
    with open_index(folder, embedder=embedder) as index:
        assert "built again" in index.status.notices[0]
        contents = describe_contents(index)
    assert len(read_files) == (0 if version == "TERMS_VERSION" else 6)
    assert contents == build_fresh(folder, embedder, tmp_path, monkeypatch)
    with open_index(folder, embedder=embedder) as index:
        assert index.status.action == "opened"


def list_index_files(status_location: str) -> list[Path]:
    return sorted(path for path in Path(status_location).rglob("*") if path.is_file())


def test_damage_of_every_file_is_noticed(tmp_path: Path, embedder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_notes(tmp_path / "notes")
    with open_index(folder, embedder=embedder) as index:
        expected = describe_contents(index)
        location = index.status.location
    names = [path.name for path in list_index_files(location)]
    assert len(names) >= 8 and {"current.json", "index.json", "passages.db", "vectors.npy"} <= set(names)

    def flip(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 4
        path.write_bytes(content)

    damages: list[Callable[[Path], object]] = [
        flip,
        lambda path: os.truncate(path, path.stat().st_size - 1),
        lambda path: os.truncate(path, 0),
        Path.unlink,
    ]
    cases = [(name, damages[number % len(damages)]) for number, name in enumerate(names)]
    cases += [(name, damage) for name in ("current.json", "passages.db") for damage in damages]
    for name, damage in dict.fromkeys(cases):
        path = next(path for path in list_index_files(location) if path.name == name)
        damage(path)
        with open_index(folder, embedder=embedder) as index:
            is_missing = name == "current.json" and damage is Path.unlink  # then there is no index
            assert bool(index.status.notices) != is_missing, (name, damage)
            assert index.status.action == "built"
            assert describe_contents(index) == expected
        assert [path.name for path in list_index_files(location)] == names, "nothing else is left"


def test_a_database_that_sqlite_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large index is not hashed whenever it is opened; --status --verify hashes it."""
    monkeypatch.setattr(index_version, "HASHED_BYTES", 10)
    folder = write_notes(tmp_path / "notes")
    with open_index(folder, embedder=None) as index:
        expected = describe_contents(index)
        (path,) = Path(index.status.location).rglob("passages.db")
    content = bytearray(path.read_bytes())
    content[2000] ^= 1
    path.write_bytes(content)
    assert inspect_index(folder) is not None
    with pytest.raises(DataError, match=r"cannot be used \(passages.db has changed\); jumok index builds it again"):
        inspect_index(folder, verify=True)

    write_files(folder, {"new.txt": "A new file."})  # an update copies nothing that is damaged
    with open_index(folder, embedder=None) as index:
        assert "(passages.db has changed); it is built again" in index.status.notices[0]
    (folder / "new.txt").unlink()
    open_index(folder, embedder=None).close()

    (path,) = Path(index.status.location).rglob("passages.db")
    path.write_bytes(b"x" * path.stat().st_size)
    with open_index(folder, embedder=None) as index:
        assert "built again" in index.status.notices[0]
        assert describe_contents(index) == expected


def test_damaged_pending_vectors_are_not_used(tmp_path: Path, embedder: str) -> None:
    pending = passage_database.PendingVectors(tmp_path / "pending.db", "model")
    vector = np.arange(8, dtype=np.float16)
    pending.add([(b"a", vector), (b"b", vector)])
    pending._connection.execute("UPDATE vectors SET vector = zeroblob(16) WHERE digest = ?", (b"b",))
    pending._connection.commit()
    assert np.array_equal(pending.get(b"a"), vector)
    assert pending.get(b"b") is None and pending.get(b"c") is None
    pending.close()
    for content in (b"x" * 5000, b""):
        (tmp_path / "pending.db").write_bytes(content)
        pending = passage_database.PendingVectors(tmp_path / "pending.db", "model")
        assert pending.get(b"a") is None
        pending.add([(b"a", vector)])
        pending.close()
    pending = passage_database.PendingVectors(tmp_path / "pending.db", "another model")
    assert pending.get(b"a") is None
    pending.close()


def test_an_interrupted_run_continues(
    tmp_path: Path, embedder: str, embedded_texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "CHUNK", 2)
    folder = write_notes(tmp_path / "notes", count=8)

    def interrupt(done: int, total: int, stage: str) -> None:
        if stage == "embedding" and done >= 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_index(folder, embedder=embedder, progress=interrupt)
    assert len(embedded_texts) == 6
    embedded_texts.clear()
    with open_index(folder, embedder=embedder) as index:
        assert index.status.vectors == 11
        contents = describe_contents(index)
        location = Path(index.status.location)
    assert len(embedded_texts) == 7  # 4 of 11 were stored
    assert contents == build_fresh(folder, embedder, tmp_path, monkeypatch)
    assert not list(location.glob("pending*")) and len(list(location.glob("generation-*"))) == 1


def test_a_reader_is_not_disturbed_by_an_update(tmp_path: Path, embedder: str) -> None:
    folder = write_notes(tmp_path / "notes")
    with open_index(folder, embedder=embedder) as index:
        before = describe_contents(index)
        (folder / "boat.txt").write_text("Nothing.")
        (folder / "garden" / "bees.md").unlink()
        with open_index(folder, embedder=embedder) as other:
            assert describe_contents(other) != before
        assert describe_contents(index) == before
        remove_index(folder)
        assert describe_contents(index) == before


def test_searches_in_several_threads(tmp_path: Path) -> None:
    with open_index(write_notes(tmp_path / "notes", count=50), embedder=None) as index:
        expected = describe_contents(index)
        comparisons: list[bool] = []

        def compare() -> None:
            comparisons.append(describe_contents(index) == expected)

        threads = [threading.Thread(target=compare) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert comparisons == [True] * 4


def test_rebuild_reads_everything(
    tmp_path: Path, embedder: str, read_files: list[str], embedded_texts: list[str]
) -> None:
    folder = write_notes(tmp_path / "notes")
    open_index(folder, embedder=embedder).close()
    with open_index(folder, embedder=embedder, rebuild=True) as index:
        assert index.status.action == "built"
    assert len(read_files) == 12 and len(embedded_texts) == 12


def test_skipped_files_are_not_read_again_and_stay_in_the_status(tmp_path: Path, read_files: list[str]) -> None:
    folder = write_notes(tmp_path / "notes")
    write_files(folder, {"binary.txt": b"\0\1", "bad.jsonl": '{"text": "good"}\n{\n{\n', "x.png": "", ".h": ""})
    for _ in range(2):
        with open_index(folder, embedder=None) as index:
            assert index.status.skipped_counts == {
                "binary": 1,
                "a line that is not JSON": 2,
                "not a text file by its ending": 1,
                "hidden": 1,
            }
            assert {(file.path, file.reason) for file in index.status.skipped} >= {
                ("binary.txt", "binary"),
                ("bad.jsonl:2", "a line that is not JSON"),
            }
    assert len(read_files) == 8


def test_a_file_that_always_changes_is_read_next_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_notes(tmp_path / "notes")
    read = build.read_open_file
    path = folder / "boat.txt"

    def read_and_change(descriptor: int, relative: str, report: Callable[[int, str], None]) -> object:
        for passage in read(descriptor, relative, report):
            if relative == "boat.txt":
                with path.open("a") as file:
                    file.write("More text.")
            yield passage

    with monkeypatch.context() as patch:
        patch.setattr(build, "read_open_file", read_and_change)
        with open_index(folder, embedder=None) as index:
            assert index.status.skipped_counts == {"changed while it was read": 1}
            assert index.get(0).path == "garden/bees.md"
    with open_index(folder, embedder=None) as index:
        assert index.status.skipped_counts == {} and index.get(0).path == "boat.txt"


def test_a_file_that_changes_once_is_read_again_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_notes(tmp_path / "notes")
    read = build.read_open_file
    path = folder / "boat.txt"

    def read_and_change(descriptor: int, relative: str, report: Callable[[int, str], None]) -> object:
        for passage in read(descriptor, relative, report):
            if "seven" in passage.text:
                path.write_text("The boat leaves at eight.")
            yield passage

    monkeypatch.setattr(build, "read_open_file", read_and_change)
    with open_index(folder, embedder=None) as index:
        assert index.status.skipped_counts == {} and index.get(0).text == "The boat leaves at eight."
    with open_index(folder, embedder=None) as index:
        assert index.status.action == "opened"


def test_folders_without_text(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    with pytest.raises(DataError, match=r"notes is empty; put text files into it"):
        open_index(folder, embedder=None)
    write_files(folder, {"a.png": "x"})
    with pytest.raises(DataError, match=r"contains no text to index \(1 not a text file by its ending\); .*\.txt"):
        open_index(folder, embedder=None)
    write_files(folder, {"a.txt": b"\0", "b.txt": " "})
    with pytest.raises(DataError, match=r"1 binary, 1 empty"):
        open_index(folder, embedder=None)
    assert list_indexes() == []


def test_the_cache_is_not_indexed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_notes(tmp_path / "notes")
    monkeypatch.setenv("JUMOK_CACHE", str(folder / "cache"))
    write_files(folder / "cache", {"gutenberg/book.txt": "A book in the cache is read."})
    for _ in range(2):
        with open_index(folder, embedder=None) as index:
            paths = {index.get(number).path for number in range(len(index))}
            assert "cache/gutenberg/book.txt" in paths and not any("indexes" in path for path in paths)
            assert index.status.skipped_counts == {"holds the index": 1}
    assert index.status.action == "opened"
    with pytest.raises(ArgumentError, match="holds the indexes of other folders"):
        open_index(index.status.location, embedder=None)


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_notes(tmp_path / "notes")
    monkeypatch.setenv("JUMOK_CACHE", str(write_files(tmp_path, {"file": "x"}) / "file"))
    with pytest.raises(DataError, match=r"the index cannot be stored in .*: Not a directory; .*JUMOK_CACHE"):
        open_index(folder, embedder=None)


def test_a_full_disk(tmp_path: Path) -> None:
    """The system refuses to write more than a few bytes to any file, which is like a full disk for each writer."""
    program = """
import resource, signal, sys
import jumok.retrieval.search.search
from jumok.errors import DataError
from jumok.retrieval import open_index
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
try:
    open_index(sys.argv[1], embedder=None)
except DataError as error:
    sys.exit(str(error))
"""
    folder = write_notes(tmp_path / "notes", count=30)
    with open_index(folder, embedder=None) as index:
        before = describe_contents(index)
        location = Path(index.status.location)
    files = [path.name for path in list_index_files(str(location))]
    write_files(folder, {"new.txt": "x y z"})
    for size in (4096,):
        command = [sys.executable, "-c", program, str(folder), str(size)]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        assert process.returncode == 1 and "cannot be stored in" in process.stderr, process.stderr
        assert "Traceback" not in process.stderr
        assert [path.name for path in list_index_files(str(location))] == files
    (folder / "new.txt").unlink()
    with open_index(folder, embedder=None) as index:
        assert index.status.action == "opened" and describe_contents(index) == before


def test_list_and_remove(tmp_path: Path) -> None:
    assert list_indexes() == []
    first, second = write_notes(tmp_path / "a"), write_notes(tmp_path / "b", count=5)
    for folder in (first, second):
        open_index(folder, embedder=None).close()
    assert [(stored.folder, stored.passages, stored.exists) for stored in list_indexes()] == [
        (str(first), 7, True),
        (str(second), 9, True),
    ]
    shutil.rmtree(first)
    assert [stored.exists for stored in list_indexes()] == [False, True]
    assert remove_index(first) and not remove_index(first)
    assert [stored.folder for stored in list_indexes()] == [str(second)]
    assert inspect_index(second) is not None


def test_status_writes_nothing(tmp_path: Path) -> None:
    folder = write_notes(tmp_path / "notes")
    assert inspect_index(folder) is None and not (tmp_path / "cache").exists()
    open_index(folder, embedder=None).close()
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*")}
    write_files(folder, {"new.txt": "x", "boat.txt": "y"})
    status = inspect_index(folder)
    assert status is not None and str(status.changes) == "1 new, 1 changed"
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*")} == before


def test_names_that_are_not_text(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    for name in (b"\xff\xfe.txt", b"new\nline.txt", b"'; DROP TABLE files.txt"):
        (folder / os.fsdecode(name)).write_text("Some text.")
    for _ in range(2):
        with open_index(folder, embedder=None) as index:
            assert isinstance(index, FolderIndex)
            assert [index.get(number).location for number in range(3)] == [
                *("'; DROP TABLE files.txt:1", "new\\nline.txt:1", "\\xff\\xfe.txt:1")
            ]
            json.dumps(index.status.to_json()).encode()
    assert index.status.action == "opened"
