"""Tokenizers, held to transformers' own on the same files; and the files that should not be trusted."""

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
from jumok.data.tokenizers.tokenizer_files import wrap_tokenizers_errors
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
together = pytest.mark.xdist_group("smollm2")  # on one worker: its files take seconds to read

CHAT = [
    {"role": "system", "content": "You are terse."},
    {"role": "user", "content": "주목이 무슨 뜻이야? <b>&"},
    {"role": "assistant", "content": "Attention."},
    {"role": "user", "content": "Thanks\n"},
]


MASK = {"__type": "AddedToken", "content": "[MASK]", "lstrip": False, "normalized": False, "special": True}


@functools.cache
def gpt2() -> Tokenizer:
    return Tokenizer.load(fetched("gpt2-tokenizer"))


@functools.cache
def gguf_fields() -> dict[str, Any]:
    gguf = pytest.importorskip("gguf")
    path = next(fetched("smollm2").glob("*.gguf"))
    return {name: field.contents() for name, field in gguf.GGUFReader(path).fields.items() if "tokenizer" in name}


@functools.cache
def smollm2() -> Tokenizer:
    return Tokenizer.from_gguf(gguf_fields())


@functools.cache
def theirs(name: str) -> Any:
    """transformers' tokenizer on the same files."""
    import transformers

    if name == "gpt2-tokenizer":
        return transformers.GPT2TokenizerFast.from_pretrained(fetched(name))
    if name == "smollm2":
        path = next(fetched(name).glob("*.gguf"))
        return transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    return transformers.AutoTokenizer.from_pretrained(fetched(name))


def agree(ours: Tokenizer, other: Any, texts: list[str] = TEXTS) -> None:
    for text in texts:
        ids = other(text).input_ids
        assert ours.encode(text) == ids, text
        assert ours.encode(text, special=False) == other(text, add_special_tokens=False).input_ids, text
        assert ours.decode(ids) == other.decode(ids, clean_up_tokenization_spaces=False), text
        hidden = other.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert ours.decode(ids, special=False) == hidden, text
        assert [ours.id_to_token(number) for number in ids] == other.convert_ids_to_tokens(ids)


def agree_on_special(ours: Tokenizer, other: Any) -> None:
    found = (ours.begin, ours.end, ours.pad, ours.mask, ours.unknown, ours.separator, ours.classify)
    names = ("bos", "eos", "pad", "mask", "unk", "sep", "cls")
    assert found == tuple(getattr(other, f"{name}_token_id") for name in names)


# held to transformers


def test_gpt2() -> None:
    assert gpt2().encode("Hello world") == [15496, 995]
    assert gpt2().vocabulary == 50_257 and gpt2().id_to_token(995) == "Ġworld" and gpt2().bytes_of(995) == b" world"
    assert gpt2().begin == gpt2().end == 50_256 and gpt2().pad is None
    agree(gpt2(), theirs("gpt2-tokenizer"))
    agree_on_special(gpt2(), theirs("gpt2-tokenizer"))


def test_minilm() -> None:
    ours, other = Tokenizer.load(fetched("minilm")), theirs("minilm")
    # its tokenizer.json asks for 128 tokens, always: ours must not give them
    assert ours.encode("Hello world") == [101, 7592, 2088, 102]
    assert ours.vocabulary == 30_522 and ours.bytes_of(7592) is None
    agree(ours, other)
    agree_on_special(ours, other)
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
def test_a_bert_vocabulary_alone(settings: dict[str, Any], tmp_path: Path) -> None:
    from transformers import BertTokenizerFast

    shutil.copy(fetched("minilm") / "vocab.txt", tmp_path)
    if settings:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    given = {name: value for name, value in settings.items() if name != "mask_token" and name != "tokenizer_class"}
    other = BertTokenizerFast.from_pretrained(tmp_path, **given)
    ours = Tokenizer.load(tmp_path)
    agree(ours, other, [*TEXTS, "a [MASK] b [SEP] c"])
    agree_on_special(ours, other)


@together
def test_smollm2() -> None:
    ours, other = smollm2(), theirs("smollm2")
    assert ours.vocabulary == 49_152 == len(other)
    agree(ours, other, [text for text in TEXTS if "½" not in text])
    agree_on_special(ours, other)
    assert ours.encode("<|im_start|>") == [1] == [ours.begin] and ours.end == 2
    assert [ours.id_to_token(number) for number in ours.encode("x 2024")] == ["x", "Ġ", "2", "0", "2", "4"]
    for reply in (True, False):
        wanted = other.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=reply)
        assert ours.apply_chat_template(CHAT, reply=reply) == wanted
    assert ours.apply_chat_template(CHAT[1:2]).startswith("<|im_start|>system\nYou are a helpful AI assistant")


def digits_first(inner: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """SmolLM's own tokenizer cuts digits out first, and so does llama.cpp; transformers forgets it for GGUF files."""
    made = tokenizers.Tokenizer.from_str(inner.to_str())
    digits = tokenizers.pre_tokenizers.Digits(individual_digits=True)
    made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([digits, made.pre_tokenizer])
    return made


@functools.cache
def smollm2_digits_first() -> tokenizers.Tokenizer:
    return digits_first(theirs("smollm2").backend_tokenizer)


@together
@given(st.text() | st.sampled_from(TEXTS) | st.text(alphabet="ab 12½\n'!가😀"))
def test_smollm2_on_any_text(text: str) -> None:
    ids = smollm2().encode(text)
    assert ids == smollm2_digits_first().encode(text).ids
    if not any(unicodedata.category(letter).startswith("N") for letter in text):
        assert ids == theirs("smollm2")(text).input_ids


@pytest.mark.parametrize("cut", byte_level.CUTS)
def test_each_cut_as_transformers_cuts(cut: str) -> None:
    """GPT-2's pairs behind each way of cutting, held to the tokenizer that transformers makes of such a GGUF file."""
    from transformers.integrations.gguf import gguf_tokenizer_mapping

    vocabulary = json.loads((fetched("gpt2-tokenizer") / "vocab.json").read_bytes())
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    merges = (fetched("gpt2-tokenizer") / "merges.txt").read_text(encoding="utf-8").split("\n")[1:-1]
    kinds = [3 if token == "<|endoftext|>" else 4 if token == "Ġattention" else 1 for token in tokens]
    fields = {
        "model": "gpt2",
        "pre": cut,
        "tokens": tokens,
        "merges": merges,
        "token_type": kinds,
        "eos_token_id": 50256,
    }
    ours = Tokenizer.from_gguf({f"tokenizer.ggml.{name}": value for name, value in fields.items()})
    given = {"tokenizer_type": "gpt2", "pre_tokenizer_type": cut, "tokens": tokens, "merges": merges}
    other, _ = gguf_tokenizer_mapping.convert_gguf_tokenizer("llama", {**given, "token_type": kinds})
    if cut == "smollm":
        other = digits_first(other)
    if cut == "qwen2":  # theirs is without the NFC of transformers' own Qwen2Tokenizer
        other.normalizer = tokenizers.normalizers.NFC()
    if cut != "llama-bpe":  # theirs does not prefer whole tokens to merges there
        for text in TEXTS:
            assert ours.encode(text) == other.encode(text).ids, text
    for text in TEXTS:
        wanted = [piece for piece, _ in other.pre_tokenizer.pre_tokenize_str(text)]
        assert [piece for piece, _ in ours._inner.pre_tokenizer.pre_tokenize_str(text)] == wanted
    assert ours.end == 50_256 and ours.begin is None
    assert ours.encode("Ġattention") == [vocabulary["Ġattention"]]  # a user's token is never cut


def test_cuts_by_hand() -> None:
    def pieces(cut: str, text: str) -> list[str]:
        letters = {letter: byte for byte, letter in byte_level.LETTERS.items()}
        cutter = byte_level.build(letters, [], cut).pre_tokenizer
        return [byte_level.spelled(piece).decode() for piece, _ in cutter.pre_tokenize_str(text)]

    assert pieces("gpt-2", "I'm 12345!\n\nx") == ["I", "'m", " 12345", "!", "\n", "\n", "x"]
    assert pieces("smollm", "I'm 123") == ["I", "'m", " ", "1", "2", "3"]
    assert pieces("llama-bpe", "I'M 12345!\n\nx") == ["I", "'M", " ", "123", "45", "!\n\n", "x"]
    assert pieces("qwen2", "I'M 123!\n\nx") == ["I", "'M", " ", "1", "2", "3", "!\n\n", "x"]


def test_qwen_files(tmp_path: Path) -> None:
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
    ours, other = Tokenizer.load(tmp_path), Qwen2TokenizerFast.from_pretrained(tmp_path)
    agree(ours, other)
    assert ours.end == 50_257 == other.eos_token_id and ours.begin is None


@pytest.mark.parametrize("settings", [{"add_prefix_space": True}, {"add_bos_token": True}])
def test_gpt2_settings(settings: dict[str, Any], tmp_path: Path) -> None:
    for name in ("vocab.json", "merges.txt"):
        shutil.copy(fetched("gpt2-tokenizer") / name, tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    ours = Tokenizer.load(tmp_path)
    wanted = [18435, 995] if "add_prefix_space" in settings else [50256, 15496, 995]  # " Hello world" in their docs
    assert ours.encode("Hello world") == wanted


# back again


@given(st.text())
def test_bytes_come_back(text: str) -> None:
    tokenizer = Tokenizer.for_bytes()
    ids = tokenizer.encode(text)
    assert ids == list(text.encode()) and tokenizer.decode(ids) == text and tokenizer.vocabulary == 256
    assert b"".join(tokenizer.bytes_of(number) or b"" for number in ids) == text.encode()


@given(st.text() | st.sampled_from(TEXTS) | st.text(alphabet=st.characters(min_codepoint=0xAC00, max_codepoint=0xD7A3)))
def test_gpt2_comes_back(text: str) -> None:
    ids = gpt2().encode(text)
    assert gpt2().decode(ids) == text
    assert b"".join(gpt2().bytes_of(number) or b"" for number in ids) == text.encode()


@given(st.lists(st.integers(0, 255)))
def test_bytes_that_are_no_text(ids: list[int]) -> None:
    """What a model writes need not be UTF-8."""
    assert Tokenizer.for_bytes().decode(ids) == bytes(ids).decode(errors="replace")


@given(st.lists(st.integers(0, 50_256)))
def test_any_ids_of_gpt2(ids: list[int]) -> None:
    written = b"".join(gpt2().bytes_of(number) or b"" for number in ids)
    assert gpt2().decode(ids) == written.decode(errors="replace")


@given(st.text(min_size=1), st.text())
def test_characters(text: str, other: str) -> None:
    tokenizer = Tokenizer.characters(text)
    known = sorted(set(text))
    assert tokenizer.vocabulary == len(known) + 1 and tokenizer.unknown == len(known)
    assert [tokenizer.id_to_token(number) for number in range(len(known))] == known
    assert tokenizer.encode(text) == [known.index(letter) for letter in text]
    assert tokenizer.decode(tokenizer.encode(text)) == text
    wanted = [known.index(letter) if letter in known else tokenizer.unknown for letter in other]
    assert tokenizer.encode(other) == wanted
    assert b"".join(tokenizer.bytes_of(number) or b"" for number in tokenizer.encode(text)) == text.encode()


@pytest.mark.parametrize("which", ["characters", "bytes", "gpt2", "minilm", pytest.param("smollm2", marks=together)])
def test_saved_it_is_the_same_to_us_and_to_transformers(which: str, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    ours = {
        "characters": lambda: Tokenizer.characters("".join(TEXTS)),
        "bytes": Tokenizer.for_bytes,
        "gpt2": gpt2,
        "minilm": lambda: Tokenizer.load(fetched("minilm")),
        "smollm2": smollm2,
    }[which]()
    (tmp_path / "chat_template.jinja").write_text("of another tokenizer")
    assert ours.save(tmp_path / "deep" / "er") == tmp_path / "deep" / "er"
    ours.save(tmp_path)
    for again in (Tokenizer.load(tmp_path), Tokenizer.load(str(tmp_path / "deep" / "er"))):
        assert again.chat_template == ours.chat_template and again.vocabulary == ours.vocabulary
        for word in ("begin", "end", "pad", "mask", "unknown", "separator", "classify"):
            assert getattr(again, word) == getattr(ours, word)
        assert [again.encode(text) for text in TEXTS] == [ours.encode(text) for text in TEXTS]
        assert [again.bytes_of(number) for number in range(20)] == [ours.bytes_of(number) for number in range(20)]
    agree(ours, AutoTokenizer.from_pretrained(tmp_path))
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_sentencepiece_with_bytes_to_fall_back_on() -> None:
    vocabulary = {"▁": 0, "<0xEA>": 1, "<0xB0>": 2, "<0x80>": 3, "a": 4}
    inner = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, [], byte_fallback=True))
    inner.decoder = tokenizers.decoders.Sequence([tokenizers.decoders.ByteFallback(), tokenizers.decoders.Fuse()])
    ours = Tokenizer(inner)
    assert ours.encode("a가") == [4, 1, 2, 3] and ours.decode([4, 1, 2, 3]) == "a가"
    assert [ours.bytes_of(number) for number in (4, 1, 2)] == [None, b"\xea", b"\xb0"]


# mistakes


def test_ids_that_are_not_there() -> None:
    tokenizer = Tokenizer.characters("abc")
    for number in (-1, 4, 10**12):
        for call in (tokenizer.id_to_token, tokenizer.bytes_of, lambda number: tokenizer.decode([0, number])):
            with pytest.raises(ArgumentError, match=f"there is no token {number}; ids go from 0 to 3"):
                call(number)


def test_half_a_character() -> None:
    for tokenizer in (Tokenizer.characters("abc"), Tokenizer.for_bytes()):
        with pytest.raises(ArgumentError, match="character 2 of the text is half a character"):
            tokenizer.encode("ab\ud800c")
    with pytest.raises(ArgumentError, match="half a character"):
        Tokenizer.characters("\udfff")
    with pytest.raises(ArgumentError, match="without characters"):
        Tokenizer.characters("")


BPE = {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}
BAD: dict[str, tuple[dict[str, str | bytes], str]] = {
    "empty": ({"tokenizer.json": ""}, "tokenizer.json is not JSON"),
    "a list": ({"tokenizer.json": "[]"}, "tokenizer.json holds a list"),
    "nothing in it": ({"tokenizer.json": "{}"}, "tokenizer.json is not a tokenizer"),
    "deep": ({"tokenizer.json": "[" * 100_000}, "tokenizer.json is not JSON"),
    "not text": ({"tokenizer.json": b"\xff\xfe{}"}, "tokenizer.json is not UTF-8 text: byte 0 is 0xff"),
    "no such merge": (
        {"tokenizer.json": json.dumps({"model": {**BPE, "merges": ["a c"]}})},
        "tokenizer.json is not a tokenizer: merge 0 is 'a c', and 'c' is not in the vocabulary",
    ),
    "a merge to nothing": (
        {"tokenizer.json": json.dumps({"model": {**BPE, "merges": [["a", "b"]]}})},
        "merge 0 is ['a', 'b'], and 'ab' is not in the vocabulary",
    ),
    "a short merge": (
        {"tokenizer.json": json.dumps({"model": {**BPE, "continuing_subword_prefix": "##", "merges": [["a", "b"]]}})},
        "is not in the vocabulary",
    ),
    "a strange merge": ({"tokenizer.json": json.dumps({"model": {**BPE, "merges": [3]}})}, "merge 0 is 3, not a pair"),
    "settings": ({"tokenizer_config.json": "{", "vocab.txt": "[UNK]"}, "tokenizer_config.json is not JSON"),
    "three in a merge": ({"vocab.json": '{"a": 0}', "merges.txt": "#version: 0.2\na a a\n"}, "merges.txt does not fit"),
    "unknown in a merge": ({"vocab.json": '{"a": 0}', "merges.txt": "a b"}, "'b' is not in the vocabulary"),
    "no number": ({"vocab.json": '{"a": "0"}', "merges.txt": ""}, "gives the token 'a' the number '0'"),
    "negative": ({"vocab.json": '{"a": -1}', "merges.txt": ""}, "gives the token 'a' the number -1"),
    "RoBERTa": ({"vocab.json": '{"<s>": 0, "</s>": 1}', "merges.txt": ""}, "holds a RobertaTokenizer"),
    "CLIP": (
        {"vocab.json": "{}", "merges.txt": "", "tokenizer_config.json": '{"tokenizer_class": "CLIPTokenizer"}'},
        "holds a CLIPTokenizer as vocab.json and merges.txt; of these GPT2Tokenizer",
    ),
    "no BERT": ({"vocab.txt": "a\nb\n"}, "vocab.txt has no line [UNK]"),
    "another's words": (
        {"vocab.txt": "[UNK]", "tokenizer_config.json": '{"tokenizer_class": "BertJapaneseTokenizer"}'},
        "belongs to a BertJapaneseTokenizer",
    ),
    "added out of place": (
        {"vocab.json": '{"a": 0}', "merges.txt": "", "added_tokens.json": '{"<x>": 7}'},
        "'<x>' should be 7, and would be 1",
    ),
    "added nonsense": (
        {"vocab.json": '{"a": 0}', "merges.txt": "", "tokenizer_config.json": '{"added_tokens_decoder": {"1": 3}}'},
        "the added tokens of",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_named_in_a_sentence(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    files, says = BAD[name]
    for file, content in files.items():
        (tmp_path / file).write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ArgumentError) as refused:
        Tokenizer.load(tmp_path)
    assert says in str(refused.value) and str(tmp_path) in str(refused.value)
    assert not isinstance(refused.value, TokenizerError)
    assert capfd.readouterr().err == ""  # a panic of the library would print here


def test_a_folder_without_one(tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text("{}")  # and no merges
    for folder in (tmp_path, tmp_path / "not" / "there"):
        with pytest.raises(TokenizerError, match=r"there is no tokenizer in .*; it would be a tokenizer.json"):
            Tokenizer.load(folder)


def test_files_that_are_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file, cap in (("tokenizer.json", 50_000_000), ("tokenizer_config.json", 10_000_000)):
        path = tmp_path / file
        with path.open("wb") as opened:
            opened.truncate(cap + 1)
        with pytest.raises(ArgumentError, match=f"{file} has more than {cap // 1_000_000} MB"):
            Tokenizer.load(tmp_path)
        path.unlink()


def test_a_panic_is_a_sentence_and_an_interruption_is_not(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BaseException, match="range") as panic:  # the library's own, if nobody checks before
        tokenizers.models.BPE({"a": 0, "b": 1}, [("a", "b")])
    assert not isinstance(panic.value, Exception)
    with pytest.raises(ArgumentError, match=r"the file x: .*range"), wrap_tokenizers_errors("the file x"):
        tokenizers.models.BPE({"a": 0, "b": 1}, [("a", "b")])
    for stop in (KeyboardInterrupt, SystemExit):
        with pytest.raises(stop), wrap_tokenizers_errors("the file x"):
            raise stop


def test_special_tokens_without_settings(tmp_path: Path) -> None:
    shutil.copy(fetched("minilm") / "tokenizer.json", tmp_path)
    ours = Tokenizer.load(tmp_path)
    assert (ours.classify, ours.separator, ours.pad, ours.mask, ours.unknown) == (101, 102, 0, 103, 100)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tokenizer.ggml.model": "llama"}, "of the kind 'llama'"),
        ({"tokenizer.ggml.pre": "default"}, "called 'default'; known are gpt-2, smollm, llama-bpe, qwen2"),
        ({"tokenizer.ggml.tokens": None}, "tokenizer.ggml.tokens is missing"),
        ({"tokenizer.ggml.tokens": "abc"}, "tokenizer.ggml.tokens is not a list of texts"),
        ({"tokenizer.ggml.merges": [1]}, "tokenizer.ggml.merges is not a list of texts"),
        ({"tokenizer.ggml.merges": ["a b"]}, "'ab' is not in the vocabulary"),
        ({"tokenizer.ggml.tokens": ["a", "a"]}, "names 1 of its tokens twice"),
        ({"tokenizer.ggml.bos_token_id": 2}, "its bos token is 2, and it has 2 tokens"),
        ({"tokenizer.ggml.bos_token_id": "x"}, "cannot be built"),
        ({"tokenizer.ggml.token_type": ["x"]}, "cannot be built"),
    ],
)
def test_bad_gguf_metadata(change: dict[str, Any], says: str) -> None:
    fields = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": ["a", "b"],
        "tokenizer.ggml.merges": [],
    }
    assert Tokenizer.from_gguf(fields).encode("ab") == [0, 1]
    begun = Tokenizer.from_gguf({**fields, "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.add_bos_token": True})
    assert begun.encode("ab") == [1, 0, 1] and begun.encode("a", special=False) == [0] and begun.begin == 1
    with pytest.raises(ArgumentError) as refused:
        Tokenizer.from_gguf({**fields, **change})
    assert says in str(refused.value)
    with pytest.raises(TokenizerError, match="no tokenizer in this GGUF file"):
        Tokenizer.from_gguf({})


# what ends a text


@pytest.mark.parametrize(
    ("generation", "config", "ends"),
    [
        (None, None, (0,)),
        (None, {"eos_token_id": 2}, (0, 2)),
        (None, {"eos_token_id": [1, 0, 2]}, (0, 1, 2)),
        ({"eos_token_id": [2, 2]}, {"eos_token_id": 1}, (0, 2)),  # as transformers: generation_config.json counts
        ({"eos_token_id": None, "top_k": 5}, {"eos_token_id": 1}, (0, 1)),
        ({"eos_token_id": []}, {}, (0,)),
    ],
)
def test_several_tokens_end_a_text(generation: Any, config: Any, ends: tuple[int, ...], tmp_path: Path) -> None:
    Tokenizer(Tokenizer.characters("abcd")._inner, {"end": "a"}).save(tmp_path)
    assert not (tmp_path / "generation_config.json").exists()
    for name, told in (("generation_config.json", generation), ("config.json", config)):
        if told is not None:
            (tmp_path / name).write_text(json.dumps(told))
    ours = Tokenizer.load(tmp_path)
    assert (ours.end, ours.ends) == (0, ends)
    again = ours.save(tmp_path / "again")
    assert Tokenizer.load(again).ends == ends


def test_transformers_find_the_ends_that_were_saved(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text('{"top_k": 7, "eos_token_id": 3}')
    Tokenizer(Tokenizer.characters("abcd")._inner, {"end": "a"}, ends=[2, 1]).save(tmp_path)
    import transformers

    told = transformers.GenerationConfig.from_pretrained(tmp_path)
    assert (told.eos_token_id, told.top_k) == ([0, 2, 1], 7)
    assert Tokenizer.characters("abcd").ends == ()


@pytest.mark.parametrize(
    "wrong", ["x", [0, "x"], -1, 2**31, 1.5, True, {"0": 1}, [[1]], list(range(101)), float("nan")]
)
def test_ends_that_cannot_be_are_refused(wrong: object, tmp_path: Path) -> None:
    Tokenizer.characters("abcd").save(tmp_path)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": wrong}))
    with pytest.raises(ArgumentError, match=r"gives an end token the id|101 end tokens; at most 100"):
        Tokenizer.load(tmp_path)


def test_a_gguf_file_names_the_end_of_a_turn() -> None:
    fields = {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": ["a", "b", "c", "d"],
        "tokenizer.ggml.merges": [], "tokenizer.ggml.eos_token_id": 1, "tokenizer.ggml.eot_token_id": 3,
        "tokenizer.ggml.eom_token_id": 1,
    }  # fmt: skip
    assert Tokenizer.from_gguf(fields).ends == (1, 3)
    with pytest.raises(ArgumentError, match="its eot token is 4, and it has 4 tokens"):
        Tokenizer.from_gguf({**fields, "tokenizer.ggml.eot_token_id": 4})


# conversations


def with_template(template: str | None) -> Tokenizer:
    return Tokenizer(Tokenizer.characters("abc<>/sunk")._inner, {"unknown": "<unk>", "end": "a"}, template)


def test_templates() -> None:
    say = [{"role": "user", "content": "Hi"}]
    assert with_template("{{ messages[0].content }}{{ eos_token }}{{ bos_token }}").apply_chat_template(say) == "Hia"
    assert with_template("{% if tools is not none %}x{% endif %}y").apply_chat_template(say) == "y"
    assert with_template("{{ messages | tojson }}").apply_chat_template([{"role": "u", "content": "<가>"}]) == (
        '[{"role": "u", "content": "<가>"}]'
    )
    assert with_template("{% generation %}{{ 1 }}{% endgeneration %}").apply_chat_template(say) == "1"
    assert with_template("{% for m in messages %}{% break %}{% endfor %}z").apply_chat_template(say) == "z"
    assert len(with_template("{{ strftime_now('%Y') }}").apply_chat_template(say)) == 4


@pytest.mark.parametrize(
    ("template", "says"),
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
def test_templates_that_refuse_or_attack(template: str | None, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "LONGEST", 1000)
    with pytest.raises(ArgumentError) as refused:
        with_template(template).apply_chat_template([{"role": "user", "content": "Hi"}])
    assert says in str(refused.value)


def test_messages_need_a_role_and_a_content() -> None:
    with pytest.raises(ArgumentError, match="message 1 needs a role and a content; it has role"):
        with_template("x").apply_chat_template([{"role": "user", "content": "Hi"}, {"role": "user"}])


def test_templates_in_files(tmp_path: Path) -> None:
    shutil.copy(fetched("minilm") / "vocab.txt", tmp_path)
    templates = [{"name": "tool", "template": "t"}, {"name": "default", "template": "d"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": templates}))
    assert Tokenizer.load(tmp_path).chat_template == "d"
    (tmp_path / "chat_template.jinja").write_text("own file")
    assert Tokenizer.load(tmp_path).chat_template == "own file"


def test_without_jinja(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(
        ArgumentError, match=r"chat templates need jinja2; install it with: pip install 'jumok\[chat\]'"
    ):
        chat_template.render("x", [], {})
