"""Hints for newcomers: names of fields in other libraries, extras to install, fields that are listed once."""

from __future__ import annotations

import tomllib
from pathlib import Path

import click
import pytest

import jumok
from jumok.cli import _describe_usage_error, cli, diagnosis
from jumok.errors import ArgumentError
from jumok.recipes import TrainingRequest, describe_fields, describe_recipes


@pytest.mark.parametrize(
    ("field", "expected"), [("lr", "learning_rate"), ("batch_size", "batch"), ("d_model", "width"), ("widht", "width")]
)
def test_fields_of_other_libraries_are_recognised(tmp_path: Path, field: str, expected: str) -> None:
    with pytest.raises(ArgumentError, match=f"the sort recipe has no field '{field}'; did you mean '{expected}'"):
        jumok.train("sort", out=tmp_path / "run", **{field: 1})


@pytest.mark.parametrize(("option", "expected"), [("--width", "width"), ("--lr", "learning_rate")])
def test_fields_given_as_options_get_a_hint(option: str, expected: str) -> None:
    with pytest.raises(click.NoSuchOption) as caught:
        cli.main(["train", "sort", option, "3"], standalone_mode=False)
    assert f"a field is changed with --set {expected}=VALUE" in _describe_usage_error(caught.value)


def test_every_field_is_listed_once() -> None:
    for row in describe_recipes():
        names = [field["field"] for field in describe_fields(TrainingRequest(row["recipe"], Path()))]
        assert len(names) == len(set(names)), row["recipe"]


def test_every_extra_has_a_purpose() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    extras = set(project["project"]["optional-dependencies"]) - set(diagnosis.HIDDEN_EXTRAS)
    assert extras == set(diagnosis.TEXTS.group("purposes"))


def test_messages_install_packages_by_extra() -> None:
    """Every hint of the package has the form that ``jumok doctor`` prints."""
    for path in Path(jumok.__file__).parent.rglob("*.py"):
        assert "pip install 'jumok[" not in path.read_text(encoding="utf-8"), path
