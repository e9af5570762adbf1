"""A model that is open on the page: loaded once, with its lens, its inputs and its forward passes."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from jumok.checkpoint import Loaded
from jumok.checkpoint.transformers_folder import LoadedTransformers, open_model
from jumok.data.tokenizers.transformers_tokenizer import open_tokenizer
from jumok.errors import ArgumentError, describe_type
from jumok.layers.patches import PatchLayout
from jumok.lens import Capture, Edit, Lens
from jumok.lens.capture.recorder import Recorder
from jumok.lens.effects.metrics import extract_answer
from jumok.lens.effects.residual_stream import STREAM_PARTS
from jumok.lens.restart import read_versions
from jumok.lens.running.progress_listener import ProgressListener
from jumok.models import Model
from jumok.reporting import StageProgress
from jumok.tap import Listener, listen
from jumok.tasks.labelled_input import LabelledInput, prepare_input
from jumok.tasks.transformers_input import locate_patches

from .maps import predictions
from .maps.predictions import Predictions
from .maps.site_maps import SiteMap, build_site_maps
from .maps.tiles import compute_thumbnails
from .messages import Effects, Kinds, LayerPreview, Predicts
from .model_list import ListedModel

MAX_PREPARED = 4  # prepared inputs of a model that are kept; a model that answers generates its answer for each
MAX_KEPT_POSITIONS = 4096  # longer inputs would need gigabytes
MAX_STREAM_POSITIONS = 1536  # of the residual stream, which is several vectors for each position and block
KEPT_BLOCKS = 10  # of a longer input the output of every tenth block is kept, and no outputs of heads

PREVIEW_SECONDS = 1.0  # of a pass; faster ones are not shown before they are complete
PREVIEW_CELLS = 40  # rows and columns of a thumbnail, as the page asks for

AnyLoaded = Loaded | LoadedTransformers
ShowLayer = Callable[[LayerPreview, bytes], None]

_serial_numbers = itertools.count()


@dataclass
class Pass:
    """One forward pass, with the maps of its attentions in execution order, and what was measured on it."""

    serial: int
    capture: Capture
    maps: list[SiteMap]
    predictions: Predictions
    kind: Predicts
    kinds: Kinds | None = None
    effects: dict[str, Effects] = field(default_factory=dict)  # of "heads" or "edges"
    contrast: Any = None  # the last second input that it was compared with (answers/contrast.py)


@dataclass
class OpenedModel:
    """A model with its lens, and what was computed with it last."""

    name: str
    source: Any  # what was opened: a name, a path, or a model
    loaded: AnyLoaded
    lens: Lens  # open only while an ask runs the model
    notes: list[str]  # sentences about the model that the user must read
    inputs: OrderedDict[str | None, LabelledInput] = field(default_factory=OrderedDict)  # None: that of the start
    clean: tuple[LabelledInput, Any, Pass] | None = None  # the last input, the model's version, and the clean pass
    results: dict[str, tuple[object, Any]] = field(default_factory=dict)

    @property
    def model(self) -> nn.Module:
        """The model."""
        return self.loaded.model

    @property
    def reads(self) -> str:
        """What the model reads: "text", "image", "regions", "audio", "numbers", or the main argument of another."""
        return self.loaded.reads if isinstance(self.loaded, LoadedTransformers) else self.loaded.model.reads

    def prepare(self, text: str | None, start_text: str | None, begin: float = 0.0) -> LabelledInput:
        """Return the arguments of the model for a text, with labels.

        Args:
            text: The text that the page sent, which is never opened as a file; None is the input of the start.
            start_text: The input of the start: a text, or the path of an image or a recording; None if there is none.
            begin: Of a recording, the second at which the part that the model reads begins.
        """
        if text not in self.inputs:
            self.inputs[text] = self._prepare(text, start_text, begin)
            if len(self.inputs) > MAX_PREPARED:
                self.inputs.popitem(last=False)
        self.inputs.move_to_end(text)
        return self.inputs[text]

    def _prepare(self, text: str | None, start_text: str | None, begin: float) -> LabelledInput:
        literal = start_text if text is None else text
        if self.reads in ("text", "numbers"):
            if literal is None:
                raise ArgumentError("the text is empty; give the model an input")
            if self.reads == "text" and self.loaded.tokenizer is None:
                raise ArgumentError("this model has no tokenizer, so it cannot read a text; pass tokenizer=...")
            return prepare_input(self.loaded, literal, literal=True)  # a path is never read
        if text is not None or start_text is None:
            kind = {"image": "an image", "regions": "regions of an image"}.get(self.reads, self.reads)
            example = "talk.wav" if self.reads == "audio" else "picture.png"
            raise ArgumentError(f"this model reads {kind}; start the page with one: jumok look MODEL {example} --open")
        return prepare_input(self.loaded, start_text, begin=begin)

    def remember(self, name: str, version: object, compute: Callable[[], Any]) -> Any:
        """Return a result that later asks reuse; it is computed again if its version is another object."""
        if name not in self.results or self.results[name][0] is not version:
            self.results[name] = version, compute()
        return self.results[name][1]

    def locate_patches(self, site: str, labelled: LabelledInput) -> PatchLayout | None:
        """Return where the positions of an attention lie in the image; None if the model reads no image."""
        if self.reads != "image":
            return None
        pixels = labelled.inputs[0]
        if isinstance(self.loaded, Loaded):
            return self.loaded.model.locate_patches(site, (pixels.shape[-2], pixels.shape[-1]))
        return locate_patches(self.loaded.model, pixels)


def open_listed_model(listed: ListedModel, tokenizer: object = None) -> OpenedModel:
    """Open a model of the list, with the tokenizer that the user gave; None takes the model's own."""
    notes: list[str] = []
    loaded = _load(listed.source, tokenizer, notes)
    return OpenedModel(listed.name, listed.source, loaded, Lens(loaded), notes)


def _load(source: Any, tokenizer: object, notes: list[str]) -> AnyLoaded:
    opened_tokenizer: Any = None if tokenizer is None else open_tokenizer(tokenizer)
    if isinstance(source, str | os.PathLike):
        source = open_model(os.fspath(source), notes.append)
    if isinstance(source, Loaded | LoadedTransformers):
        return source if opened_tokenizer is None else replace(source, tokenizer=opened_tokenizer)
    if isinstance(source, Model):
        return Loaded(source, opened_tokenizer)
    if isinstance(source, nn.Module):
        folder = getattr(source, "name_or_path", "")
        return LoadedTransformers(source, opened_tokenizer, Path(folder if isinstance(folder, str) else ""))
    raise ArgumentError(f"the page needs a model, or the name of one, not {describe_type(source)}")


def get_clean_pass(
    opened: OpenedModel, labelled: LabelledInput, progress: StageProgress, show_layer: ShowLayer | None = None
) -> Pass:
    """Return the pass without edits; that of the last input is kept, unless the model was trained meanwhile. Of a slow
    one, ``show_layer`` receives each attention as soon as it is computed."""
    versions = read_versions(opened.model)
    if opened.clean is not None:
        stored, stored_versions, clean = opened.clean
        is_same = len(stored.inputs) == len(labelled.inputs) and all(map(torch.equal, stored.inputs, labelled.inputs))
        if is_same and versions == stored_versions:
            return clean
    with contextlib.nullcontext() if show_layer is None else listen(_LayerWatcher(show_layer)):
        clean = run_pass(opened, labelled, (), progress, None)
    opened.clean = labelled, versions, clean
    return clean


def run_pass(
    opened: OpenedModel, labelled: LabelledInput, edits: Sequence[Edit], progress: StageProgress, clean: Pass | None
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
        keep=_choose_parts(length) if keeps_more else (),
        logits=True,
        reusable=_choose_blocks(opened, length) if keeps_more and clean is None else False,
        reuse=reuse,
        progress=lambda done, total: progress(done, total, "running"),
        **settings,
    )
    kind, described = _describe_predictions(opened, labelled, capture)
    capture.output = None  # logits are large
    maps = build_site_maps(capture, lambda site: opened.locate_patches(site, labelled))
    return Pass(next(_serial_numbers), capture, maps, described, kind)


def _choose_parts(length: int) -> tuple[str, ...]:
    """Return what a pass keeps: what the steps of a head show, and the residual stream."""
    return ("value", "output", *STREAM_PARTS) if length <= MAX_STREAM_POSITIONS else ("value",)


def _choose_blocks(opened: OpenedModel, length: int) -> int:
    """Return of which blocks a reusable pass keeps the output, as a number for ``lens.run``."""
    # of a model of transformers other blocks than the next one may read the output of a block
    return KEPT_BLOCKS if isinstance(opened.model, Model) and length > MAX_STREAM_POSITIONS else 1


def _can_keep(opened: OpenedModel, settings: dict[str, Any], progress: StageProgress) -> bool:
    """Return whether the lens can record more than maps; of some models of transformers it has only those."""
    if isinstance(opened.model, Model):
        return True
    with contextlib.suppress(ArgumentError):  # a model that is refused is refused again by lens.run
        opened.lens.prepare_route(ProgressListener(lambda done, total: progress(0, 0, "reading")), **settings)
        return True
    return False


@contextlib.contextmanager
def watch_taps(check: Callable[[], None]) -> Iterator[None]:
    """Call a function at every attention that a model computes; an exception that it raises stops the model."""
    with listen(_TapWatcher(check)):
        yield


class _LayerWatcher(Recorder):
    """Sends thumbnails of each attention as soon as it is computed, once the model has been running for a while."""

    def __init__(self, show_layer: ShowLayer) -> None:
        super().__init__()
        self.show_layer = show_layer
        self.started_at = time.monotonic()

    def __call__(self, site: str, tapped: Any) -> Any:
        super().__call__(site, tapped)
        name, _, word = site.rpartition(".")
        if word == "logsumexp":  # it arrives last
            attention = self.attentions.pop(name)
            # attention inside windows of an image is put together when all are there
            if attention.batch == 1 and time.monotonic() - self.started_at >= PREVIEW_SECONDS:
                heads, _ = compute_thumbnails(SiteMap(attention), PREVIEW_CELLS, lambda: None, rows_per_cell=1)
                self.show_layer(LayerPreview(name, *heads.shape), heads.tobytes())
        return tapped


class _TapWatcher(Listener):
    only_reads = True

    def __init__(self, check: Callable[[], None]) -> None:
        self.check = check

    def accepts(self, site: str) -> bool:
        return site.endswith(".positions")

    def __call__(self, site: str, tapped: Any) -> Any:
        self.check()
        return tapped


def _describe_predictions(
    opened: OpenedModel, labelled: LabelledInput, capture: Capture
) -> tuple[Predicts, Predictions]:
    """Return what kind of prediction a model makes, and its predictions."""
    model, loaded = opened.model, opened.loaded
    try:
        answer = extract_answer(capture.output)
    except ArgumentError:  # such as the spans of a model that answers questions
        return "vector", Predictions([], None)
    task = model.task if isinstance(model, Model) else ""
    kind = predictions.choose_kind(answer, task, type(model).__name__)
    if kind in ("next token", "masked token"):
        tokens = labelled.inputs[1][0].tolist() if labelled.target else labelled.tokens
        is_masked = kind == "masked token"
        if len(tokens) < answer.tensor.shape[1]:  # a model that reads more positions than the text has tokens
            return "vector", Predictions([], None)
        return kind, predictions.describe_token_predictions(
            answer.tensor[0], tokens, loaded.tokenizer, is_masked=is_masked
        )
    if kind == "class":
        has_positions = answer.tensor.dim() == 3
        return kind, predictions.describe_class_predictions(
            answer.tensor[0] if has_positions else answer.tensor[:1],
            lambda number: name_label_class(opened, number),
            is_independent=isinstance(model, Model) and model.independent_classes,
            has_positions=has_positions,
        )
    if kind == "number":
        return kind, predictions.describe_number_predictions(answer.tensor[0])
    return kind, Predictions([], None)


def name_label_class(opened: OpenedModel, number: int) -> str:
    """Return the label of a class, or its number."""
    if isinstance(opened.loaded, Loaded):
        labels = opened.loaded.labels
        return labels[number] if labels is not None and number < len(labels) else f"class {number}"
    names = getattr(opened.model.config, "id2label", None)
    return str(names.get(number, f"class {number}")) if isinstance(names, dict) else f"class {number}"
