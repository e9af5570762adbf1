"""Forty classes of transformers, chosen by a hash of their names, have the level that the page of models says."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from small_transformers.census_record import examine_class
from small_transformers.model_classes import list_model_classes

PAGE = Path(__file__).parents[2] / "bench" / "results" / "models-of-transformers.md"
ROW = re.compile(r"^\| [^|]+ \| ([^|]+) \| ([^|]+) \| .*\|$", re.MULTILINE)
COUNT = 40


def read_levels() -> dict[str, str]:
    """Return the level of every class in the page."""
    table = PAGE.read_text().partition("| model type | level |")[2]
    return {name: level for level, names in ROW.findall(table) for name in names.split(", ")}


def hash_name(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


CLASSES = {model_class.name: model_class for model_class in list_model_classes()}
LEVELS = read_levels()
CHOSEN = sorted((name for name in CLASSES if LEVELS.get(name) not in (None, "not built")), key=hash_name)[:COUNT]


def test_the_page_lists_every_class() -> None:
    assert LEVELS.keys() == CLASSES.keys(), "transformers has changed: run `make huggingface`"
    assert len(CHOSEN) == COUNT
    assert not {"different", "crash"} & set(LEVELS.values())


@pytest.mark.filterwarnings("ignore::jumok.errors.IncompleteWarning")
@pytest.mark.parametrize("name", CHOSEN)
def test_classes_have_their_level(name: str) -> None:
    record = examine_class(CLASSES[name])
    assert record.status == LEVELS[name], record
