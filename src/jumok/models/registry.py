"""Find a family by its name, and register new ones."""

from __future__ import annotations

from importlib import import_module

import torch

from jumok.errors import ArgumentError

from .model import Model

# family -> class in the module of the same name, which is imported when the family is first used
FAMILIES = {
    "gpt": "GPT",
    "bert": "BERT",
    "t5": "T5",
    "fusion": "Fusion",
    "transformer": "Transformer",
    "vit": "ViT",
    "swin": "Swin",
    "long": "Long",
    "rnn_seq2seq": "RNNSeq2Seq",
    "classifier": "Classifier",
    "captioner": "Captioner",
    "speech": "Speech",
    "numeric": "Numeric",
}

_REGISTERED: dict[str, type[Model]] = {}


def register_family(model_class: type[Model]) -> type[Model]:
    """Register a family from outside this package with ``get_family``, ``jumok.load`` and ``jumok.save``.

    Args:
        model_class: The model class, which declares ``family`` and ``config_class``. Usable as a decorator.
    """
    name = model_class.family
    if model_class.config_class.family != name:
        raise ArgumentError(f"the family {name!r} has a config class of the family {model_class.config_class.family!r}")
    other = _REGISTERED.get(name, model_class)
    if name in FAMILIES or other.__qualname__ != model_class.__qualname__:  # a notebook cell may run again
        raise ArgumentError(f"the family {name!r} already exists; choose another name")
    _REGISTERED[name] = model_class
    return model_class


def get_family(name: object) -> type[Model]:
    """Return the model class of a family.

    >>> get_family("gpt").__name__
    'GPT'
    """
    if isinstance(name, str) and name in _REGISTERED:
        return _REGISTERED[name]
    if not isinstance(name, str) or name not in FAMILIES:
        names = sorted([*FAMILIES, *_REGISTERED])
        raise ArgumentError(f"unknown family {str(name)[:80]!r}; choose one of {', '.join(names)}")
    model_class: type[Model] = getattr(import_module(f"jumok.models.{name}"), FAMILIES[name])
    return model_class


def describe_families() -> list[dict[str, str | int]]:
    """Return a row for every family of this package: its name, the first line of its module docstring ("what"), and the
    number of parameters of its default config."""
    rows: list[dict[str, str | int]] = []
    for name in FAMILIES:
        model_class = get_family(name)
        with torch.device("meta"):  # counts parameters without allocating them
            model = model_class(model_class.config_class())
        summary = (import_module(model_class.__module__).__doc__ or "").strip().splitlines()[0]
        rows.append({"family": name, "what": summary, "parameters": model.parameter_count})
    return rows
