"""jumok.run: what a model is for, in one call."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from jumok.checkpoint import Loaded, load
from jumok.checkpoint.loaded import classes_of
from jumok.errors import ArgumentError

from .model_inputs import reads, several
from .predict import classify, embed, fill, predict, score
from .write_text import pieces

__all__ = ["classify", "embed", "fill", "pieces", "predict", "purpose", "reads", "run", "score"]

# what a family is for that has no classes and fills no masks
PURPOSES = {
    "gpt": "continue",
    "t5": "translate",
    "transformer": "translate",
    "rnn_seq2seq": "translate",
    "captioner": "caption",
    "bert": "embed",
    "long": "embed",
    "vit": "embed",
    "swin": "embed",
    "numeric": "predict",
}
WRITES = ("continue", "translate", "caption")


def purpose(loaded: Loaded) -> str:
    """What this model does with its input: continue, translate, caption, fill, embed, classify, score or predict."""
    if classes_of(loaded.config) is not None:
        return "score" if getattr(loaded.config, "answer", "one") == "number" else "classify"
    if getattr(loaded.config, "head", "none") == "mlm":
        return "fill"
    if loaded.family not in PURPOSES:
        raise ArgumentError(f"jumok run does not know what a {loaded.family} model is for; use it from Python")
    return PURPOSES[loaded.family]


def run(model: str | Path | Loaded, given: Any, **settings: Any) -> Any:
    """Do what ``model`` (a name, a folder or something loaded) is for with ``given``, or with each of a list.

    Text models take text; image models a picture's path, a Pillow image, or a tensor that is prepared already; a
    captioner of regions a tensor [region, feature] or a .safetensors file of one; ``numeric`` numbers.

    What comes back is text, or a vector of length 1 (encoders), or the likeliest tokens for each masked place, or the
    classes with their shares, likeliest first, or numbers. Settings, where text is written: limit, temperature, top_k,
    top_p, min_p, repetition, seed, beams, stops, chat.

    >>> jumok.run("smollm2", "The capital of Korea is", limit=8)  # doctest: +SKIP
    ' Seoul.'
    """
    loaded = model if isinstance(model, Loaded) else load(model)
    kind = purpose(loaded)
    many = several(loaded, given)
    if many == []:
        raise ArgumentError(f"nothing was given; this {loaded.family} model reads {reads(loaded)}")
    each = [given] if many is None else many
    found: Any
    if kind in WRITES:
        found = ["".join(pieces(loaded, one, **settings)) for one in each]
    elif settings:
        raise ArgumentError(f"{', '.join(settings)} cannot be set for a model that does not generate text")
    else:
        read = {"embed": embed, "fill": fill, "classify": classify, "score": score, "predict": predict}[kind]
        found = read(loaded, each)
    return found[0] if many is None else found


class _Callable(ModuleType):
    """``jumok.run`` is this module once it is imported, and must still be what people call."""

    def __call__(self, *given: Any, **settings: Any) -> Any:
        return run(*given, **settings)


sys.modules[__name__].__class__ = _Callable
