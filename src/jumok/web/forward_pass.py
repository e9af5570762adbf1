"""Forward passes for the page: run a model under the lens without or with edits, and describe what it predicts."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from jumok.checkpoint import Loaded
from jumok.errors import ArgumentError
from jumok.lens import Capture, Edit
from jumok.lens.effects.metrics import Answer, extract_answer
from jumok.lens.restart import read_versions
from jumok.lens.run_progress import RunProgress
from jumok.models import Model
from jumok.tap import Listener, listen
from jumok.tasks.labelled_input import LabelledInput

from .answers import predictions
from .answers.predictions import Kind, Predictions
from .answers.site_maps import SiteMap, build_site_maps
from .messages import Effects, Kinds
from .opened_model import OpenedModel

KEPT = ("value", "output")  # what the steps of a head need besides queries and keys
MAX_KEPT_POSITIONS = 4096  # longer inputs would need gigabytes
CLEAN_PASS = "clean pass"  # under which an opened model keeps it

Progress = Callable[[int, int, str], None]  # finished steps, all steps (0: not known), stage

_serial_numbers = itertools.count()


@dataclass
class Pass:
    """One forward pass, with the maps of its attentions in execution order, and what was measured on it."""

    serial: int
    capture: Capture
    maps: list[SiteMap]
    predictions: Predictions
    kind: Kind
    kinds: Kinds | None = None
    effects: dict[str, Effects] = field(default_factory=dict)  # of "heads" or "edges"


def get_clean_pass(opened: OpenedModel, labelled: LabelledInput, progress: Progress) -> Pass:
    """Return the pass without edits; that of the last input is kept, unless the model was trained meanwhile."""
    versions = read_versions(opened.model)
    stored = opened.kept_results.get(CLEAN_PASS)
    if stored is not None:
        inputs, stored_versions, clean = stored
        is_same = len(inputs) == len(labelled.inputs) and all(map(torch.equal, inputs, labelled.inputs))
        if is_same and versions == stored_versions:
            return clean
    clean = run_pass(opened, labelled, (), progress, None)
    opened.kept_results[CLEAN_PASS] = (labelled.inputs, versions, clean)
    return clean


def run_pass(
    opened: OpenedModel, labelled: LabelledInput, edits: Sequence[Edit], progress: Progress, clean: Pass | None
) -> Pass:
    """Run the model once, and describe its predictions. Blocks before the first edit are those of the clean pass."""
    lens = opened.lens
    length = max(tensor.shape[1] for tensor in labelled.inputs) if labelled.tokens else len(labelled.source)
    settings: dict[str, Any] = {**lens.facts.build_no_cache_arguments(), **labelled.named}
    decoder_length = len(labelled.target) or length
    predicted = predictions.count_predicted_positions(decoder_length, lens.facts.vocabulary)
    if predicted < decoder_length:
        settings |= lens.facts.build_last_logits_arguments(predicted)
    keeps_more = length <= MAX_KEPT_POSITIONS and _can_keep(opened, settings, progress)
    reuse = None if clean is None or clean.capture.reusable is None else clean.capture
    capture = lens.run(
        *labelled.positional,
        edits=edits,
        keep=KEPT if keeps_more else (),
        logits=True,
        reusable=keeps_more and clean is None,
        reuse=reuse,
        progress=lambda done, total: progress(done, total, "running"),
        **settings,
    )
    kind, described = _describe_predictions(opened, labelled, capture)
    capture.output = None  # logits are large
    maps = build_site_maps(capture, lambda site: opened.locate_patches(site, labelled))
    return Pass(next(_serial_numbers), capture, maps, described, kind)


def _can_keep(opened: OpenedModel, settings: dict[str, Any], progress: Progress) -> bool:
    """Return whether the lens can record more than maps; of some models of transformers it has only those."""
    if isinstance(opened.model, Model):
        return True
    with contextlib.suppress(ArgumentError):  # a model that is refused is refused again by lens.run
        opened.lens.prepare_route(RunProgress(lambda done, total: progress(0, 0, "reading")), **settings)
        return True
    return False


@contextlib.contextmanager
def watch_taps(check: Callable[[], None]) -> Iterator[None]:
    """Call a function at every attention that a model computes; an exception that it raises stops the model."""
    with listen(_TapWatcher(check)):
        yield


class _TapWatcher(Listener):
    """Calls a function at every attention."""

    only_reads = True

    def __init__(self, check: Callable[[], None]) -> None:
        self.check = check

    def accepts(self, site: str) -> bool:
        return site.endswith(".positions")

    def __call__(self, site: str, tapped: Any) -> Any:
        self.check()
        return tapped


def _describe_predictions(opened: OpenedModel, labelled: LabelledInput, capture: Capture) -> tuple[Kind, Predictions]:
    """Return what kind of prediction a model makes, and its predictions."""
    model, loaded = opened.model, opened.loaded
    try:
        answer: Answer = extract_answer(capture.output)
    except ArgumentError:  # such as the spans of a model that answers questions
        return predictions.VECTOR, Predictions([], None)
    task = model.task if isinstance(model, Model) else ""
    kind = predictions.choose_kind(answer, task, type(model).__name__)
    if kind in (predictions.NEXT_TOKEN, predictions.MASKED_TOKEN):
        tokens = labelled.inputs[1][0].tolist() if labelled.target else labelled.tokens
        is_masked = kind == predictions.MASKED_TOKEN
        if len(tokens) < answer.tensor.shape[1]:  # a model that reads more positions than the text has tokens
            return predictions.VECTOR, Predictions([], None)
        return kind, predictions.describe_token_predictions(
            answer.tensor[0], tokens, loaded.tokenizer, is_masked=is_masked
        )
    if kind == predictions.CLASS:
        has_positions = answer.tensor.dim() == 3
        return kind, predictions.describe_class_predictions(
            answer.tensor[0] if has_positions else answer.tensor[:1],
            lambda number: _name_class(opened, number),
            is_independent=isinstance(model, Model) and model.independent_classes,
            has_positions=has_positions,
        )
    if kind == predictions.NUMBER:
        return kind, predictions.describe_number_predictions(answer.tensor[0])
    return kind, Predictions([], None)


def _name_class(opened: OpenedModel, number: int) -> str:
    if isinstance(opened.loaded, Loaded):
        labels = opened.loaded.labels
        return labels[number] if labels is not None and number < len(labels) else f"class {number}"
    names = getattr(opened.model.config, "id2label", None)
    return str(names.get(number, f"class {number}")) if isinstance(names, dict) else f"class {number}"
