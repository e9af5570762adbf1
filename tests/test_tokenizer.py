"""Compare tokenizers with transformers on the same files, and refuse damaged or hostile files."""

from __future__ import annotations

import functools
import json
import shutil
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from fetched import fetched
from jumok.data.tokenizers import byte_level, chat_template
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.data.tokenizers.tokenizer_parts import wrap_tokenizers_errors
from jumok.errors import ArgumentError, TokenizerError

TEXTS = [
    "Hello world",
    " leading and trailing ",
    "It's what we'll've DONE, they'd say; I'M sure",
    "나는 오늘 학교에 갔다. 주목하라!",
    "한글과 English가 섞인 문장, 2024년 12월 25일",
    "👩‍👩‍👧‍👦 🇰🇷 ☕️ 😀😀",
    "def f(x):\n    return x ** 2  # 제곱\n\n\tif True:\n",
    "3.14159 1,000,000 007 ½ ² Ⅷ 12345678 x86_64",
    "\n\n\n   \r\n\t\t  \n",
    "<|endoftext|>Once<|im_start|>user\nHi<|im_end|>\n<|im_start|>",
    "naïve café — “quotes” … ﬁ ＡＢＣ",
    "日本語と中文 العربية עברית हिन्दी",
    "\u1100\u1161\u11a8 decomposed 각",
    "a" * 300,
    "",
]
same_worker = pytest.mark.xdist_group("smollm2")  # its files take seconds to read

CHAT = [
    {"role": "system", "content": "You are terse."},
    {"role": "user", "content": "주목이 무슨 뜻이야? <b>&"},
    {"role": "assistant", "content": "Attention."},
    {"role": "user", "content": "Thanks\n"},
]


MASK = {"__type": "AddedToken", "content": "[MASK]", "lstrip": False, "normalized": False, "special": True}


@functools.cache
def load_gpt2() -> Tokenizer:
    return Tokenizer.load(fetched("gpt2-tokenizer"))


@functools.cache
def read_gguf_fields() -> dict[str, Any]:
    gguf = pytest.importorskip("gguf")
    path = next(fetched("smollm2").glob("*.gguf"))
    return {name: field.contents() for name, field in gguf.GGUFReader(path).fields.items() if "tokenizer" in name}


@functools.cache
def load_smollm2() -> Tokenizer:
    return Tokenizer.from_gguf(read_gguf_fields())


@functools.cache
def load_reference(name: str) -> Any:
    """Load the tokenizer of transformers from the same files."""
    import transformers

    if name == "gpt2-tokenizer":
        return transformers.GPT2TokenizerFast.from_pretrained(fetched(name))
    if name == "smollm2":
        path = next(fetched(name).glob("*.gguf"))
        return transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    return transformers.AutoTokenizer.from_pretrained(fetched(name))


def assert_same_encoding(ours: Tokenizer, reference: Any, texts: list[str] = TEXTS) -> None:
    for text in texts:
        ids = reference(text).input_ids
        assert ours.encode(text) == ids, text
        assert ours.encode(text, special=False) == reference(text, add_special_tokens=False).input_ids, text
        assert ours.decode(ids) == reference.decode(ids, clean_up_tokenization_spaces=False), text
        without_special = reference.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert ours.decode(ids, special=False) == without_special, text
        assert [ours.id_to_token(token_id) for token_id in ids] == reference.convert_ids_to_tokens(ids)


def assert_same_special_tokens(ours: Tokenizer, reference: Any) -> None:
    actual = (ours.begin, ours.end, ours.pad, ours.mask, ours.unknown, ours.separator, ours.classify)
    names = ("bos", "eos", "pad", "mask", "unk", "sep", "cls")
    assert actual == tuple(getattr(reference, f"{name}_token_id") for name in names)


# comparison with transformers


def test_gpt2_agrees_with_transformers() -> None:
    assert load_gpt2().encode("Hello world") == [15496, 995]
    assert (
        load_gpt2().vocabulary == 50_257
        and load_gpt2().id_to_token(995) == "Ġworld"
        and load_gpt2().id_to_bytes(995) == b" world"
    )
    assert load_gpt2().begin == load_gpt2().end == 50_256 and load_gpt2().pad is None
    assert_same_encoding(load_gpt2(), load_reference("gpt2-tokenizer"))
    assert_same_special_tokens(load_gpt2(), load_reference("gpt2-tokenizer"))


def test_minilm_agrees_with_transformers() -> None:
    ours, reference = Tokenizer.load(fetched("minilm")), load_reference("minilm")
    # its tokenizer.json pads every text to 128 tokens, which ours must ignore
    assert ours.encode("Hello world") == [101, 7592, 2088, 102]
    assert ours.vocabulary == 30_522 and ours.id_to_bytes(7592) is None
    assert_same_encoding(ours, reference)
    assert_same_special_tokens(ours, reference)
    long = "word " * 1000
    assert len(ours.encode(long)) == 1002


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"do_lower_case": True},
        {"do_lower_case": False},
        {"do_lower_case": True, "strip_accents": False, "tokenize_chinese_chars": False},
        {"tokenizer_class": "BertTokenizerFast", "mask_token": MASK},
    ],
)
def test_bert_vocabulary_without_tokenizer_json(settings: dict[str, Any], tmp_path: Path) -> None:
    from transformers import BertTokenizerFast

    shutil.copy(fetched("minilm") / "vocab.txt", tmp_path)
    if settings:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    options = {name: option for name, option in settings.items() if name not in ("mask_token", "tokenizer_class")}
    reference = BertTokenizerFast.from_pretrained(tmp_path, **options)
    ours = Tokenizer.load(tmp_path)
    assert_same_encoding(ours, reference, [*TEXTS, "a [MASK] b [SEP] c"])
    assert_same_special_tokens(ours, reference)


@same_worker
def test_smollm2_agrees_with_transformers() -> None:
    ours, reference = load_smollm2(), load_reference("smollm2")
    assert ours.vocabulary == 49_152 == len(reference)
    assert_same_encoding(ours, reference, [text for text in TEXTS if "½" not in text])
    assert_same_special_tokens(ours, reference)
    assert ours.encode("<|im_start|>") == [1] == [ours.begin] and ours.end == 2
    assert [ours.id_to_token(token_id) for token_id in ours.encode("x 2024")] == ["x", "Ġ", "2", "0", "2", "4"]
    for reply in (True, False):
        expected = reference.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=reply)
        assert ours.apply_chat_template(CHAT, reply=reply) == expected
    assert ours.apply_chat_template(CHAT[1:2]).startswith("<|im_start|>system\nYou are a helpful AI assistant")


def split_digits_first(inner: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Split digits first, as SmolLM's own tokenizer and llama.cpp do; transformers does not for GGUF files."""
    tokenizer = tokenizers.Tokenizer.from_str(inner.to_str())
    digits = tokenizers.pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([digits, tokenizer.pre_tokenizer])
    return tokenizer


@functools.cache
def load_smollm2_reference() -> tokenizers.Tokenizer:
    return split_digits_first(load_reference("smollm2").backend_tokenizer)


@same_worker
@given(st.text() | st.sampled_from(TEXTS) | st.text(alphabet="ab 12½\n'!가😀"))
def test_smollm2_encodes_any_text_like_the_reference(text: str) -> None:
    ids = load_smollm2().encode(text)
    assert ids == load_smollm2_reference().encode(text).ids
    if not any(unicodedata.category(letter).startswith("N") for letter in text):
        assert ids == load_reference("smollm2")(text).input_ids


@pytest.mark.parametrize("pre_tokenizer", byte_level.PRE_TOKENIZERS)
def test_pre_tokenizer_agrees_with_transformers(pre_tokenizer: str) -> None:
    """Combine GPT-2's merges with each pre-tokenizer; compare with transformers' conversion of such a GGUF file."""
    from transformers.integrations.gguf import gguf_tokenizer_mapping

    vocabulary = json.loads((fetched("gpt2-tokenizer") / "vocab.json").read_bytes())
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    merges = (fetched("gpt2-tokenizer") / "merges.txt").read_text(encoding="utf-8").split("\n")[1:-1]
    token_types = [3 if token == "<|endoftext|>" else 4 if token == "Ġattention" else 1 for token in tokens]
    fields = {
        "model": "gpt2",
        "pre": pre_tokenizer,
        "tokens": tokens,
        "merges": merges,
        "token_type": token_types,
        "eos_token_id": 50256,
    }
    ours = Tokenizer.from_gguf({f"tokenizer.ggml.{name}": field for name, field in fields.items()})
    reference_fields = {
        "tokenizer_type": "gpt2",
        "pre_tokenizer_type": pre_tokenizer,
        "tokens": tokens,
        "merges": merges,
    }
    reference, _ = gguf_tokenizer_mapping.convert_gguf_tokenizer(
        "llama", {**reference_fields, "token_type": token_types}
    )
    if pre_tokenizer == "smollm":
        reference = split_digits_first(reference)
    if pre_tokenizer == "qwen2":  # the conversion lacks the NFC of transformers' Qwen2Tokenizer
        reference.normalizer = tokenizers.normalizers.NFC()
    if pre_tokenizer != "llama-bpe":  # the conversion does not set ignore_merges
        for text in TEXTS:
            assert ours.encode(text) == reference.encode(text).ids, text
    for text in TEXTS:
        expected = [piece for piece, _ in reference.pre_tokenizer.pre_tokenize_str(text)]
        assert [piece for piece, _ in ours._inner.pre_tokenizer.pre_tokenize_str(text)] == expected
    assert ours.end == 50_256 and ours.begin is None
    assert ours.encode("Ġattention") == [vocabulary["Ġattention"]]  # a user's token is never split


def test_pre_tokenizers_split_known_texts() -> None:
    def split(name: str, text: str) -> list[str]:
        tokenizer = byte_level.build_byte_level_tokenizer(byte_level.LETTER_TO_BYTE, [], name)
        return [
            byte_level.token_to_bytes(piece).decode() for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)
        ]

    assert split("gpt-2", "I'm 12345!\n\nx") == ["I", "'m", " 12345", "!", "\n", "\n", "x"]
    assert split("smollm", "I'm 123") == ["I", "'m", " ", "1", "2", "3"]
    assert split("llama-bpe", "I'M 12345!\n\nx") == ["I", "'M", " ", "123", "45", "!\n\n", "x"]
    assert split("qwen2", "I'M 123!\n\nx") == ["I", "'M", " ", "1", "2", "3", "!\n\n", "x"]


def test_qwen2_files_agree_with_transformers(tmp_path: Path) -> None:
    from transformers import Qwen2TokenizerFast

    for name in ("vocab.json", "merges.txt"):
        shutil.copy(fetched("gpt2-tokenizer") / name, tmp_path)
    added = {"content": "<|im_end|>", "special": True, "normalized": False}
    settings = {
        "tokenizer_class": "Qwen2Tokenizer",
        "added_tokens_decoder": {"50257": added},
        "eos_token": "<|im_end|>",
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    ours, reference = Tokenizer.load(tmp_path), Qwen2TokenizerFast.from_pretrained(tmp_path)
    assert_same_encoding(ours, reference)
    assert ours.end == 50_257 == reference.eos_token_id and ours.begin is None


@pytest.mark.parametrize("settings", [{"add_prefix_space": True}, {"add_bos_token": True}])
def test_gpt2_settings_change_the_encoding(settings: dict[str, Any], tmp_path: Path) -> None:
    for name in ("vocab.json", "merges.txt"):
        shutil.copy(fetched("gpt2-tokenizer") / name, tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    ours = Tokenizer.load(tmp_path)
    expected = [18435, 995] if "add_prefix_space" in settings else [50256, 15496, 995]  # " Hello world" in their docs
    assert ours.encode("Hello world") == expected


# round trips


@given(st.text())
def test_byte_tokenizer_round_trip(text: str) -> None:
    tokenizer = Tokenizer.for_bytes()
    ids = tokenizer.encode(text)
    assert ids == list(text.encode()) and tokenizer.decode(ids) == text and tokenizer.vocabulary == 256
    assert b"".join(tokenizer.id_to_bytes(token_id) or b"" for token_id in ids) == text.encode()


@given(st.text() | st.sampled_from(TEXTS) | st.text(alphabet=st.characters(min_codepoint=0xAC00, max_codepoint=0xD7A3)))
def test_gpt2_round_trip(text: str) -> None:
    ids = load_gpt2().encode(text)
    assert load_gpt2().decode(ids) == text
    assert b"".join(load_gpt2().id_to_bytes(token_id) or b"" for token_id in ids) == text.encode()


@given(st.lists(st.integers(0, 255)))
def test_invalid_utf8_decodes_with_replacement_characters(ids: list[int]) -> None:
    """A model can generate bytes that are not UTF-8."""
    assert Tokenizer.for_bytes().decode(ids) == bytes(ids).decode(errors="replace")


@given(st.lists(st.integers(0, 50_256)))
def test_gpt2_decodes_any_ids(ids: list[int]) -> None:
    content = b"".join(load_gpt2().id_to_bytes(token_id) or b"" for token_id in ids)
    assert load_gpt2().decode(ids) == content.decode(errors="replace")


@given(st.text(min_size=1), st.text())
def test_character_tokenizer(text: str, other: str) -> None:
    tokenizer = Tokenizer.for_characters(text)
    letters = sorted(set(text))
    assert tokenizer.vocabulary == len(letters) + 1 and tokenizer.unknown == len(letters)
    assert [tokenizer.id_to_token(token_id) for token_id in range(len(letters))] == letters
    assert tokenizer.encode(text) == [letters.index(letter) for letter in text]
    assert tokenizer.decode(tokenizer.encode(text)) == text
    expected = [letters.index(letter) if letter in letters else tokenizer.unknown for letter in other]
    assert tokenizer.encode(other) == expected
    assert b"".join(tokenizer.id_to_bytes(token_id) or b"" for token_id in tokenizer.encode(text)) == text.encode()


@pytest.mark.parametrize("name", ["characters", "bytes", "gpt2", "minilm", pytest.param("smollm2", marks=same_worker)])
def test_saved_tokenizer_is_the_same_for_jumok_and_transformers(name: str, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    ours = {
        "characters": lambda: Tokenizer.for_characters("".join(TEXTS)),
        "bytes": Tokenizer.for_bytes,
        "gpt2": load_gpt2,
        "minilm": lambda: Tokenizer.load(fetched("minilm")),
        "smollm2": load_smollm2,
    }[name]()
    (tmp_path / "chat_template.jinja").write_text("template of another tokenizer")
    assert ours.save(tmp_path / "deep" / "er") == tmp_path / "deep" / "er"
    ours.save(tmp_path)
    for copy in (Tokenizer.load(tmp_path), Tokenizer.load(str(tmp_path / "deep" / "er"))):
        assert copy.chat_template == ours.chat_template and copy.vocabulary == ours.vocabulary
        for role in ("begin", "end", "pad", "mask", "unknown", "separator", "classify"):
            assert getattr(copy, role) == getattr(ours, role)
        assert [copy.encode(text) for text in TEXTS] == [ours.encode(text) for text in TEXTS]
        assert [copy.id_to_bytes(token_id) for token_id in range(20)] == [
            ours.id_to_bytes(token_id) for token_id in range(20)
        ]
    assert_same_encoding(ours, AutoTokenizer.from_pretrained(tmp_path))
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_sentencepiece_byte_fallback() -> None:
    vocabulary = {"▁": 0, "<0xEA>": 1, "<0xB0>": 2, "<0x80>": 3, "a": 4}
    inner = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, [], byte_fallback=True))
    inner.decoder = tokenizers.decoders.Sequence([tokenizers.decoders.ByteFallback(), tokenizers.decoders.Fuse()])
    ours = Tokenizer(inner)
    assert ours.encode("a가") == [4, 1, 2, 3] and ours.decode([4, 1, 2, 3]) == "a가"
    assert [ours.id_to_bytes(token_id) for token_id in (4, 1, 2)] == [None, b"\xea", b"\xb0"]


# errors


def test_unknown_ids_are_refused() -> None:
    tokenizer = Tokenizer.for_characters("abc")
    for token_id in (-1, 4, 10**12):
        for call in (tokenizer.id_to_token, tokenizer.id_to_bytes, lambda token_id: tokenizer.decode([0, token_id])):
            with pytest.raises(ArgumentError, match=f"unknown token id {token_id}; ids range from 0 to 3"):
                call(token_id)


def test_lone_surrogate_is_refused() -> None:
    for tokenizer in (Tokenizer.for_characters("abc"), Tokenizer.for_bytes()):
        with pytest.raises(ArgumentError, match="character 2 of the text is a lone surrogate"):
            tokenizer.encode("ab\ud800c")
    with pytest.raises(ArgumentError, match="lone surrogate"):
        Tokenizer.for_characters("\udfff")
    with pytest.raises(ArgumentError, match="the text is empty"):
        Tokenizer.for_characters("")


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
    "id is a string": ({"vocab.json": '{"a": "0"}', "merges.txt": ""}, "'0' is not a valid id of the token 'a'"),
    "negative id": ({"vocab.json": '{"a": -1}', "merges.txt": ""}, "-1 is not a valid id of the token 'a'"),
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
        with pytest.raises(ArgumentError, match=f"{file} is larger than {limit // 1_000_000} MB"):
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
    shutil.copy(fetched("minilm") / "tokenizer.json", tmp_path)
    ours = Tokenizer.load(tmp_path)
    assert (ours.classify, ours.separator, ours.pad, ours.mask, ours.unknown) == (101, 102, 0, 103, 100)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokenizer.ggml.model": "llama"}, "of the type 'llama'"),
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
    with pytest.raises(ArgumentError, match=r"is not a valid id of an end token|101 end tokens; the limit is 100"):
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


# conversations


def build_with_template(template: str | None) -> Tokenizer:
    return Tokenizer(Tokenizer.for_characters("abc<>/sunk")._inner, {"unknown": "<unk>", "end": "a"}, template)


def test_template_features() -> None:
    messages = [{"role": "user", "content": "Hi"}]
    assert (
        build_with_template("{{ messages[0].content }}{{ eos_token }}{{ bos_token }}").apply_chat_template(messages)
        == "Hia"
    )
    assert build_with_template("{% if tools is not none %}x{% endif %}y").apply_chat_template(messages) == "y"
    assert build_with_template("{{ messages | tojson }}").apply_chat_template([{"role": "u", "content": "<가>"}]) == (
        '[{"role": "u", "content": "<가>"}]'
    )
    assert build_with_template("{% generation %}{{ 1 }}{% endgeneration %}").apply_chat_template(messages) == "1"
    assert build_with_template("{% for m in messages %}{% break %}{% endfor %}z").apply_chat_template(messages) == "z"
    assert len(build_with_template("{{ strftime_now('%Y') }}").apply_chat_template(messages)) == 4


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (None, "no chat template"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ messages[0].update({'a': 1}) }}", "unsafe"),
        ("{% for i in range(10000000) %}a{% endfor %}", "Range too big"),
        ("{% for i in range(9999) %}{% for j in range(9999) %}{{ i }}{% endfor %}{% endfor %}", "more than 1,000 "),
        ("{% if %}", "refuses this conversation"),
        ("{{ raise_exception('roles must take turns') }}", "refuses this conversation: roles must take turns"),
        ("{{ 1 / 0 }}", "fails with ZeroDivisionError"),
        ("{% include 'secrets' %}", "the chat template"),
    ],
)
def test_failing_or_hostile_templates(template: str | None, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "MAX_CHARACTERS", 1000)
    with pytest.raises(ArgumentError) as refused:
        build_with_template(template).apply_chat_template([{"role": "user", "content": "Hi"}])
    assert message in str(refused.value)


def test_messages_need_a_role_and_a_content() -> None:
    with pytest.raises(ArgumentError, match="message 1 needs the keys role and content; it has role"):
        build_with_template("x").apply_chat_template([{"role": "user", "content": "Hi"}, {"role": "user"}])


def test_template_is_read_from_files(tmp_path: Path) -> None:
    shutil.copy(fetched("minilm") / "vocab.txt", tmp_path)
    templates = [{"name": "tool", "template": "t"}, {"name": "default", "template": "d"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": templates}))
    assert Tokenizer.load(tmp_path).chat_template == "d"
    (tmp_path / "chat_template.jinja").write_text("own file")
    assert Tokenizer.load(tmp_path).chat_template == "own file"


def test_missing_jinja_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(
        ArgumentError, match=r"chat templates need jinja2; install it with: pip install 'jumok\[chat\]'"
    ):
        chat_template.render_chat("x", [], {})
