"""A token from the embedding to the logits: the residual stream in every block, the logit lens, and the sizes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from jumok.data.tokenizers.token_labels import label_tokens
from jumok.errors import ArgumentError
from jumok.lens.capture.captured_attention import WeightTable
from jumok.lens.effects.residual_stream import BlockStream, compute_stream_logits, read_residual_stream
from jumok.lens.huggingface.module_names import find_feedforwards
from jumok.lens.model_facts import read_integer
from jumok.lens.sites import SOURCE, TARGET
from jumok.models import Model
from jumok.web import messages
from jumok.web.inspection import Inspection
from jumok.web.maps.predictions import CANDIDATES
from jumok.web.opened_model import MAX_STREAM_POSITIONS, Pass

DIGITS = 7  # of the numbers in the answer
TOLERANCE = 1e-3  # of the probabilities that a model of transformers computes


def describe_layers(inspection: Inspection, shown: Pass, sequence: messages.Sequence, position: int) -> messages.Layers:
    """Return the residual stream of a token, with the tokens that each layer would predict."""
    model, capture = inspection.opened.model, shown.capture
    blocks: list[BlockStream] = []
    gap: messages.StreamGap | None = None
    try:
        blocks = read_residual_stream(model, capture, sequence, position)
        gap = _explain_missing_lens(inspection, shown, sequence, blocks)
    except ArgumentError:
        gap = "maps only" if capture.has_only_maps else "no stream"
        if max(len(inspection.labelled.source), len(inspection.labelled.target)) > MAX_STREAM_POSITIONS:
            gap = "long input"

    streams = [blocks[0].before, *(block.after for block in blocks)] if blocks else []
    candidates = _read_candidates(inspection, streams) if gap is None else [[] for _ in streams]
    sites = [site for site in inspection.sites if capture.sites.get_sides(site).queries == sequence]
    attention = capture.attentions[(sites or inspection.sites)[0]]  # an encoder of LSTMs has none
    first = attention.calls[0]
    has_keys = not isinstance(first, WeightTable)
    width = len(blocks[0].before) if blocks else inspection.opened.lens.facts.width
    return messages.Layers(
        width=width,
        heads=attention.heads,
        groups=first.key.shape[1] if has_keys else None,
        head_width=first.query.shape[-1] if has_keys else None,
        hidden=None if width is None else _find_inner_width(model, width),
        outputs=None if shown.predictions.last is None else len(shown.predictions.last),
        candidates=candidates[0] if candidates else [],
        layers=[
            messages.Layer(
                name=block.name,
                before=_measure(block.before),
                steps=[
                    messages.StreamStep(
                        part=_name_part(inspection, step.site),
                        site=None if step.site is None else inspection.sites.index(step.site),
                        added=_measure(step.added),
                        norm=None if step.stream is None else _measure(step.stream),
                    )
                    for step in block.steps
                ],
                after=None if block.after is None else _measure(block.after),
                candidates=best,
            )
            for block, best in zip(blocks, candidates[1:], strict=True)
        ],
        gap=gap,
    )


def _explain_missing_lens(
    inspection: Inspection, shown: Pass, sequence: str, blocks: list[BlockStream]
) -> messages.StreamGap | None:
    """Return why the logit lens has no tokens; None if it has."""
    if shown.kind not in ("next token", "masked token"):
        return "no tokens"
    if sequence == SOURCE and shown.capture.sites.has_target:
        return "encoder"
    if isinstance(inspection.opened.model, Model):
        return None
    # the norm of a model of transformers is found by its name, so the last prediction must follow from it
    length = len(inspection.labelled.target or inspection.labelled.source)
    final = read_residual_stream(inspection.opened.model, shown.capture, sequence, length - 1)[-1].after
    probabilities = None if final is None else _predict(inspection, final[None])
    if probabilities is None or not shown.predictions.rows:
        return "unknown norm"
    expected = {candidate.id: candidate.probability for candidate in shown.predictions.rows[-1].candidates}
    is_same = all(abs(float(probabilities[0, token]) - share) <= TOLERANCE for token, share in expected.items())
    return None if is_same else "unknown norm"


def _read_candidates(inspection: Inspection, streams: list[Tensor | None]) -> list[list[messages.Candidate]]:
    """Return the most probable tokens of each vector, from one product with the output layer, which may be large."""
    indices = [index for index, stream in enumerate(streams) if stream is not None]
    probabilities = _predict(inspection, torch.stack([stream for stream in streams if stream is not None]))
    candidates: list[list[messages.Candidate]] = [[] for _ in streams]
    if probabilities is None:
        return candidates
    largest, ids = probabilities.topk(min(CANDIDATES, probabilities.shape[-1]))
    tokenizer = inspection.opened.loaded.tokenizer
    for index, tokens, shares in zip(indices, ids.tolist(), largest.tolist(), strict=True):
        # each by itself: two candidates that are bytes form no character together
        candidates[index] = [
            messages.Candidate(
                str(token) if tokenizer is None else label_tokens(tokenizer, [token])[0], token, _round(share)
            )
            for token, share in zip(tokens, shares, strict=True)
        ]
    return candidates


def _predict(inspection: Inspection, streams: Tensor) -> Tensor | None:
    """Return the probabilities of all tokens for each vector."""
    logits = compute_stream_logits(inspection.opened.model, streams)
    return None if logits is None else logits.float().softmax(-1).cpu()


def _name_part(inspection: Inspection, site: str | None) -> messages.PartName:
    if site is None:
        return "mlp"
    sides = inspection.clean.capture.sites.get_sides(site)
    return "cross-attention" if sides == (TARGET, SOURCE) else "attention"


def _find_inner_width(model: nn.Module, width: int) -> int | None:
    """Return the width between the linear layers of an MLP."""
    if isinstance(model, Model):
        return read_integer(model.config, "hidden")
    for feedforward in find_feedforwards(model)[:1]:
        for parameter in feedforward.module.parameters():
            # the last layer of nn.Linear, or the first one of GPT-2's transposed layers
            if parameter.dim() == 2 and parameter.shape[0] == width:
                return parameter.shape[1]
    return None


def _measure(vector: Tensor) -> float:
    return _round(float(torch.linalg.vector_norm(vector.double())))


def _round(number: float) -> float:
    return float(f"{number:.{DIGITS}g}")
