"""Inputs and edits for the engine of the page, what Python computes for them, and small models with every option."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import jumok
from jumok.attention import mask as masks
from jumok.checkpoint import Loaded
from jumok.errors import ArgumentError
from jumok.lens import Ablate, Capture, Edit, KnockOut, Lens, Patch, Remask, Scale
from jumok.lens.capture.recorder import KEEP_OPTIONS
from jumok.models import GPT, Transformer
from jumok.models.gpt import GPTConfig, llama_config
from jumok.models.transformer import TransformerConfig
from jumok.tap import Listener, listen
from jumok.tasks.labelled_input import prepare_input
from jumok.translation import translate

BATCH = 10  # texts of one length that Python computes at once, under the same edits
PREDICTED = 2  # last positions whose logits are compared
LONGEST = 12
MASKS = (
    "causal",
    "causal & window(3)",
    "window(2)",
    "causal & (window(2) | global_at([0]))",
    "causal & ~edge(query=2, key=1)",
    "blocks(3, 1)",
    "prefix(2) | causal & edge(head=1)",
)

Text = dict[str, list[int]]  # the tokens of "source", and of an encoder-decoder also "target"


@dataclass(frozen=True)
class Reference:
    """What Python computes for an input: numbers, generated tokens or an error."""

    case: dict[str, Any]  # as the engine reads it
    logits: Tensor | None = None  # [position, token]
    weights: tuple[Tensor, ...] = ()  # [head, query, key] of each attention
    tokens: list[int] | None = None  # that the model writes, or of a text
    target: list[int] | None = None  # the answer to a text
    error: str | None = None


@torch.no_grad()
def compute_references(lens: Lens, count: int, rng: random.Random) -> list[Reference]:
    """Return references of random inputs and edits.

    Args:
        lens: An open lens.
        count: The number of inputs, a multiple of BATCH.
        rng: Where they are drawn from.
    """
    references: list[Reference] = []
    while len(references) < count:
        lengths = [rng.randint(2, LONGEST) for _ in range(2)]
        other_lengths = lengths if rng.random() < 0.7 else [rng.randint(2, LONGEST) for _ in range(2)]
        texts = [_draw_text(lens, lengths, rng) for _ in range(BATCH)]
        other = _draw_text(lens, other_lengths, rng)
        source = lens.run(*_to_tensors([other]), keep=KEEP_OPTIONS, name="other")
        edits = [_draw_edit(source, lengths, rng) for _ in range(rng.randint(0, 3))]
        # in a batch, each text has samples of its own
        is_drawn = any(isinstance(edit, Ablate) and edit.by == "resample" and edit.source for edit in edits)
        for batch in [[text] for text in texts] if is_drawn else [texts]:
            references += _compute(lens, batch, edits, other)
    return references


def _compute(lens: Lens, texts: list[Text], edits: list[Edit], other: Text) -> list[Reference]:
    cases = [{"input": text, "other": other, "edits": [edit.to_json() for edit in edits]} for text in texts]
    recorder = _WeightRecorder()
    try:
        with listen(recorder):
            capture = lens.run(*_to_tensors(texts), edits=edits, logits=True, last=PREDICTED)
    except ArgumentError as error:
        return [Reference(case, error=str(error)) for case in cases]
    logits = capture.output.logits  # type: ignore[union-attr]
    weights = recorder.weights.values()
    return [Reference(case, logits[row], tuple(site[row] for site in weights)) for row, case in enumerate(cases)]


class _WeightRecorder(Listener):
    """Records the weights of all attentions as the explicit backend computes them; reading them from a capture, head by
    head, takes longer than the runs."""

    only_reads = True

    def __init__(self) -> None:
        self.weights: dict[str, Tensor] = {}  # [text, head, query, key] by site

    def accepts(self, site: str) -> bool:
        return site.endswith(".weights")

    def requests(self, site: str) -> bool:
        return self.accepts(site)

    def __call__(self, site: str, value: Tensor) -> Tensor:
        self.weights[site] = value
        return value


def generate_references(lens: Lens, count: int, limit: int, rng: random.Random) -> list[Reference]:
    """Return what the model writes behind random texts under random edits, the most probable token at each step.

    Args:
        lens: An open lens.
        count: The number of texts.
        limit: The largest number of new tokens.
        rng: Where texts and edits are drawn from.
    """
    references = []
    for _ in range(count):
        lengths = [rng.randint(2, LONGEST), limit]
        text, other = (_draw_text(lens, lengths, rng) for _ in range(2))
        source = lens.run(*_to_tensors([other]), keep=KEEP_OPTIONS, name="other")
        edits = [_draw_edit(source, lengths, rng) for _ in range(rng.randint(0, 2))]
        prompt = {"source": text["source"]}
        case = {"input": prompt, "other": other, "edits": [edit.to_json() for edit in edits], "limit": limit}
        try:
            generation = lens.generate(text["source"], edits=edits, limit=limit)
            references.append(Reference(case, tokens=generation.token_ids))
        except ArgumentError as error:
            references.append(Reference(case, error=str(error)))
    return references


def read_reference(loaded: Loaded, text: str, language: str) -> Reference:
    """Return the tokens of a text, and the answer of a model that answers; or the message that refuses it.

    Args:
        loaded: The model.
        text: What a person typed.
        language: The language of messages, which must be chosen.
    """
    case = {"text": text, "language": language}
    try:
        labelled = prepare_input(loaded, text, literal=True)
    except ArgumentError as error:
        return Reference(case, error=translate(str(error)))
    target = labelled.inputs[1][0].tolist() if labelled.target else None
    return Reference(case, tokens=labelled.tokens, target=target)


def _draw_text(lens: Lens, lengths: Sequence[int], rng: random.Random) -> Text:
    config: Any = lens.model.config
    text = {"source": [rng.randrange(config.vocabulary) for _ in range(lengths[0])]}
    if isinstance(lens.model, Transformer):
        drawn = [rng.randrange(config.target_vocabulary_size) for _ in range(lengths[1] - 1)]
        text["target"] = [config.start, *drawn]
    return text


def _to_tensors(texts: list[Text]) -> list[Tensor]:
    return [torch.tensor([text[side] for text in texts]) for side in texts[0]]


def _draw_edit(other: Capture, lengths: Sequence[int], rng: random.Random) -> Edit:
    """Draw an edit of any kind; few of them are refused."""
    sites = other.sites
    name = rng.choice(sites.names)
    layer: Any = name
    if len(sites.stacks) == 1:
        layer = rng.choice([None, name, sites.names.index(name), sites.names.index(name) - len(sites.names)])
    heads = other.attentions[name].heads
    head = rng.choice([None, rng.randrange(heads), rng.randrange(-heads, 0), tuple(range(0, heads, 2))])
    sides = sites.get_sides(name)
    queries, keys = (lengths[side == "target"] for side in (sides.queries, sides.keys))

    kind = rng.choice([Ablate, Ablate, KnockOut, Scale, Remask, Patch, Patch])
    if kind is KnockOut:
        return KnockOut(layer, head, _draw_indices(queries, rng), _draw_indices(keys, rng))
    if kind is Scale:
        return Scale(layer, head, rng.choice([0.5, 1.7, 4]))
    if kind is Remask:
        text = rng.choice([None, *MASKS])
        return Remask(layer, head, None if text is None else masks.parse(text))
    part = rng.choice(["attention", "attention", "mlp", *(["residual"] if kind is Patch else [])])
    head = head if part == "attention" else None
    if kind is Ablate:
        by, seed = rng.choice(["zero", "mean", "resample"]), rng.randrange(100)
        return Ablate(layer, head, part, by, seed, rng.choice([None, other]))
    if rng.random() < 0.3:
        return Patch(layer, head, None, part, other)
    rows = min(queries, other.attentions[name].queries)
    positions = sorted(rng.sample(range(rows), rng.randint(1, rows)))
    partners = sorted(rng.sample(range(rows), len(positions)))
    return Patch(layer, head, positions, part, other, rng.choice([None, partners]))


def _draw_indices(count: int, rng: random.Random) -> int | list[int] | None:
    several = sorted(rng.sample(range(count), rng.randint(1, count)))
    return rng.choice([None, rng.randrange(count), several])


def save_small_models(folder: Path) -> list[Path]:
    """Write untrained models that have every option of the engine between them, and return their folders.

    Args:
        folder: The folder for theirs.
    """
    sizes: dict[str, Any] = {"vocabulary": 23, "length": 20, "width": 12, "layers": 2, "heads": 3, "hidden": 14}
    grouped = {"heads": 4, "groups": 2, "head_width": 6, "window": 3, "windowed": (1,), "tied": False}
    gemma = {**grouped, "output_norm": True, "scaled_embedding": True, "rotary_window_base": 100.0}
    pair_sizes: dict[str, Any] = {**sizes, "decoder_layers": 1, "activation": "gelu"}
    models = {
        "llama": GPT(llama_config(**{**sizes, **grouped})),
        "qwen": GPT(
            llama_config(**sizes, query_key_norm=True, rotary_scaling="llama3", rotary_factor=4, rotary_length=9)
        ),
        "gemma": GPT(llama_config(**{**sizes, **gemma}, rotary_scaling="linear", rotary_factor=2.0)),
        "yarn": GPT(llama_config(**{**sizes, "width": 24}, rotary_scaling="yarn", rotary_factor=3, rotary_gain=1.2)),
        "alibi": GPT(GPTConfig(**sizes, positions="alibi", activation="gelu", window=4)),
        "t5": GPT(GPTConfig(**sizes, positions="t5", buckets=6, max_distance=9, norm="rms", activation="relu")),
        "waves": GPT(GPTConfig(**{**sizes, "width": 15}, positions="sinusoidal", attention_bias=False)),
        "learned": GPT(GPTConfig(**sizes, positions="learned", fixed_length=True)),
        "bare": GPT(GPTConfig(**sizes, positions="none", feedforward="gated", output_bias=False)),
        "post": Transformer(TransformerConfig(**pair_sizes, target_vocabulary=19, shared=False, tied=False)),
        "pre": Transformer(TransformerConfig(**pair_sizes, order="pre", positions="learned", output_bias=True)),
        "rotated": Transformer(TransformerConfig(**pair_sizes, order="pre", positions="rotary", final_norm=False)),
    }
    dtypes = (torch.float32, torch.float16, torch.bfloat16)
    folders = []
    for index, (name, model) in enumerate(models.items()):
        with torch.no_grad():
            for parameter in model.parameters():  # weights that differ more than those of an untrained model
                parameter.add_(torch.randn_like(parameter) * 0.3)
        folders.append(jumok.save(model.to(dtypes[index % 3]), folder / name))
    return folders
