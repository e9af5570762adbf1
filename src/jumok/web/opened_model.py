"""A model that is open on the page: loaded once, with its lens and its inputs."""

from __future__ import annotations

import contextlib
import os
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import nn

from jumok.checkpoint import Loaded
from jumok.checkpoint.transformers_folder import LoadedTransformers, open_model
from jumok.data.tokenizers.transformers_tokenizer import open_tokenizer
from jumok.errors import ArgumentError, JumokError, describe_type
from jumok.layers.patches import PatchLayout
from jumok.lens import Lens
from jumok.models import Model
from jumok.tasks.labelled_input import LabelledInput, label_input, prepare_input
from jumok.tasks.model_inputs import encode_text
from jumok.tasks.transformers_image import locate_patches
from jumok.tasks.transformers_input import prepare_transformers_input, prepare_transformers_text

from .model_list import ListedModel

MAX_PREPARED = 4  # prepared inputs of a model that are kept; a model that answers generates its answer for each

AnyLoaded = Loaded | LoadedTransformers


@dataclass
class OpenedModel:
    """A model with its lens, and what was computed with it last.

    Attributes:
        source: What was opened: a name, a path, or a model.
        lens: Its lens; open only while an ask runs the model.
        notes: Sentences about the model that the user must read.
        inputs: The inputs that were prepared last, by text; None is the input of the start.
        kept_results: Results that later asks reuse: the last clean pass, the profile of the heads.
    """

    name: str
    source: Any
    loaded: AnyLoaded
    lens: Lens
    notes: list[str]
    inputs: OrderedDict[str | None, LabelledInput] = field(default_factory=OrderedDict)
    kept_results: dict[str, Any] = field(default_factory=dict)

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

        Raises:
            ArgumentError: If the model cannot read it.
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
            if isinstance(self.loaded, LoadedTransformers):
                return prepare_transformers_text(self.loaded, literal)
            if self.reads == "numbers":
                return prepare_input(self.loaded, literal)  # numbers in a text; a path is never read
            return label_input(self.loaded, encode_text(self.loaded, literal))
        if text is not None or start_text is None:
            kind = {"image": "an image", "regions": "regions of an image"}.get(self.reads, self.reads)
            example = "talk.wav" if self.reads == "audio" else "picture.png"
            raise ArgumentError(f"this model reads {kind}; start the page with one: jumok look MODEL {example} --open")
        if isinstance(self.loaded, LoadedTransformers):
            return prepare_transformers_input(self.loaded, start_text)
        return prepare_input(self.loaded, start_text, begin=begin)

    @contextlib.contextmanager
    def explain_failures(self) -> Iterator[None]:
        """Turn errors inside a model of transformers into one sentence: it may read more than a text or an image."""
        try:
            yield
        except (JumokError, OSError):
            raise
        except Exception as error:
            if isinstance(self.model, Model):
                raise
            name = type(self.model).__name__
            raise ArgumentError(f"{name} cannot run on this input: {str(error)[:300]}") from error

    def locate_patches(self, site: str, labelled: LabelledInput) -> PatchLayout | None:
        """Return where the positions of an attention lie in the image; None if the model reads no image."""
        if self.reads != "image":
            return None
        pixels = labelled.inputs[0]
        if isinstance(self.loaded, Loaded):
            return self.loaded.model.locate_patches(site, (pixels.shape[-2], pixels.shape[-1]))
        return locate_patches(self.loaded.model, pixels)


def open_listed_model(listed: ListedModel, tokenizer: object = None) -> OpenedModel:
    """Open a model of the list.

    Args:
        tokenizer: The tokenizer that the user gave with a model; None takes the model's own.

    Raises:
        JumokError: If the model cannot be opened.
    """
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
        return Loaded(source, opened_tokenizer, source.config, source.family)
    if isinstance(source, nn.Module):
        folder = getattr(source, "name_or_path", "")
        return LoadedTransformers(source, opened_tokenizer, Path(folder if isinstance(folder, str) else ""))
    raise ArgumentError(f"the page needs a model, or the name of one, not {describe_type(source)}")
