"""What loading gives; and the names of a model's classes, checked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from reprlib import repr as short  # whose depth and length have bounds
from typing import Any

from jumok.data.images.preparation import Preparation
from jumok.errors import CheckpointError
from jumok.models import Config, Model

LONGEST_LABEL = 1000  # characters


@dataclass(frozen=True)
class Loaded:
    """A model and what belongs to it. None: a tokenizer or labels where the folder has none, a preparation where the
    model reads no images. Labels are the classes' names, in order."""

    model: Model
    tokenizer: Any
    config: Config
    family: str
    preparation: Preparation | None = None
    labels: tuple[str, ...] | None = None


def classes_of(config: Config) -> int | None:
    """How many classes a model of this config tells apart; None where it has no such output."""
    if getattr(config, "head", "classes") in ("none", "mlm"):
        return None
    return getattr(config, "classes", None)


def check_labels(labels: object, config: Config) -> tuple[str, ...]:
    """The names of the classes, one for each; a sentence where they cannot be that."""
    classes = classes_of(config)
    if classes is None:
        raise CheckpointError(f"this {config.family} model has no classes, so they have no names")
    if isinstance(labels, str) or not isinstance(labels, Iterable) or isinstance(labels, dict):
        raise CheckpointError(f"labels must be a list of names, one a class, not a {type(labels).__name__}")
    names = tuple(labels)
    if len(names) != classes:
        raise CheckpointError(f"there are {len(names):,} labels, but the model has {classes:,} classes")
    for place, name in enumerate(names):
        if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_LABEL or not _writable(name):
            raise CheckpointError(f"label {place} must be text of 1 to {LONGEST_LABEL} characters, not {short(name)}")
    return names


def _writable(name: str) -> bool:
    """Not with half a character (a lone surrogate), which JSON can spell and no file can hold."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def read_id2label(id2label: object, config: Config) -> tuple[str, ...] | None:
    """The names in a Hugging Face config's id2label: {"0": "cat", "1": "dog"}. None where there are none."""
    if id2label is None or classes_of(config) is None:  # many configs of other models name two classes all the same
        return None
    if not isinstance(id2label, dict):
        raise CheckpointError(f"id2label in config.json must name every class, not be a {type(id2label).__name__}")
    wanted = [str(place) for place in range(len(id2label))]
    missing = next((place for place in wanted if place not in id2label), None)
    if missing is not None:
        raise CheckpointError(f"id2label in config.json names {len(wanted):,} classes, but none has the id {missing}")
    names = check_labels([id2label[place] for place in wanted], config)
    unnamed = all(name == f"LABEL_{place}" for place, name in enumerate(names))  # what stands there before anybody did
    return None if unnamed else names
