"""Tokens on disk: what was written comes back, across the borders of files; damaged and hostile folders are refused."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from jumok.data.batches import token_shards
from jumok.data.batches.token_shards import TokenShards, write_shards
from jumok.data.readers.lines import ProblemLog
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import DataError


@settings(max_examples=50)
@given(
    st.lists(st.lists(st.integers(0, 69_999), max_size=12), max_size=12),
    st.sampled_from([70_000, 2**32]),
    st.integers(1, 9),
    st.data(),
)
def test_what_was_written_comes_back(
    tmp_path_factory: pytest.TempPathFactory, lists: list[list[int]], vocabulary: int, shard: int, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("shards") / "tokens"
    whole = [number for numbers in lists for number in numbers]
    if not whole:
        with pytest.raises(DataError, match="no tokens"):
            write_shards(lists, folder, vocabulary)
        assert not list(folder.parent.iterdir())
        return
    made = write_shards(iter(lists), folder, vocabulary, unknown=7, shard_tokens=shard)
    assert len(made) == len(whole) and made.lists == len(lists) and made.unknown == whole.count(7)
    assert len(list(folder.glob("0*.bin"))) == -(-len(whole) // shard)
    assert [made.read_list(number).tolist() for number in range(made.lists)] == lists
    start = data.draw(st.integers(0, len(whole)))
    length = data.draw(st.integers(0, len(whole) - start))
    found = TokenShards(folder).read_tokens(start, length)
    assert found.tolist() == whole[start : start + length] and found.dtype == torch.long
    made.verify()


def test_the_files_are_plain_numbers(tmp_path: Path) -> None:
    for vocabulary, kind in ((65_536, "<u2"), (65_537, "<u4")):
        folder = tmp_path / kind[1:]
        write_shards([[1, 2, 65_535], [], [4]], folder, vocabulary, fingerprint="of mine", shard_tokens=2)
        told = json.loads((folder / "index.json").read_text())
        files = [folder / shard["file"] for shard in told["shards"]]
        assert [numpy.fromfile(file, kind).tolist() for file in files] == [[1, 2], [65_535, 4]]
        assert numpy.fromfile(folder / "ends.bin", "<u8").tolist() == [3, 3, 4]
        assert [shard["sha256"] for shard in told["shards"]] == [
            hashlib.sha256(file.read_bytes()).hexdigest() for file in files
        ]
        assert TokenShards(folder).fingerprint == "of mine" and TokenShards(folder).unknown is None


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    def broken() -> Iterator[list[int]]:
        yield [1, 2, 3]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_shards(broken(), tmp_path / "tokens", 10, shard_tokens=2)
    with pytest.raises(DataError, match="list 1 holds the id 10; the vocabulary has 0 to 9"):
        write_shards([[1], [3, 10]], tmp_path / "tokens", 10)
    with pytest.raises(DataError, match="holds the id -1"):
        write_shards([[-1]], tmp_path / "tokens", 10)
    assert not list(tmp_path.iterdir())
    write_shards([[1]], tmp_path / "tokens", 10)
    with pytest.raises(DataError, match="there already"):
        write_shards([[1]], tmp_path / "tokens", 10)
    with pytest.raises(DataError, match="cannot be written"):
        write_shards([[1]], tmp_path / "tokens" / "index.json" / "below", 10)


def test_texts_become_tokens_and_unknown_ones_are_counted(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("hello\n")
    (tmp_path / "in" / "b.txt").write_bytes(b"hold\n\xff\n")
    letters = Tokenizer.for_characters("helo\n")
    said: list[str] = []
    problems = ProblemLog(skip=True)
    made = token_shards.write_text_shards(tmp_path / "in", tmp_path / "tokens", letters, problems, said.append)
    assert letters.decode(made.read_tokens(0, len(made)).tolist()) == "hello\nhol<unk>\n"
    assert made.unknown == 1 and abs(made.unknown_rate - 1 / 11) < 1e-12 and problems.count == 1
    assert said[-1].startswith("11 tokens in 2 lists, 9.09% unknown in ")
    assert made.fingerprint == token_shards.fingerprint_tokenizer(Tokenizer.for_characters("ohel\n"))
    assert (
        made.fingerprint
        != token_shards.fingerprint_tokenizer(Tokenizer.for_characters("helo"))
        != token_shards.fingerprint_tokenizer(Tokenizer.for_bytes())
    )
    assert (
        token_shards.write_text_shards(
            tmp_path / "in" / "a.txt", tmp_path / "bytes", Tokenizer.for_bytes()
        ).unknown_rate
        == 0
    )


def test_progress_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr(token_shards.time, "monotonic", lambda: float(next(clock)))
    said: list[str] = []
    write_shards(([number] for number in range(10)), tmp_path / "tokens", 10, report=said.append)
    assert said[0].endswith(" tokens") and len(said) > 2


CHANGES: dict[str, tuple[Any, str]] = {
    "tokens": (7, "7 tokens, and 6 in the shards"),
    "vocabulary": (-1, "as a count"),
    "lists": (2**40, "ends.bin has"),
    "unknown": ("many", "as a count"),
    "kind": ("float64", "damaged"),
    "format": ("jumok tokens 99", "this version knows"),
    "shards": ([{"file": "../../secret.bin", "tokens": 6, "sha256": ""}], "the shard '../../secret.bin'"),
    "ends": (None, None),  # only read by verify
}


@pytest.mark.parametrize("key", CHANGES)
def test_a_hostile_index_is_refused(tmp_path: Path, key: str) -> None:
    write_shards([[1, 2, 3], [4, 5, 6]], tmp_path / "tokens", 10, shard_tokens=4)
    index = tmp_path / "tokens" / "index.json"
    told, (value, what) = json.loads(index.read_text()), CHANGES[key]
    index.write_text(json.dumps(told | {key: value}))
    if what is None:
        with pytest.raises(DataError, match="SHA-256 differs"):
            TokenShards(tmp_path / "tokens").verify()
        return
    with pytest.raises(DataError, match=what):
        TokenShards(tmp_path / "tokens")
    empty: dict[str, Any] = {"file": "000009.bin", "tokens": 0, "sha256": ""}
    (tmp_path / "tokens" / empty["file"]).write_bytes(b"")
    index.write_text(json.dumps(told | {"shards": [*told["shards"], empty]}))
    with pytest.raises(DataError, match=r"the shard '000009.bin' of 0 tokens"):
        TokenShards(tmp_path / "tokens")
    del told[key]
    index.write_text(json.dumps(told))
    with pytest.raises(DataError, match="index"):
        TokenShards(tmp_path / "tokens")


@pytest.mark.parametrize("data", [b"", b"[]", b"{" * 100_000, b"\xff", b'"text"', b'{"tokens": 1e400}'])
def test_an_index_that_is_none_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "index.json").write_bytes(data)
    with pytest.raises(DataError, match=r"index\.json"):
        TokenShards(tmp_path)
    with pytest.raises(DataError, match="not a folder of tokens"):
        TokenShards(tmp_path / "nowhere")


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "tokens"
    write_shards([[1, 2, 3], [4, 5, 6]], folder, 10, shard_tokens=4)
    shard, ends = folder / "000000.bin", folder / "ends.bin"
    good = shard.read_bytes()
    shard.write_bytes(good[:-1])
    with pytest.raises(DataError, match=r"000000.bin has 7 bytes instead of 8"):
        TokenShards(folder)
    shard.write_bytes(good[:-2] + b"\x0a\x00")  # the id 10, past the vocabulary
    with pytest.raises(DataError, match="it holds the id 10"):
        TokenShards(folder).read_tokens(2, 3)
    with pytest.raises(DataError, match=r"000000.bin is not what was written"):
        TokenShards(folder).verify()
    shard.unlink()
    with pytest.raises(DataError, match=r"000000.bin is missing"):
        TokenShards(folder)
    shard.write_bytes(good)
    ends.write_bytes(numpy.array([2**60, 6], "<u8").tobytes())
    with pytest.raises(DataError, match="list 0 goes from 0 to"):
        TokenShards(folder).read_list(0)
    with pytest.raises(DataError, match="list 1 goes from"):
        TokenShards(folder).read_list(1)


def test_only_what_is_there_can_be_asked_for(tmp_path: Path) -> None:
    made = write_shards([[1, 2, 3]], tmp_path / "tokens", 10)
    for start, length in ((-1, 2), (0, 4), (3, 1), (0, -1)):
        with pytest.raises(DataError, match="it has 3"):
            made.read_tokens(start, length)
    for number in (-1, 1):
        with pytest.raises(DataError, match="it has 1"):
            made.read_list(number)


MEMORY = """
import resource, sys
from jumok.data.batches.token_shards import Shards, write
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
write([[1]], sys.argv[1] + "/small", 50_000).slice(0, 1)
before = peak()
made = write(([7] * 10_000 for _ in range(1_000)), sys.argv[1] + "/large", 50_000, shard_tokens=2**22)
for start in range(0, len(made) - 1000, 1_000_000): made.slice(start, 1000)
print(len(made), peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="peak memory is asked of a Unix system")
def test_twenty_megabytes_take_no_memory(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", MEMORY, str(tmp_path)], capture_output=True, text=True, check=True)
    tokens, grown = done.stdout.split()
    assert int(tokens) == 10_000_000 and float(grown) < 10, grown
