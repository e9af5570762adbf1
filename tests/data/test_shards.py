"""Test token shards: round trips across the borders of files; damaged and hostile folders are refused."""

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

from jumok.data import token_shards
from jumok.data.readers.lines import ProblemLog
from jumok.data.token_shards import TokenShards, write_shards
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import DataError


@settings(max_examples=50)
@given(
    st.lists(st.lists(st.integers(0, 69_999), max_size=12), max_size=12),
    st.sampled_from([70_000, 2**32]),
    st.integers(1, 9),
    st.data(),
)
def test_lists_and_ranges_round_trip(
    tmp_path_factory: pytest.TempPathFactory,
    lists: list[list[int]],
    vocabulary: int,
    shard_tokens: int,
    draws: st.DataObject,
) -> None:
    folder = tmp_path_factory.mktemp("shards") / "tokens"
    tokens = [token for token_ids in lists for token in token_ids]
    if not tokens:
        with pytest.raises(DataError, match="no tokens"):
            write_shards(lists, folder, vocabulary)
        assert not list(folder.parent.iterdir())
        return
    shards = write_shards(iter(lists), folder, vocabulary, unknown=7, shard_tokens=shard_tokens)
    assert len(shards) == len(tokens) and shards.lists == len(lists) and shards.unknown == tokens.count(7)
    assert len(list(folder.glob("0*.bin"))) == -(-len(tokens) // shard_tokens)
    assert [shards.read_list(index).tolist() for index in range(shards.lists)] == lists
    start = draws.draw(st.integers(0, len(tokens)))
    length = draws.draw(st.integers(0, len(tokens) - start))
    token_range = TokenShards(folder).read_tokens(start, length)
    assert token_range.tolist() == tokens[start : start + length] and token_range.dtype == torch.long
    shards.verify()


def test_files_are_plain_integers(tmp_path: Path) -> None:
    for vocabulary, number_type in ((65_536, "<u2"), (65_537, "<u4")):
        folder = tmp_path / number_type[1:]
        write_shards([[1, 2, 65_535], [], [4]], folder, vocabulary, fingerprint="mine", shard_tokens=2)
        index = json.loads((folder / "index.json").read_text())
        files = [folder / shard["file"] for shard in index["shards"]]
        assert [numpy.fromfile(file, number_type).tolist() for file in files] == [[1, 2], [65_535, 4]]
        assert numpy.fromfile(folder / "ends.bin", "<u8").tolist() == [3, 3, 4]
        assert [shard["sha256"] for shard in index["shards"]] == [
            hashlib.sha256(file.read_bytes()).hexdigest() for file in files
        ]
        assert TokenShards(folder).fingerprint == "mine" and TokenShards(folder).unknown is None


def test_folder_appears_complete_or_not_at_all(tmp_path: Path) -> None:
    def broken() -> Iterator[list[int]]:
        yield [1, 2, 3]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_shards(broken(), tmp_path / "tokens", 10, shard_tokens=2)
    with pytest.raises(DataError, match="list 1 contains the token id 10; ids range from 0 to 9"):
        write_shards([[1], [3, 10]], tmp_path / "tokens", 10)
    with pytest.raises(DataError, match="contains the token id -1"):
        write_shards([[-1]], tmp_path / "tokens", 10)
    assert not list(tmp_path.iterdir())
    write_shards([[1]], tmp_path / "tokens", 10)
    with pytest.raises(DataError, match="already exists"):
        write_shards([[1]], tmp_path / "tokens", 10)
    with pytest.raises(DataError, match="cannot be written"):
        write_shards([[1]], tmp_path / "tokens" / "index.json" / "below", 10)


def test_texts_are_encoded_and_unknown_tokens_counted(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("hello\n")
    (tmp_path / "in" / "b.txt").write_bytes(b"hold\n\xff\n")
    tokenizer = Tokenizer.for_characters("helo\n")
    reported: list[str] = []
    problems = ProblemLog(skip=True)
    shards = token_shards.write_text_shards(tmp_path / "in", tmp_path / "tokens", tokenizer, problems, reported.append)
    assert tokenizer.decode(shards.read_tokens(0, len(shards)).tolist()) == "hello\nhol<unk>\n"
    assert shards.unknown == 1 and abs(shards.unknown_rate - 1 / 11) < 1e-12 and problems.count == 1
    assert reported[-1].startswith("11 tokens in 2 sequences, 9.09% unknown in ")
    assert shards.fingerprint == token_shards.fingerprint_tokenizer(Tokenizer.for_characters("ohel\n"))
    assert (
        shards.fingerprint
        != token_shards.fingerprint_tokenizer(Tokenizer.for_characters("helo"))
        != token_shards.fingerprint_tokenizer(Tokenizer.for_bytes())
    )
    assert (
        token_shards.write_text_shards(
            tmp_path / "in" / "a.txt", tmp_path / "bytes", Tokenizer.for_bytes()
        ).unknown_rate
        == 0
    )


def test_progress_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr(token_shards.time, "monotonic", lambda: float(next(clock)))
    reported: list[str] = []
    write_shards(([token] for token in range(10)), tmp_path / "tokens", 10, report=reported.append)
    assert reported[0].endswith(" tokens") and len(reported) > 2


CHANGES: dict[str, tuple[Any, str]] = {
    "tokens": (7, "7 tokens in total, but 6 in the shards"),
    "vocabulary": (-1, "Expected `int` >= 0 .*vocabulary"),
    "lists": (2**40, "ends.bin has"),
    "unknown": ("many", "Expected `int | null`.*unknown"),
    "kind": ("float64", "damaged"),
    "format": ("jumok tokens 99", "the supported format"),
    "shards": ([{"file": "../../secret.bin", "tokens": 6, "sha256": ""}], "shard '../../secret.bin'"),
    "ends": ("0" * 64, None),  # checked only by verify
}


@pytest.mark.parametrize("key", CHANGES)
def test_hostile_index_is_refused(tmp_path: Path, key: str) -> None:
    write_shards([[1, 2, 3], [4, 5, 6]], tmp_path / "tokens", 10, shard_tokens=4)
    path = tmp_path / "tokens" / "index.json"
    index = json.loads(path.read_text())
    entry, message = CHANGES[key]
    path.write_text(json.dumps(index | {key: entry}))
    if message is None:
        with pytest.raises(DataError, match="does not have the SHA-256"):
            TokenShards(tmp_path / "tokens").verify()
        return
    with pytest.raises(DataError, match=message):
        TokenShards(tmp_path / "tokens")
    empty: dict[str, Any] = {"file": "000009.bin", "tokens": 0, "sha256": ""}
    (tmp_path / "tokens" / empty["file"]).write_bytes(b"")
    path.write_text(json.dumps(index | {"shards": [*index["shards"], empty]}))
    with pytest.raises(DataError, match=r"shard '000009.bin' with 0 tokens"):
        TokenShards(tmp_path / "tokens")
    del index[key]
    path.write_text(json.dumps(index))
    with pytest.raises(DataError, match="index"):
        TokenShards(tmp_path / "tokens")


@pytest.mark.parametrize("content", [b"", b"[]", b"{" * 100_000, b"\xff", b'"text"', b'{"tokens": 1e400}'])
def test_invalid_index_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "index.json").write_bytes(content)
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
    with pytest.raises(DataError, match="it contains the token id 10"):
        TokenShards(folder).read_tokens(2, 3)
    with pytest.raises(DataError, match=r"000000.bin does not have the SHA-256"):
        TokenShards(folder).verify()
    shard.unlink()
    with pytest.raises(DataError, match=r"000000.bin is missing"):
        TokenShards(folder)
    shard.write_bytes(good)
    ends.write_bytes(numpy.array([2**60, 6], "<u8").tobytes())
    with pytest.raises(DataError, match="list 0 ranges from 0 to"):
        TokenShards(folder).read_list(0)
    with pytest.raises(DataError, match="list 1 ranges from"):
        TokenShards(folder).read_list(1)


def test_out_of_range_requests_are_refused(tmp_path: Path) -> None:
    shards = write_shards([[1, 2, 3]], tmp_path / "tokens", 10)
    for start, length in ((-1, 2), (0, 4), (3, 1), (0, -1)):
        with pytest.raises(DataError, match="has 3"):
            shards.read_tokens(start, length)
    for index in (-1, 1):
        with pytest.raises(DataError, match="has 1"):
            shards.read_list(index)


MEMORY = """
import resource, sys
from jumok.data.token_shards import write_shards
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
write_shards([[1]], sys.argv[1] + "/small", 50_000).read_tokens(0, 1)
before = peak()
shards = write_shards(([7] * 10_000 for _ in range(1_000)), sys.argv[1] + "/large", 50_000, shard_tokens=2**22)
for start in range(0, len(shards) - 1000, 1_000_000): shards.read_tokens(start, 1000)
print(len(shards), peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="peak memory needs a Unix system")
def test_memory_does_not_grow_with_the_tokens(tmp_path: Path) -> None:
    process = subprocess.run([sys.executable, "-c", MEMORY, str(tmp_path)], capture_output=True, text=True, check=True)
    tokens, growth = process.stdout.split()
    assert int(tokens) == 10_000_000 and float(growth) < 10, growth
