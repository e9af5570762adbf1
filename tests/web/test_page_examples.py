"""The worked examples of the page: every number and token that they name is measured in the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from page_client import PageClient

from jumok.defaults import INCLUDED_MODELS
from jumok.web.model_list import list_models
from jumok.web.session import Session, Start

FILE = Path(__file__).parent.parent.parent / "page/src/guide/examples.json"
EXAMPLES = {example["name"]: example for example in json.loads(FILE.read_text(encoding="utf-8"))}


def check_cell(client: PageClient, run: dict[str, Any], example: dict[str, Any], cell: dict[str, Any]) -> None:
    site = next(index for index, site in enumerate(run["sites"]) if site["name"] == example["site"])
    query, key = cell["query"], cell["key"]
    row = client.ask_floats("line", run=run["run"], show="clean", site=site, head=example["head"], query=query)
    assert float(row[key]) == pytest.approx(cell["weight"], abs=0.002)
    queries, keys = run[run["sites"][site]["query_sequence"]], run[run["sites"][site]["key_sequence"]]
    assert (queries[query], keys[key]) == (cell["query_label"], cell["key_label"])


def find_prediction(predictions: list[dict[str, Any]], position: int, label: str) -> tuple[float, str]:
    """Return the probability of a token, and the most probable token."""
    prediction = next(entry for entry in predictions if entry["position"] == position)
    listed = [*prediction["candidates"], *([prediction["actual"]] if prediction["actual"] else [])]
    probability = next(candidate["probability"] for candidate in listed if candidate["label"] == label)
    return probability, prediction["candidates"][0]["label"]


def test_five_examples_need_no_download() -> None:
    assert sum(example["model"] in INCLUDED_MODELS for example in EXAMPLES.values()) == 5


def mark_downloads(name: str) -> Any:
    return name if EXAMPLES[name]["model"] in INCLUDED_MODELS else pytest.param(name, marks=pytest.mark.slow)


@pytest.mark.parametrize("name", [mark_downloads(name) for name in EXAMPLES])
def test_the_numbers_of_an_example_are_measured(name: str) -> None:
    example = EXAMPLES[name]
    model, text, prediction = example["model"], example["text"], example["prediction"]
    if model not in list_models("tiny"):
        pytest.skip(f"{model} is not in the cache")
    session = Session(Start(model, text))
    client = PageClient(session)
    try:
        client.ask("hello")
        run = client.ask("run", model=model, text=text, edits=[])
        check_cell(client, run, example, example)
        if example["other"]:
            check_cell(client, run, example, example["other"])
        if name == "cross":  # the rows write the next word
            assert run["target"] == ["<start>", "I", "go", "to", "school", "every", "day"]
        if prediction:
            position, label = prediction["position"], prediction["label"]
            clean, best = find_prediction(run["clean"], position, label)
            run = client.ask("run", model=model, text=text, edits=prediction["edits"])
            edited, best_edited = find_prediction(run["edited"], position, label)
            assert [clean, edited] == pytest.approx([prediction["clean"], prediction["edited"]], abs=0.002)
            if name in ("induction", "story", "names"):
                assert best == label
            if name == "names":
                assert best_edited == label  # it still comes first
    finally:
        session.close()
