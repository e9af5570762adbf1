"""The experiment ``retrieval``: its task, its readers, its search, the costs, and the sentences about them."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from jumok.attention import mask
from jumok.errors import ArgumentError
from jumok.lab.experiments.retrieval import Retrieval, describe_retrieval, measure_retrieval
from jumok.lab.experiments.setups import passage_task
from jumok.lab.experiments.setups.passage_reader import (
    ATTENTIONS,
    TESTED,
    WAYS,
    PassageReader,
    WayQuality,
    measure_reading,
    train_reader,
)
from jumok.lab.experiments.setups.passage_task import (
    ASK,
    NAMES,
    SEPARATOR,
    VALUES,
    PassageBatch,
    PassageSearch,
    create_passages,
    select_found,
)
from jumok.lab.result import Result


def create_batch(count: int = 5, passages: int = 7, length: int = 11) -> PassageBatch:
    return create_passages(count, passages, length, torch.Generator().manual_seed(0))


def create_reader(attention: str) -> PassageReader:
    torch.manual_seed(0)
    return PassageReader(attention, width=16, heads=2, layers=2, window=5, features=8).double().eval()


@pytest.fixture(scope="module")
def outcome() -> Result:
    return measure_retrieval([256, 512], steps=2, questions=20, rounds=1)


def test_every_passage_states_one_fact_and_the_question_asks_for_one() -> None:
    batch = create_batch(50)
    assert batch.passages.shape == (50, 7, 11) and (batch.passages[..., 0] == SEPARATOR).all()
    assert (batch.questions[:, 0] == ASK).all()
    is_value = (batch.passages >= NAMES) & (batch.passages < NAMES + VALUES)
    assert (is_value.sum(-1) == 1).all()
    names = batch.passages[..., :-1][is_value[..., 1:]].view(50, 7)
    values = batch.passages[is_value].view(50, 7) - NAMES
    assert (names < NAMES).all() and all(len(set(row)) == 7 for row in names.tolist())
    rows = torch.arange(50)
    assert torch.equal(names[rows, batch.sources], batch.questions[:, 1])
    assert torch.equal(values[rows, batch.sources], batch.answers)
    assert len(set(batch.sources.tolist())) == 7
    named = (batch.passages < NAMES).sum(-1)
    assert (named == 1 + passage_task.MENTIONS).all()  # of the names of the same text
    assert all(
        set(text[text < NAMES].tolist()) == set(row) for text, row in zip(batch.passages, names.tolist(), strict=True)
    )


@pytest.mark.parametrize(("passages", "length"), [(NAMES + 1, 12), (0, 12), (3, 5)])
def test_passages_that_cannot_be_made(passages: int, length: int) -> None:
    with pytest.raises(ArgumentError, match="passages of at least 6 tokens"):
        create_passages(1, passages, length, torch.Generator())


def test_fusion_is_one_mask() -> None:
    """Passages as rows of their own give the vectors that ``documents`` gives on one row."""
    reader, batch = create_reader("fusion"), create_batch()
    texts = torch.cat([batch.questions[:, None].expand(-1, 7, -1), batch.passages], -1)
    with torch.no_grad():
        apart = reader._run_blocks(texts.flatten(0, 1)).view(5, 7 * 13, 16)
        hidden = reader._embed(texts.flatten(0, 1)).view(5, 7 * 13, 16)
        documents = mask.documents(torch.arange(7).repeat_interleave(13)[None].expand(5, -1))
        for block in reader.blocks:
            hidden = block(hidden, mask=documents)
    torch.testing.assert_close(hidden, apart, rtol=0, atol=1e-12)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_which_tokens_can_change_the_answer(attention: str) -> None:
    reader, batch = create_reader(attention), create_batch(1)
    with torch.no_grad():
        tokens = batch.passages.flatten(1).expand(77, -1)
        changed = torch.where(torch.eye(77).bool(), (tokens + 1) % SEPARATOR, tokens).view(77, 7, 11)
        clean = reader(batch.passages, batch.questions)
        difference = (reader(changed, batch.questions.expand(77, -1)) - clean).abs().amax(-1)
    reached = (difference > 1e-12).nonzero().flatten().tolist()
    # the last token is number 78; two layers of a window of 5 reach 8 tokens back, and the token shift one more
    assert reader.reach == (9 if attention == "window" else None)
    assert reached == list(range(69, 77) if attention == "window" else range(77))


def test_search_finds_names_and_counts_what_it_misses() -> None:
    batch = create_batch(40, passages=16)
    selected, recall = select_found(batch, 3)
    assert selected.shape == (40, 3, 11)
    hits = 0
    for text, question, source, passages in zip(batch.passages, batch.questions, batch.sources, selected, strict=True):
        numbers = PassageSearch(text).find(question, 3)
        assert numbers == sorted(numbers) and torch.equal(text[numbers], passages)
        named = (text == question[1]).any(-1).nonzero().flatten().tolist()
        assert set(numbers) <= set(named) if len(named) >= 3 else set(named) <= set(numbers)
        hits += int(source) in numbers
    assert recall == hits / 40 and 0.7 < recall < 1


def test_search_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(ArgumentError, match=r"jumok\[retrieval\]"):
        measure_retrieval([256, 512], steps=1)


def test_costs_of_found_passages_do_not_grow() -> None:
    costs, search = measure_reading([1024, 4096], rounds=1, seed=0)
    memory = {cost.way: cost.peak_bytes for cost in costs}
    assert list(memory) == list(WAYS) and all(min(cost.milliseconds) > 0 for cost in costs)
    for way, (_, searched) in WAYS.items():
        small, large = memory[way]
        assert large == small if searched else 2 * small < large < 5 * small, way
    assert memory["prompt"][0] > 1.5 * memory["found"][0]
    assert min(search.question_milliseconds) > 0 and search.index_bytes[1] > 3 * search.index_bytes[0]


@pytest.mark.parametrize("lengths", [[1024], [2048, 1024], [128, 256], [1000, 2000], [16384, 32768]])
def test_lengths_that_cannot_be_measured(lengths: list[int]) -> None:
    with pytest.raises(ArgumentError, match="lengths must be"):
        measure_reading(lengths, rounds=1, seed=0)


def test_arguments_are_checked() -> None:
    with pytest.raises(ArgumentError, match="at least 1"):
        measure_retrieval(steps=0)
    with pytest.raises(ArgumentError, match="choose one of full, fusion, window, linear"):
        create_reader("sparse")


@pytest.mark.slow
def test_fusion_learns_to_answer_about_the_passages_of_the_training() -> None:
    reader = train_reader("fusion", steps=200, seed=0)
    batch = create_passages(200, 8, 12, torch.Generator().manual_seed(1))
    with torch.no_grad():
        right = reader(batch.passages, batch.questions).argmax(-1) == batch.answers
    assert right.double().mean() > 0.4  # a value of one of the 8 passages at random: 0.16


def test_progress_counts_every_step() -> None:
    steps: list[tuple[int, int]] = []
    measure_retrieval([256, 512], steps=1, questions=3, rounds=1, progress=lambda *step: steps.append(step))
    assert steps == [(number, 8) for number in range(1, 9)]  # two rounds for each length, a step for each reader


@pytest.mark.parametrize("language", ["en", "ko"])
def test_tables_sentences_and_picture(outcome: Result, language: str, tmp_path: Path) -> None:
    tables = [table.select_language(language) for table in outcome.tables]
    assert [len(table) for table in tables] == [9, 9, 8]
    assert all(len({len(row) for row in table}) == 1 for table in tables)
    fields = outcome.to_json(language)
    assert len(fields["explanation"]) == 4 and not fields["holds"] and fields["passages"] == TESTED
    assert any("한" in text or "습니다" in text for text in fields["explanation"]) == (language == "ko")
    picture = outcome.save_picture(tmp_path / "retrieval.svg", language).read_text()
    assert "<svg" in picture


def test_exceptions_name_what_did_not_come_out(outcome: Result) -> None:
    right = {
        "prompt": (1.0, 0.95, 0.9, 0.7, 0.5), "found": (1.0, 0.95, 0.9, 0.9, 0.9), "fusion": (1.0, 0.95, 0.9, 0.8, 0.7),
        "fusion found": (1.0, 0.9, 0.9, 0.9, 0.9), "window": (0.6, 0.4, 0.3, 0.2, 0.15),
        "linear": (1.0, 0.9, 0.8, 0.5, 0.2),
    }  # fmt: skip
    exponents = {"prompt": 1.8, "found": 0.0, "fusion": 1.1, "fusion found": 0.1, "window": 1.0, "linear": 1.1}

    def build(way: str | None = None, scores: tuple[float, ...] = (), exponent: float | None = None) -> Result:
        changed = {**right, way: scores} if way and scores else right
        slopes = {**exponents, way: exponent} if way and exponent is not None else exponents
        costs = tuple(replace(cost, exponent=slopes[cost.way]) for cost in outcome.numbers["costs"])
        quality = tuple(WayQuality(name, (changed[name],)) for name in WAYS)
        return describe_retrieval(Retrieval(**{**outcome.numbers, "costs": costs, "quality": quality}))

    def list_exceptions(*arguments: object) -> list[str]:
        texts = build(*arguments).exceptions  # type: ignore[arg-type]
        assert all(text.korean for text in texts)
        return [text.english for text in texts]

    assert list_exceptions() == []
    (text,) = list_exceptions("linear", (), 1.5)
    assert text == "linear attention, all: up to 512 tokens, the time grows with exponent 1.50, in theory 1."
    (text,) = list_exceptions("linear", (0.5, 0.3, 0.2, 0.1, 0.1))
    assert text.startswith("linear attention, all: only 30% right at 8 passages")
    (text,) = list_exceptions("found", (1.0, 0.9, 0.8, 0.6, 0.4))
    assert "at 64 passages, 40% right instead of 50% with all of them" in text
    (text,) = list_exceptions("window", (0.6, 0.4, 0.4, 0.4, 0.4))
    assert "the masks leak" in text
