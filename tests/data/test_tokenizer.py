"""Compare tokenizers with transformers on the same files, and refuse damaged or hostile files."""

from __future__ import annotations

import functools
import itertools
import json
import shutil
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from catalogue_cache import download_or_skip
from jumok.data.tokenizers import byte_level
from jumok.data.tokenizers.token_labels import group_words, label_tokens
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError

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
    return Tokenizer.load(download_or_skip("gpt2-tokenizer"))


@functools.cache
def read_gguf_fields() -> dict[str, Any]:
    gguf = pytest.importorskip("gguf")
    path = next(download_or_skip("smollm2").glob("*.gguf"))
    return {name: field.contents() for name, field in gguf.GGUFReader(path).fields.items() if "tokenizer" in name}


@functools.cache
def load_smollm2() -> Tokenizer:
    return Tokenizer.from_gguf(read_gguf_fields())


@functools.cache
def load_reference(name: str) -> Any:
    """Load the tokenizer of transformers from the same files."""
    import transformers

    if name == "gpt2-tokenizer":
        return transformers.GPT2TokenizerFast.from_pretrained(download_or_skip(name))
    if name == "smollm2":
        path = next(download_or_skip(name).glob("*.gguf"))
        return transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    return transformers.AutoTokenizer.from_pretrained(download_or_skip(name))


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
    ours, reference = Tokenizer.load(download_or_skip("minilm")), load_reference("minilm")
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

    shutil.copy(download_or_skip("minilm") / "vocab.txt", tmp_path)
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

    vocabulary = json.loads((download_or_skip("gpt2-tokenizer") / "vocab.json").read_bytes())
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    merges = (download_or_skip("gpt2-tokenizer") / "merges.txt").read_text(encoding="utf-8").split("\n")[1:-1]
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


SCORED = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *"abcdin▁한국 ", "\n\n"]
SCORED += ["ab", "bc", "abc", "▁a", "▁ab", "in", "▁in", "▁▁", "한국", "ca", "bca"]


def merge_by_score(text: str, prefix: bool) -> list[str]:
    """Merge the neighbours whose token has the highest score, the first of equals, as SentencePiece does."""
    pieces = list(("▁" + text if prefix else text).replace(" ", "▁"))
    while True:
        joined = [(SCORED.index(a + b), at) for at, (a, b) in enumerate(itertools.pairwise(pieces)) if a + b in SCORED]
        if not joined:
            break
        _, at = min(joined)
        pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
    letters = [[piece] if piece in SCORED else [f"<0x{byte:02X}>" for byte in piece.encode()] for piece in pieces]
    return list(itertools.chain.from_iterable(letters))


@given(st.text(alphabet="abcdin 한국é"), st.booleans())
def test_sentencepiece_tokenizer_of_gguf_merges_by_score(text: str, prefix: bool) -> None:
    fields = {
        "model": "llama", "tokens": SCORED, "scores": [-float(index) for index in range(len(SCORED))],
        "token_type": [2, 3, 3, *[6] * 256, *[1] * 10, 4, *[1] * 11], "bos_token_id": 1, "eos_token_id": 2,
        "unknown_token_id": 0, "add_space_prefix": prefix,
    }  # fmt: skip
    tokenizer = Tokenizer.from_gguf({f"tokenizer.ggml.{name}": field for name, field in fields.items()})
    ids = tokenizer.encode(text)
    assert ids[0] == tokenizer.begin == 1 and tokenizer.end == 2
    if text:
        assert [SCORED[token_id] for token_id in ids[1:]] == merge_by_score(text, prefix)
    assert tokenizer.decode(ids[1:]) == text and SCORED.index("\n\n") in tokenizer.encode("a\n\nb")


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
        shutil.copy(download_or_skip("gpt2-tokenizer") / name, tmp_path)
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
        shutil.copy(download_or_skip("gpt2-tokenizer") / name, tmp_path)
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
        "minilm": lambda: Tokenizer.load(download_or_skip("minilm")),
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


def test_ids_outside_the_vocabulary_are_shown_as_numbers() -> None:
    for tokenizer in (Tokenizer.for_characters("abc"), Tokenizer.for_bytes()):
        first, last = tokenizer.encode("ab")
        for token_id in (tokenizer.vocabulary, 49152, 10**12):
            ids = [first, token_id, token_id, last]
            assert tokenizer.id_to_token(token_id) == f"<id {token_id}>"
            assert tokenizer.id_to_bytes(token_id) is None and not tokenizer.contains_id(token_id)
            assert tokenizer.decode(ids) == f"a<id {token_id}><id {token_id}>b"
            assert label_tokens(tokenizer, ids) == ["a", f"<id {token_id}>", f"<id {token_id}>", "b"]
            words = [word for word, _ in group_words(tokenizer, ids)]
            assert words == ["a", f"<id {token_id}>", f"<id {token_id}>", "b"]


def test_negative_ids_are_refused() -> None:
    tokenizer = Tokenizer.for_characters("abc")
    for call in (tokenizer.id_to_token, tokenizer.id_to_bytes, lambda token_id: tokenizer.decode([0, token_id])):
        with pytest.raises(ArgumentError, match="a token id is at least 0, not -1"):
            call(-1)


def test_lone_surrogate_is_refused() -> None:
    for tokenizer in (Tokenizer.for_characters("abc"), Tokenizer.for_bytes()):
        with pytest.raises(ArgumentError, match="character 2 of the text is a lone surrogate"):
            tokenizer.encode("ab\ud800c")
    with pytest.raises(ArgumentError, match="lone surrogate"):
        Tokenizer.for_characters("\udfff")
    with pytest.raises(ArgumentError, match="the text is empty"):
        Tokenizer.for_characters("")


@pytest.mark.parametrize(("text", "count"), [("ab<unk>ba", 0), ("ab", 0), ("a?b", 1), ("a?<unk>?", 2)])
def test_an_end_token_that_is_the_unknown_token_is_not_unknown_text(text: str, count: int) -> None:
    from jumok.data.tokenizers.token_labels import count_unknown

    inner = Tokenizer.for_characters("ab")._inner
    inner.add_special_tokens(["<unk>"])
    tokenizer = Tokenizer(inner, {"unknown": "<unk>", "end": "<unk>"})
    assert count_unknown(tokenizer, text, tokenizer.encode(text)) == count
    assert count_unknown(Tokenizer.for_characters("ab"), "a?b?", [0, 2, 1, 2]) == 2
