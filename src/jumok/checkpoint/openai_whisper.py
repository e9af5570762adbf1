"""Read the Whisper that OpenAI published, a PyTorch file.

Its special tokens are in Python source, which is parsed and never executed. The catalogue pins the files by SHA-256, so
their form is known: a dictionary LANGUAGES, a list of special tokens, the symbols that a transcript never contains, and
the alignment heads of each model in base 85.
"""

from __future__ import annotations

import ast
import base64
import gzip
from dataclasses import dataclass
from pathlib import Path

import torch

from jumok.data.tokenizers.speech_tokens import SpeechTokens
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import CheckpointError
from jumok.models.speech import Speech, SpeechConfig

from .loaded import Loaded
from .name_table import NameTable, build_on_meta
from .tensor_files import read_pickled_file

TIMES = [f"<|{index * 0.02:.2f}|>" for index in range(1501)]  # to 30.00 s
MODEL_NAME = "tiny.en"
LANGUAGE_COUNT = 99
LAST_FIRST_TIME = 50  # 1 s: Whisper's limit of the first time of a window (Radford et al. 2022, section 4.5)

# Chosen by smallest error of word starts on synthesised calibration audio: bench/word_times.py
TIMING_HEADS: tuple[tuple[int, int], ...] = ((1, 5), (2, 1), (3, 2))

# fields of "dims" in the file -> ours
DIMENSIONS = {
    "n_mels": "mel_bins", "n_vocab": "vocabulary", "n_audio_ctx": "source_length", "n_audio_state": "width",
    "n_audio_head": "heads", "n_audio_layer": "layers", "n_text_ctx": "target_length", "n_text_state": "width",
    "n_text_head": "decoder_heads", "n_text_layer": "decoder_layers",
}  # fmt: skip


def read_openai_model(entry: Path) -> Loaded:
    """Return the model in a folder with OpenAI's files."""
    content = read_pickled_file(entry / f"{MODEL_NAME}.pt")
    try:
        dimensions, tensors = dict(content["dims"]), dict(content["model_state_dict"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{MODEL_NAME}.pt in {entry} cannot be read: {str(error)[:200]}") from None
    published = read_special_tokens(entry / "openai-whisper" / "tokenizer.py.txt", LANGUAGE_COUNT)
    tokenizer = Tokenizer.load(entry).with_special_tokens(published.special, {"end": published.special[0]})
    config = _build_config(dimensions, tokenizer)
    heads = read_alignment_heads(
        entry / "openai-whisper" / "models.py.txt", MODEL_NAME, config.decoder_layers, config.decoder_heads
    )
    model = build_on_meta(Speech, config, torch.float16, f"{MODEL_NAME}.pt")
    _build_name_table().load_parameters(model, tensors, tensors.__getitem__, f"{MODEL_NAME}.pt")
    speech_tokens = _build_speech_tokens(tokenizer, published, heads)
    return Loaded(model.eval(), tokenizer, speech_tokens=speech_tokens)


def _build_config(dimensions: dict[str, int], tokenizer: Tokenizer) -> SpeechConfig:
    fields = {field: dimensions[name] for name, field in DIMENSIONS.items()}
    hidden, end = dict.fromkeys(("hidden", "decoder_hidden"), 4 * fields["width"]), tokenizer.end
    start = None if end is None else end + 1
    return SpeechConfig.from_json({**fields, **hidden, "start": start, "end": end, "pad": end})


def _build_speech_tokens(
    tokenizer: Tokenizer, published: PublishedTokens, heads: tuple[tuple[int, int], ...]
) -> SpeechTokens:
    ids = {token: _find_id(tokenizer, token) for token in published.special[: len(published.languages) + 8]}
    start, end = ids["<|startoftranscript|>"], ids["<|endoftext|>"]
    tasks = [ids[name] for name in ("<|transcribe|>", "<|translate|>", "<|startoflm|>", "<|startofprev|>")]
    suppressed = {*_find_unspoken(tokenizer, published), *tasks, start, ids["<|nospeech|>"]}
    return SpeechTokens(
        start=start,
        end=end,
        transcribe=ids["<|transcribe|>"],
        translate=ids["<|translate|>"],
        no_timestamps=ids["<|notimestamps|>"],
        previous=ids["<|startofprev|>"],
        suppressed=tuple(sorted(suppressed)),
        suppressed_first=(*tokenizer.encode(" ", special=False), end),
        last_first_time=LAST_FIRST_TIME,
        alignment_heads=heads,
        timing_heads=TIMING_HEADS,
    )


def _find_id(tokenizer: Tokenizer, token: str) -> int:
    ids = tokenizer.encode(token, special=False)
    if len(ids) != 1:
        raise CheckpointError(f"the tokenizer has no token {token}")
    return ids[0]


def _find_unspoken(tokenizer: Tokenizer, published: PublishedTokens) -> set[int]:
    """Return the tokens of symbols that are not spoken: brackets, notes, and dashes and quotes that begin a word."""
    unspoken = {tokenizer.encode(" -", special=False)[0], tokenizer.encode(" '", special=False)[0]}
    for symbol in (*published.symbols, *published.notes):
        for text in (symbol, f" {symbol}"):
            ids = tokenizer.encode(text, special=False)
            if len(ids) == 1 or symbol in published.notes:
                unspoken.add(ids[0])
    return unspoken


def _build_name_table() -> NameTable:
    rules = {
        "first_convolution": "encoder.conv1",
        "second_convolution": "encoder.conv2",
        "source_positions": "encoder.positional_embedding",
        "encoder_norm": "encoder.ln_post",
        "embedding": "decoder.token_embedding",
        "positions.table.weight": "decoder.positional_embedding",
        "decoder_norm": "decoder.ln",
    }
    self_attention = {"attention": "attn"}
    for stack, parts in (("encoder", self_attention), ("decoder", {**self_attention, "cross": "cross_attn"})):
        block = f"{stack}.blocks.{{}}."
        rules |= {
            f"{stack}.{{}}.feedforward.inner": f"{block}mlp.0",
            f"{stack}.{{}}.feedforward.outer": f"{block}mlp.2",
            f"{stack}.{{}}.feedforward_norm": f"{block}mlp_ln",
        }
        for part, attention in parts.items():
            for name in ("query", "key", "value"):
                rules[f"{stack}.{{}}.{part}.projection.{name}"] = f"{block}{attention}.{name}"
            rules[f"{stack}.{{}}.{part}.output"] = f"{block}{attention}.out"
            rules[f"{stack}.{{}}.{part}_norm"] = f"{block}{attention}_ln"
    return NameTable(rules)


@dataclass(frozen=True)
class PublishedTokens:
    """The special tokens of Whisper, by name."""

    special: tuple[str, ...]
    languages: tuple[str, ...]
    symbols: tuple[str, ...]
    notes: tuple[str, ...]  # symbols whose first token is suppressed in any case


def read_special_tokens(path: Path, language_count: int) -> PublishedTokens:
    """Read the special tokens."""
    assigned = _collect_assignments(path)
    try:
        languages = tuple(ast.literal_eval(assigned["LANGUAGES"][0]))[:language_count]
        first, second = assigned["symbols"]
        assert isinstance(second, ast.Call) and isinstance(second.func, ast.Attribute)
        symbols = [*_read_argument(first), *str(ast.literal_eval(second.func.value)).split()]  # "...".split()
        notes = _read_argument(assigned["miscellaneous"][0])
        special = _expand_special(assigned["specials"][0], languages)
    except (KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
        raise CheckpointError(f"{path.name} does not have the expected form: {error}") from None
    return PublishedTokens(tuple(special), languages, tuple(symbols), tuple(notes))


def read_alignment_heads(path: Path, name: str, layers: int, heads: int) -> tuple[tuple[int, int], ...]:
    """Return the published (block, head) pairs of a model."""
    assigned = _collect_assignments(path)
    try:
        packed = ast.literal_eval(assigned["_ALIGNMENT_HEADS"][0])[name]
        marks = gzip.decompress(base64.b85decode(packed))
    except (KeyError, ValueError, OSError) as error:
        raise CheckpointError(f"{path.name} does not have the expected form: {error}") from None
    if len(marks) != layers * heads:
        raise CheckpointError(f"{path.name} describes {len(marks)} heads of {name}, but the model has {layers * heads}")
    return tuple(divmod(index, heads) for index, mark in enumerate(marks) if mark)


def _collect_assignments(path: Path) -> dict[str, list[ast.expr]]:
    """Return the expressions that are assigned or added to each name, in their order in the file."""
    assigned: dict[str, list[ast.expr]] = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Assign | ast.AugAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name):
                assigned.setdefault(target.id, []).append(node.value)
    return assigned


def _read_argument(call: ast.expr) -> list[str]:
    """Return the characters of list("...") or set("...")."""
    assert isinstance(call, ast.Call)
    return list(ast.literal_eval(call.args[0]))


def _expand_special(specials: ast.expr, languages: tuple[str, ...]) -> list[str]:
    """Return all special tokens. The list has two comprehensions: the first for languages, the second for times."""
    assert isinstance(specials, ast.List)
    expansions = iter(([f"<|{code}|>" for code in languages], TIMES))
    tokens: list[str] = []
    for element in specials.elts:
        tokens += next(expansions) if isinstance(element, ast.Starred) else [ast.literal_eval(element)]
    if next(expansions, None) is not None:
        raise ValueError("the list of special tokens has no languages or no times")
    return tokens
