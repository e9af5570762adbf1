"""The files that a tokenizer comes in, read with care: they are other people's, and some are hostile."""

from __future__ import annotations

import contextlib
import json
import operator
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from jumok.errors import ArgumentError, TokenizerError

from . import byte_level

Special: TypeAlias = dict[str, str | None]  # tokens by our words
Found: TypeAlias = tuple[Tokenizer, Special, str | None, tuple[int, ...]]  # with the chat template and further ends

SPECIAL = {  # our word -> the word in the files
    "begin": "bos_token",
    "end": "eos_token",
    "pad": "pad_token",
    "mask": "mask_token",
    "unknown": "unk_token",
    "separator": "sep_token",
    "classify": "cls_token",
}
_GGUF = {  # our word -> the word in GGUF files; the misspelling is theirs
    "begin": "bos",
    "end": "eos",
    "pad": "padding",
    "mask": "mask",
    "unknown": "unknown",
    "separator": "seperator",
    "classify": "cls",
}
_BERT = {"unknown": "[UNK]", "separator": "[SEP]", "pad": "[PAD]", "classify": "[CLS]", "mask": "[MASK]"}
_SENTENCEPIECE = {"begin": "<s>", "end": "</s>", "unknown": "<unk>", "pad": "<pad>", "mask": "<mask>"}
_END = "<|endoftext|>"
_CUTS = {"": "gpt-2", "GPT2Tokenizer": "gpt-2", "Qwen2Tokenizer": "qwen2"}  # by the class that the settings name
_BERT_CLASSES = {"", "BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer"}
_VOCABULARY_CAP, _SETTINGS_CAP = 50_000_000, 10_000_000  # bytes that are read of a file
_MOST_ENDS = 100


def read(place: Path) -> Found:
    """The tokenizer in a folder, its special tokens, its chat template, and the ids that end a text by the model."""
    settings = {
        **read_settings(place / "special_tokens_map.json"),
        **read_settings(place / "tokenizer_config.json"),
    }
    kind = str(settings.get("tokenizer_class") or "").removesuffix("Fast")
    if (place / "tokenizer.json").is_file():
        inner, special = _from_json(place / "tokenizer.json", settings)
    elif (place / "vocab.json").is_file() and (place / "merges.txt").is_file():
        inner, special = _from_merges(place, settings, kind)
    elif (place / "vocab.txt").is_file():
        inner, special = _from_words(place / "vocab.txt", settings, kind)
    else:
        files = "a tokenizer.json, or a vocab.json and its merges.txt, or a vocab.txt"
        raise TokenizerError(f"there is no tokenizer in {place}; it would be {files}")
    return inner, special | _named(settings), _template(place, settings), ends(place)


def read_gguf(fields: Mapping[str, Any]) -> Found:
    """The tokenizer in the metadata of a GGUF file, its special tokens, its chat template, and its further ends."""
    model = fields.get("tokenizer.ggml.model")
    if model is None:
        raise TokenizerError("there is no tokenizer in this GGUF file; tokenizer.ggml.model is missing")
    if model != "gpt2":
        raise ArgumentError(f"this GGUF file's tokenizer is of the kind {model!r}; known is gpt2 (byte-level pairs)")
    tokens, merges = (_texts(fields, f"tokenizer.ggml.{name}") for name in ("tokens", "merges"))
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise ArgumentError(f"this GGUF file names {len(tokens) - len(vocabulary)} of its tokens twice")
    with wrap_tokenizers_errors("this GGUF file's tokenizer cannot be built"):
        inner = byte_level.build(vocabulary, merges, str(fields.get("tokenizer.ggml.pre", "default")))
        kinds = [operator.index(kind) for kind in fields.get("tokenizer.ggml.token_type", ())]
        # in llama.cpp's numbers, 3 is a control token and 4 one that a user added: neither is ever cut
        whole = [(token, kind == 3) for token, kind in zip(tokens, kinds, strict=False) if kind in (3, 4)]
        inner.add_special_tokens(
            [AddedToken(token, normalized=False, special=True) for token, control in whole if control]
        )
        inner.add_tokens([AddedToken(token, normalized=False) for token, control in whole if not control])
        special = {
            word: _token_at(tokens, fields.get(f"tokenizer.ggml.{name}_token_id"), name) for word, name in _GGUF.items()
        }
        begin = special["begin"]
        if begin is not None and fields.get("tokenizer.ggml.add_bos_token"):
            byte_level.begin_with(inner, begin, vocabulary[begin])
        # the end of a turn and of a message, where they are not the end of a text
        further = [_token_at(tokens, fields.get(f"tokenizer.ggml.{name}_token_id"), name) for name in ("eot", "eom")]
    template = fields.get("tokenizer.chat_template")
    ends = tuple(vocabulary[token] for token in further if token is not None)
    return inner, special, template if isinstance(template, str) else None, ends


def ends(place: Path) -> tuple[int, ...]:
    """The ids that the model beside the tokenizer ends a text with: Llama 3 has three. What it was told for generating
    counts before its config."""
    for name in ("generation_config.json", "config.json"):
        found = read_settings(place / name).get("eos_token_id")
        if found is not None:
            numbers = found if isinstance(found, list) else [found]
            if len(numbers) > _MOST_ENDS:
                raise ArgumentError(f"{place / name} names {len(numbers):,} end tokens; at most {_MOST_ENDS} are read")
            for number in numbers:
                if type(number) is not int or not 0 <= number < 2**31:
                    raise ArgumentError(f"{place / name} gives an end token the id {str(number)[:40]!r}")
            return tuple(numbers)
    return ()


@contextlib.contextmanager
def wrap_tokenizers_errors(what: str) -> Iterator[None]:
    """`tokenizers` raises plain Exceptions, and for some files a PanicException, which is not even one of those."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ArgumentError(f"{what}: {error}") from error


def _read(path: Path, cap: int) -> str:
    with path.open("rb") as file:
        content = file.read(cap + 1)
    if len(content) > cap:
        raise ArgumentError(f"{path} has more than {cap // 1_000_000} MB; no tokenizer's file is that large")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ArgumentError(f"{path} is not UTF-8 text: byte {error.start} is {content[error.start]:#04x}") from error


def _parsed(path: Path, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"{path} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ArgumentError(f"{path} holds a {type(found).__name__}, where names and values are expected")
    return found


def read_settings(path: Path) -> dict[str, Any]:
    return _parsed(path, _read(path, _SETTINGS_CAP)) if path.is_file() else {}


def _content(token: object) -> str | None:
    """A token in a settings file is a text, or a dictionary with its content."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _named(settings: Mapping[str, Any]) -> Special:
    return {word: _content(settings[name]) for word, name in SPECIAL.items() if name in settings}


def _template(place: Path, settings: Mapping[str, Any]) -> str | None:
    if (place / "chat_template.jinja").is_file():
        return _read(place / "chat_template.jinja", _SETTINGS_CAP)
    found = settings.get("chat_template")
    if isinstance(found, list):  # several, by name
        named = {each.get("name"): each.get("template") for each in found if isinstance(each, dict)}
        found = named.get("default")
    return found if isinstance(found, str) else None


def _from_json(path: Path, settings: Mapping[str, Any]) -> tuple[Tokenizer, Special]:
    text = _read(path, _VOCABULARY_CAP)
    described = _parsed(path, text)
    model = described.get("model")
    model = model if isinstance(model, dict) else {}
    with wrap_tokenizers_errors(f"{path} is not a tokenizer"):
        if isinstance(model.get("vocab"), dict) and isinstance(model.get("merges"), list):
            prefix = model.get("continuing_subword_prefix")
            for place, merge in enumerate(model["merges"]):
                byte_level.checked_merge(merge, model["vocab"], place, prefix if isinstance(prefix, str) else "")
        inner = Tokenizer.from_str(text)
    if settings.keys() & SPECIAL.values():
        return inner, {}
    # no settings: the names that everybody uses, where such tokens were added, and the model's own unknown
    added = {_content(each) for each in described.get("added_tokens") or ()}
    special: Special = {}
    for names in (_SENTENCEPIECE, _BERT):
        special |= {word: token for word, token in names.items() if token in added}
    unknown = _content(model.get("unk_token"))
    return inner, special if unknown is None else {**special, "unknown": unknown}


def _numbered(path: Path) -> dict[str, int]:
    vocabulary = _parsed(path, _read(path, _VOCABULARY_CAP))
    for token, number in vocabulary.items():
        if not isinstance(number, int) or not 0 <= number < 2**31:
            raise ArgumentError(f"{path} gives the token {token!r} the number {number!r}")
    return vocabulary


def _from_merges(place: Path, settings: Mapping[str, Any], kind: str) -> tuple[Tokenizer, Special]:
    """GPT-2's files: tokens with their numbers, and pairs in the order of merging."""
    vocabulary = _numbered(place / "vocab.json")
    if kind not in _CUTS or (kind == "" and {"<s>", "</s>"} <= vocabulary.keys()):
        raise ArgumentError(
            f"{place} holds a {kind or 'RobertaTokenizer'} as vocab.json and merges.txt; of these GPT2Tokenizer and "
            "Qwen2Tokenizer are known, and any tokenizer as a tokenizer.json"
        )
    lines = _read(place / "merges.txt", _VOCABULARY_CAP).split("\n")
    merges = [line.removesuffix("\r") for line in lines if line.strip() and not line.startswith("#version")]
    with wrap_tokenizers_errors(f"{place / 'merges.txt'} does not fit its vocab.json"):
        spaced = settings.get("add_prefix_space") is True
        inner = byte_level.build(vocabulary, merges, _CUTS[kind], prefix_space=spaced)
    special: Special = {"end": _END, "unknown": _END, "pad" if kind == "Qwen2Tokenizer" else "begin": _END}
    _add(inner, place, settings, special)
    begin = (special | _named(settings)).get("begin")
    number = None if begin is None else inner.token_to_id(begin)
    if settings.get("add_bos_token") is True and begin is not None and number is not None:
        byte_level.begin_with(inner, begin, number)
    return inner, special


def _from_words(path: Path, settings: Mapping[str, Any], kind: str) -> tuple[Tokenizer, Special]:
    """BERT's file (WordPiece, Devlin et al. 2019): one token a line."""
    if kind not in _BERT_CLASSES:
        raise ArgumentError(f"{path} belongs to a {kind}; of those with a vocab.txt BertTokenizer is known")
    lines = _read(path, _VOCABULARY_CAP).removesuffix("\n").split("\n")
    vocabulary = {line.removesuffix("\r"): number for number, line in enumerate(lines)}
    special: Special = {**_BERT, **_named(settings)}
    unknown, classify, separator = (str(special[word]) for word in ("unknown", "classify", "separator"))
    for token in (unknown, classify, separator):
        if token not in vocabulary:
            raise ArgumentError(f"{path} has no line {token}; it is not a BERT vocabulary")
    with wrap_tokenizers_errors(f"{path} is not a BERT vocabulary"):
        inner = Tokenizer(models.WordPiece(vocabulary, unk_token=unknown))
        inner.normalizer = normalizers.BertNormalizer(
            clean_text=True,
            handle_chinese_chars=settings.get("tokenize_chinese_chars") is not False,
            strip_accents=settings.get("strip_accents"),
            lowercase=settings.get("do_lower_case") is not False,
        )
        inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        inner.decoder = decoders.WordPiece(prefix="##")
        inner.post_processor = processors.TemplateProcessing(
            single=[classify, "$A", separator],
            pair=[classify, "$A", separator, "$B:1", f"{separator}:1"],
            special_tokens=[(token, vocabulary[token]) for token in (classify, separator)],
        )
    _add(inner, path.parent, settings, special)
    return inner, special


def _add(inner: Tokenizer, place: Path, settings: Mapping[str, Any], special: Special) -> None:
    """Special tokens are never cut; those that stand beside the vocabulary are added, at their numbers."""
    beside: dict[int, AddedToken] = {}
    if (place / "added_tokens.json").is_file():
        for token, number in _numbered(place / "added_tokens.json").items():
            beside[number] = AddedToken(token, normalized=False, special=True)
    described = settings.get("added_tokens_decoder")
    with wrap_tokenizers_errors(f"the added tokens of {place} do not fit its vocabulary"):
        for number, token in (described if isinstance(described, dict) else {}).items():
            beside[int(number)] = AddedToken(**{key: value for key, value in token.items() if key != "__type"})
        for number, added in sorted(beside.items()):
            (inner.add_special_tokens if added.special else inner.add_tokens)([added])
            if inner.token_to_id(added.content) != number:
                there = inner.token_to_id(added.content)
                raise ArgumentError(f"{added.content!r} should be {number}, and would be {there}")
        known = {token for token in {**special, **_named(settings)}.values() if token is not None}
        for token in sorted(known - {added.content for added in beside.values()}):
            if inner.token_to_id(token) is not None:  # never a new one: no model has learnt it
                inner.add_special_tokens([AddedToken(token, normalized=False, special=True)])


def _texts(fields: Mapping[str, Any], name: str) -> list[str]:
    found = fields.get(name)
    if found is None:
        raise ArgumentError(f"this GGUF file's {name} is missing")
    if isinstance(found, str) or not all(isinstance(each, str) for each in found):
        raise ArgumentError(f"this GGUF file's {name} is not a list of texts")
    return list(found)


def _token_at(tokens: Sequence[str], number: Any, name: str) -> str | None:
    if number is None:
        return None
    if not 0 <= operator.index(number) < len(tokens):
        raise ArgumentError(f"its {name} token is {number}, and it has {len(tokens)} tokens")
    return tokens[operator.index(number)]
