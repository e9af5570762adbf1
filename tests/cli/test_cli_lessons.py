"""The commands that show lessons: ``jumok experiment`` and its options."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import jumok
from jumok.cli import cli
from jumok.cli.command_output import CommandOutput, format_table
from jumok.draw import save_line_plot
from jumok.errors import ArgumentError
from jumok.lab.experiments import EXPERIMENTS
from jumok.models.vit import ViT, ViTConfig


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments), catch_exceptions=False)


def test_experiments_are_listed_in_both_languages() -> None:
    english, korean = (run("experiment", "--language", language).output for language in ("en", "ko"))
    assert [line.split()[0] for line in english.splitlines()] == list(EXPERIMENTS)
    for entry in EXPERIMENTS.values():
        assert entry.summary.english in english and entry.summary.korean in korean
    rows = json.loads(run("experiment", "--json").output)
    assert [row["experiment"] for row in rows] == list(EXPERIMENTS)


def test_experiment_prints_a_table_sentences_and_exceptions() -> None:
    english = run("experiment", "scale", "--quick", "--language", "en").output
    assert "37.2 / sqrt(64)    4.65" in english and "Where it did not come out:" in english
    korean = run("experiment", "scale", "--quick", "--language", "ko").output
    assert "최대 가중치" in korean and "결과가 다르게 나온 경우:" in korean and "plain" not in korean


def test_experiment_prints_json_and_draws(tmp_path: Path) -> None:
    target = tmp_path / "scale.png"
    fields = json.loads(run("experiment", "scale", "--quick", "--json", "--seed", "3", "--png", str(target)).output)
    assert fields["experiment"] == "scale" and fields["seed"] == 3 and fields["pictures"] == [str(target)]
    assert len(fields["rows"]) == 9 and fields["holds"] is False and len(fields["exceptions"]) == 1
    assert len(fields["explanation"]) == 2
    assert target.read_bytes().startswith(b"\x89PNG")


def test_mistakes_are_errors_for_the_person(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="unknown experiment 'scales'; choose one of scale"):
        run("experiment", "scales")
    output = run("experiment", "scale", "--png", str(tmp_path / "missing" / "a.png")).output
    assert "there is no folder" in output
    assert "must end in .png" in run("experiment", "scale", "--png", str(tmp_path / "a.gif")).output


def test_the_axis_of_widths_is_logarithmic(tmp_path: Path) -> None:
    target = save_line_plot({"a": [(4, 0.5), (1024, 1.0)]}, tmp_path / "plot.svg", log_across=True)
    assert "<!-- 1,024 -->" in target.read_text() and "<!-- 4 -->" in target.read_text()


def test_language_follows_the_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LC_ALL", "LC_MESSAGES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LANG", "ko_KR.UTF-8")
    assert CommandOutput().language == "ko"
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    assert CommandOutput().language == "en"


def test_table_aligns_hangul() -> None:
    assert format_table("lr", [["a", "1,000"]], ["쿼리", "값"]) == "쿼리     값\na     1,000"


def test_cost_of_a_model_and_of_sizes(tmp_path: Path) -> None:
    fields = json.loads(run("cost", "tiny", "--json").output)
    assert sum(fields["cost"]["parameters"].values()) == 160_800 and fields["tokens"] == 512
    sizes = ["--width", "512", "--heads", "8", "--layers", "6", "--tokens", "16384"]
    english = run("cost", *sizes, "--language", "en", "--png", str(tmp_path / "cost.png")).output
    assert "weights of one head" in english
    assert "16,384                 1 GB        8 GB" in english and "O(n^2 d)" in english
    assert (tmp_path / "cost.png").read_bytes().startswith(b"\x89PNG")
    korean = run("cost", *sizes, "--language", "ko").output
    assert "셀프 어텐션" in korean and "layer" not in korean


def test_cost_refuses_what_it_cannot_compute(tmp_path: Path) -> None:
    assert "has its own sizes; remove --width" in run("cost", "tiny", "--width", "8").output
    assert "a width of 10 cannot be split evenly into 3 heads" in run("cost", "--width", "10", "--heads", "3").output
    assert "--measure times layers of one width" in run("cost", "translator", "--measure").output
    jumok.save(ViT(ViTConfig(width=8, layers=1, heads=2, hidden=8)), tmp_path / "vit")
    with pytest.raises(ArgumentError, match=r"vit reads images of 224 x 224 pixels, not texts; remove --tokens"):
        run("cost", str(tmp_path / "vit"), "--tokens", "8")


def test_cost_of_other_families(tmp_path: Path) -> None:
    translator = jumok.load("translator").model
    fields = json.loads(run("cost", "translator", "--tokens", "9", "--json").output)
    assert sum(fields["cost"]["parameters"].values()) == translator.parameter_count
    assert fields["family"] == "transformer" and list(fields["needs"]) == ["run", "run, weights kept", "train"]
    korean = run("cost", "translator", "--tokens", "9", "--language", "ko", "--png", str(tmp_path / "cost.png")).output
    assert "키/값 캐시" in korean and "cache" not in korean
    assert (tmp_path / "cost.png").read_bytes().startswith(b"\x89PNG")
    jumok.save(ViT(ViTConfig(width=8, layers=1, heads=2, hidden=8)), tmp_path / "vit")
    english = run("cost", str(tmp_path / "vit"), "--language", "en").output
    assert "1 image(s) of 224 x 224 pixels" in english and "none: the model has no decoder" in english
