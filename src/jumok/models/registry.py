"""Every family by name."""

from __future__ import annotations

from importlib import import_module

import torch

from jumok.errors import ArgumentError

from .model import Model

# family -> (module, class); imported when asked for
FAMILIES: dict[str, tuple[str, str]] = {
    "gpt": ("gpt", "GPT"),
    "bert": ("bert", "BERT"),
    "t5": ("t5", "T5"),
    "transformer": ("transformer", "Transformer"),
    "vit": ("vit", "ViT"),
    "swin": ("swin", "Swin"),
    "long": ("long", "Long"),
    "rnn_seq2seq": ("rnn_seq2seq", "RNNSeq2Seq"),
    "classifier": ("classifier", "Classifier"),
    "captioner": ("captioner", "Captioner"),
    "numeric": ("numeric", "Numeric"),
}


def get_family(name: object) -> type[Model]:
    """The model class of a family."""
    if not isinstance(name, str) or name not in FAMILIES:
        raise ArgumentError(f"unknown family {str(name)[:80]!r}; known are {', '.join(sorted(FAMILIES))}")
    module, made = FAMILIES[name]
    found: type[Model] = getattr(import_module(f"jumok.models.{module}"), made)
    return found


def describe_families() -> list[dict[str, object]]:
    """Every family: its name, the first line of its page, and how many parameters its default config has."""
    rows: list[dict[str, object]] = []
    for name, (module, made) in FAMILIES.items():
        page = import_module(f"jumok.models.{module}")
        with torch.device("meta"):  # counted, not made
            model: Model = getattr(page, made)(getattr(page, made).config_class())
        what = (page.__doc__ or "").strip().splitlines()[0]
        rows.append({"family": name, "what": what, "parameters": model.parameter_count})
    return rows
