"""Test the reading of tokenizer files and GGUF metadata: damaged files, special tokens and end tokens."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from catalogue_cache import download_or_skip
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.data.tokenizers.tokenizer_files import wrap_tokenizers_errors
from jumok.errors import ArgumentError, TokenizerError

BPE = {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}
BAD: dict[str, tuple[dict[str, str | bytes], str]] = {
    "empty": ({"tokenizer.json": ""}, "tokenizer.json is not JSON"),
    "list": ({"tokenizer.json": "[]"}, "tokenizer.json contains a list"),
    "empty object": ({"tokenizer.json": "{}"}, "tokenizer.json is not a tokenizer"),
    "deep nesting": ({"tokenizer.json": "[" * 100_000}, "tokenizer.json is not JSON"),
    "not UTF-8": ({"tokenizer.json": b"\xff\xfe{}"}, "tokenizer.json is not UTF-8 text: byte 0 is 0xff"),
    "merge of an unknown token": (
        {"tokenizer.json": json.dumps({"model": {**BPE, "merges": ["a c"]}})},
        "tokenizer.json is not a tokenizer: merge 0 is 'a c', but 'c' is not in the vocabulary",
    ),
    "merge into an unknown token": (
        {"tokenizer.json": json.dumps({"model": {**BPE, "merges": [["a", "b"]]}})},
        "merge 0 is ['a', 'b'], but 'ab' is not in the vocabulary",
    ),
    "merge shorter than the prefix": (
        {"tokenizer.json": json.dumps({"model": {**BPE, "continuing_subword_prefix": "##", "merges": [["a", "b"]]}})},
        "is not in the vocabulary",
    ),
    "merge of a number": (
        {"tokenizer.json": json.dumps({"model": {**BPE, "merges": [3]}})},
        "merge 0 is 3, not a pair",
    ),
    "broken settings": ({"tokenizer_config.json": "{", "vocab.txt": "[UNK]"}, "tokenizer_config.json is not JSON"),
    "merge of three tokens": (
        {"vocab.json": '{"a": 0}', "merges.txt": "#version: 0.2\na a a\n"},
        "merges.txt does not fit",
    ),
    "unknown token in merges.txt": ({"vocab.json": '{"a": 0}', "merges.txt": "a b"}, "'b' is not in the vocabulary"),
    "id is a string": ({"vocab.json": '{"a": "0"}', "merges.txt": ""}, "'0' is not a valid id for the token 'a'"),
    "negative id": ({"vocab.json": '{"a": -1}', "merges.txt": ""}, "-1 is not a valid id for the token 'a'"),
    "RoBERTa": ({"vocab.json": '{"<s>": 0, "</s>": 1}', "merges.txt": ""}, "contains a RobertaTokenizer"),
    "CLIP": (
        {"vocab.json": "{}", "merges.txt": "", "tokenizer_config.json": '{"tokenizer_class": "CLIPTokenizer"}'},
        "contains a CLIPTokenizer as vocab.json and merges.txt; in this form only GPT2Tokenizer",
    ),
    "not a BERT vocabulary": ({"vocab.txt": "a\nb\n"}, "vocab.txt is not a BERT vocabulary: it has no line [UNK]"),
    "vocabulary of another class": (
        {"vocab.txt": "[UNK]", "tokenizer_config.json": '{"tokenizer_class": "BertJapaneseTokenizer"}'},
        "belongs to a BertJapaneseTokenizer",
    ),
    "added token with a wrong id": (
        {"vocab.json": '{"a": 0}', "merges.txt": "", "added_tokens.json": '{"<x>": 7}'},
        "the id of '<x>' should be 7, but would be 1",
    ),
    "added token is a number": (
        {"vocab.json": '{"a": 0}', "merges.txt": "", "tokenizer_config.json": '{"added_tokens_decoder": {"1": 3}}'},
        "the added tokens of",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_damaged_file_is_refused_by_name(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    files, message = BAD[name]
    for file, content in files.items():
        (tmp_path / file).write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ArgumentError) as refused:
        Tokenizer.load(tmp_path)
    assert message in str(refused.value) and str(tmp_path) in str(refused.value)
    assert not isinstance(refused.value, TokenizerError)
    assert capfd.readouterr().err == ""  # a panic of the library would print to stderr


def test_folder_without_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text("{}")  # and no merges
    for folder in (tmp_path, tmp_path / "not" / "there"):
        with pytest.raises(TokenizerError, match=r"there is no tokenizer in .*; expected tokenizer.json"):
            Tokenizer.load(folder)


def test_large_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file, limit in (("tokenizer.json", 50_000_000), ("tokenizer_config.json", 10_000_000)):
        path = tmp_path / file
        with path.open("wb") as handle:
            handle.truncate(limit + 1)
        with pytest.raises(ArgumentError, match=f"{file} has {limit + 1:,} bytes; the limit for this file"):
            Tokenizer.load(tmp_path)
        path.unlink()


def test_panic_becomes_argument_error_and_interruption_passes(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BaseException, match="range") as panic:  # the library itself panics
        tokenizers.models.BPE({"a": 0, "b": 1}, [("a", "b")])
    assert not isinstance(panic.value, Exception)
    with pytest.raises(ArgumentError, match=r"the file x: .*range"), wrap_tokenizers_errors("the file x"):
        tokenizers.models.BPE({"a": 0, "b": 1}, [("a", "b")])
    for stop in (KeyboardInterrupt, SystemExit):
        with pytest.raises(stop), wrap_tokenizers_errors("the file x"):
            raise stop


def test_special_tokens_are_recognized_without_settings(tmp_path: Path) -> None:
    shutil.copy(download_or_skip("minilm") / "tokenizer.json", tmp_path)
    ours = Tokenizer.load(tmp_path)
    assert (ours.classify, ours.separator, ours.pad, ours.mask, ours.unknown) == (101, 102, 0, 103, 100)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokenizer.ggml.model": "bert"}, "of type 'bert'"),
        ({"tokenizer.ggml.model": "llama"}, "has no score for each token"),
        (
            {"tokenizer.ggml.pre": "default"},
            "unknown pre-tokenizer 'default'; choose one of gpt-2, smollm, llama-bpe, qwen2",
        ),
        ({"tokenizer.ggml.tokens": None}, "this GGUF file has no tokenizer.ggml.tokens"),
        ({"tokenizer.ggml.tokens": "abc"}, "tokenizer.ggml.tokens of this GGUF file is not a list of strings"),
        ({"tokenizer.ggml.merges": [1]}, "tokenizer.ggml.merges of this GGUF file is not a list of strings"),
        ({"tokenizer.ggml.merges": ["a b"]}, "'ab' is not in the vocabulary"),
        ({"tokenizer.ggml.tokens": ["a", "a"]}, "contains 1 duplicate tokens"),
        ({"tokenizer.ggml.bos_token_id": 2}, "the bos token is 2, but there are 2 tokens"),
        ({"tokenizer.ggml.bos_token_id": "x"}, "cannot be built"),
        ({"tokenizer.ggml.token_type": ["x"]}, "cannot be built"),
    ],
)
def test_damaged_gguf_metadata_is_refused(change: dict[str, Any], message: str) -> None:
    fields = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": ["a", "b"],
        "tokenizer.ggml.merges": [],
    }
    assert Tokenizer.from_gguf(fields).encode("ab") == [0, 1]
    with_begin = Tokenizer.from_gguf({**fields, "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.add_bos_token": True})
    assert (
        with_begin.encode("ab") == [1, 0, 1] and with_begin.encode("a", special=False) == [0] and with_begin.begin == 1
    )
    with pytest.raises(ArgumentError) as refused:
        Tokenizer.from_gguf({**fields, **change})
    assert message in str(refused.value)
    with pytest.raises(TokenizerError, match="this GGUF file contains no tokenizer"):
        Tokenizer.from_gguf({})


# end tokens


@pytest.mark.parametrize(
    ("generation", "config", "ends"),
    [
        (None, None, (0,)),
        (None, {"eos_token_id": 2}, (0, 2)),
        (None, {"eos_token_id": [1, 0, 2]}, (0, 1, 2)),
        (
            {"eos_token_id": [2, 2]},
            {"eos_token_id": 1},
            (0, 2),
        ),  # like transformers: generation_config.json takes precedence
        ({"eos_token_id": None, "top_k": 5}, {"eos_token_id": 1}, (0, 1)),
        ({"eos_token_id": []}, {}, (0,)),
    ],
)
def test_end_tokens_come_from_the_model_files(
    generation: Any, config: Any, ends: tuple[int, ...], tmp_path: Path
) -> None:
    Tokenizer(Tokenizer.for_characters("abcd")._inner, {"end": "a"}).save(tmp_path)
    assert not (tmp_path / "generation_config.json").exists()
    for name, settings in (("generation_config.json", generation), ("config.json", config)):
        if settings is not None:
            (tmp_path / name).write_text(json.dumps(settings))
    ours = Tokenizer.load(tmp_path)
    assert (ours.end, ours.ends) == (0, ends)
    saved = ours.save(tmp_path / "again")
    assert Tokenizer.load(saved).ends == ends


def test_transformers_reads_saved_end_tokens(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text('{"top_k": 7, "eos_token_id": 3}')
    Tokenizer(Tokenizer.for_characters("abcd")._inner, {"end": "a"}, ends=[2, 1]).save(tmp_path)
    import transformers

    generation_config = transformers.GenerationConfig.from_pretrained(tmp_path)
    assert (generation_config.eos_token_id, generation_config.top_k) == ([0, 2, 1], 7)
    assert Tokenizer.for_characters("abcd").ends == ()


@pytest.mark.parametrize(
    "wrong", ["x", [0, "x"], -1, 2**31, 1.5, True, {"0": 1}, [[1]], list(range(101)), float("nan")]
)
def test_invalid_end_tokens_are_refused(wrong: object, tmp_path: Path) -> None:
    Tokenizer.for_characters("abcd").save(tmp_path)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": wrong}))
    with pytest.raises(ArgumentError, match=r"is not a valid id for an end token|101 end tokens; the limit is 100"):
        Tokenizer.load(tmp_path)


def test_gguf_end_of_turn_token_is_an_end_token() -> None:
    fields = {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": ["a", "b", "c", "d"],
        "tokenizer.ggml.merges": [], "tokenizer.ggml.eos_token_id": 1, "tokenizer.ggml.eot_token_id": 3,
        "tokenizer.ggml.eom_token_id": 1,
    }  # fmt: skip
    assert Tokenizer.from_gguf(fields).ends == (1, 3)
    with pytest.raises(ArgumentError, match="the eot token is 4, but there are 4 tokens"):
        Tokenizer.from_gguf({**fields, "tokenizer.ggml.eot_token_id": 4})


def test_a_loaded_tokenizer_writes_the_same_files(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(["a text"], 270, {"pad": "<pad>", "mask": "<mask>", "end": "</s>", "begin": "<s>"})
    tokenizer.save(tmp_path / "first")
    Tokenizer.load(tmp_path / "first").save(tmp_path / "second")
    for path in (tmp_path / "first").iterdir():
        assert path.read_bytes() == (tmp_path / "second" / path.name).read_bytes(), path.name
