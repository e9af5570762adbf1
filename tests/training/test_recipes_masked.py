"""The recipe masked at a small size: masking, paragraphs, and runs from the user's files to ``jumok.run``."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
import torch

import jumok
from jumok.data.readers.text_examples import TextPiece
from jumok.data.token_shards import TokenShards
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError, DataError, JumokError
from jumok.models.bert import BERT, BERTConfig
from jumok.models.gpt import GPT, GPTConfig
from jumok.models.long import MIXINGS, LongConfig
from jumok.recipes import preview_training, resume_run
from jumok.recipes.language.masked_language_model import (
    choose_positions,
    find_surrounding_tokens,
    list_ordinary_tokens,
    mask_for_evaluation,
    mask_for_training,
    split_paragraphs,
)
from jumok.training.metrics_log import read_metrics
from recipe_runs import SHORT, SMALL, assert_same_run, create_task, load_report, train, write_book
from toys import StopAt, skip_plots

pytestmark = pytest.mark.xdist_group("recipes_masked")

MASKED = {**SHORT, **SMALL, "length": 24, "vocabulary": 300}


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_book(tmp_path_factory.mktemp("book"))


@pytest.fixture(scope="module")
def bert_run(tmp_path_factory: pytest.TempPathFactory, book: Path) -> Path:
    """A BERT that has learned that "year" follows "In"."""
    folder = tmp_path_factory.mktemp("runs") / "bert"
    changes = {**MASKED, "steps": 60, "batch": 16, "evaluate_every": 30, "save_every": 60, "width": 32}
    train("masked", folder, book, **changes)
    return folder


# runs


def test_resumed_run_equals_uninterrupted_run(tmp_path: Path, book: Path) -> None:
    finished, interrupted = tmp_path / "finished", tmp_path / "interrupted"
    changes = {**MASKED, "dropout": 0.1}
    assert train("masked", finished, book, **changes).progress.finished
    files = {path.name for path in finished.iterdir()}
    assert {"run.json", "metrics.jsonl", "report.json", "report.md", "tokenizer", "tokens", "best.json"} <= files
    assert train("masked", interrupted, book, StopAt(3), **changes).signal == signal.SIGTERM
    with skip_plots():
        assert resume_run(interrupted, display=StopAt(5)).signal == signal.SIGTERM
        assert resume_run(interrupted).progress.finished
    assert_same_run(interrupted, finished)
    assert all(number == number for row in read_metrics(finished) for number in row.values())  # no NaN


def test_resumed_run_does_not_read_the_data_again(tmp_path: Path, book: Path) -> None:
    """The tokens are in the run's folder, so that a changed file cannot change the run."""
    copy = tmp_path / "copy.txt"
    copy.write_text((book / "a.txt").read_text(encoding="utf-8"), encoding="utf-8")
    finished, interrupted = tmp_path / "finished", tmp_path / "interrupted"
    train("masked", finished, book / "a.txt", **MASKED)
    train("masked", interrupted, copy, StopAt(3), **MASKED)
    copy.write_text("another text\n" * 50, encoding="utf-8")
    with skip_plots():
        resume_run(interrupted)
    assert_same_run(interrupted, finished)


def test_trained_bert_fills_masks(bert_run: Path) -> None:
    predictions = jumok.run(bert_run, "In [MASK] 7 the cat sat")
    assert len(predictions) == 1 and predictions[0][0]["token"] == "year"
    assert len(jumok.run(bert_run, "the [MASK] sat on the [MASK], and")) == 2
    report = load_report(bert_run)
    assert report["accuracy"] > report["unigram_accuracy"] > 0 and 0 < report["loss"] < 6
    assert report["unknown_rate"] == 0.0 and report["guesses"] > 10
    assert {"text", "hidden", "guesses"} == set(report["examples"][0]) and "___" in report["examples"][0]["text"]
    assert "| text | hidden | guesses |" in (bert_run / "report.md").read_text(encoding="utf-8")


def test_transformers_loads_the_trained_bert(bert_run: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    loaded = jumok.load(bert_run)
    jumok.save(loaded, tmp_path / "huggingface", format="huggingface")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "huggingface")
    text = "the [MASK] sat\non the mat"
    tokens = tokenizer(text)["input_ids"]
    assert tokens == loaded.tokenizer.encode(text) and tokenizer.mask_token == "[MASK]"
    model = AutoModelForMaskedLM.from_pretrained(tmp_path / "huggingface").eval()
    with torch.inference_mode():
        expected, logits = model(torch.tensor([tokens])).logits, loaded.model(torch.tensor([tokens])).logits
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)


def test_masked_continues_a_bert(tmp_path: Path, book: Path, bert_run: Path) -> None:
    changes = {**SHORT, "window": 16}
    finished, interrupted = tmp_path / "finished", tmp_path / "interrupted"
    train("masked", finished, book, start=bert_run, **changes)
    assert read_metrics(finished)[0]["loss"] < 4  # the loaded model has learned the book before
    train("masked", interrupted, book, StopAt(4), start=bert_run, **changes)
    with skip_plots():
        resume_run(interrupted)
    assert_same_run(interrupted, finished)


@pytest.mark.parametrize("head", ["none", "classes"])
def test_masked_adds_a_head_to_a_bert_without_one(head: str, tmp_path: Path, book: Path, bert_run: Path) -> None:
    loaded = jumok.load(bert_run)
    assert isinstance(loaded.config, BERTConfig)
    config = loaded.config.replace(head=head, head_activation="tanh" if head == "classes" else "gelu")
    bert = BERT(config)
    parameters = {name: tensor for name, tensor in loaded.model.state_dict().items() if not name.startswith("head.")}
    bert.load_state_dict(parameters, strict=False)
    jumok.save(bert, tmp_path / "start", tokenizer=loaded.tokenizer)
    train("masked", tmp_path / "run", book, start=tmp_path / "start", **SHORT, window=16)
    assert len(jumok.run(tmp_path / "run", "the [MASK] sat")) == 1
    jumok.save(jumok.load(tmp_path / "run"), tmp_path / "huggingface", format="huggingface")


def test_masked_refuses_models_without_mask_token(tmp_path: Path, book: Path) -> None:
    bert = BERT(BERTConfig(vocabulary=256, length=8, width=8, layers=1, heads=1, hidden=8))
    jumok.save(bert, tmp_path / "no tokenizer")
    jumok.save(bert, tmp_path / "no mask", tokenizer=Tokenizer.for_bytes())
    with pytest.raises(ArgumentError, match="needs a tokenizer with a mask token"):
        train("masked", tmp_path / "run", book, start=tmp_path / "no mask")
    with pytest.raises(ArgumentError, match=r"with a tokenizer; .* is bert without a tokenizer"):
        train("masked", tmp_path / "run", book, start=tmp_path / "no tokenizer")
    jumok.save(GPT(GPTConfig(vocabulary=8, length=8, width=8, layers=1, heads=1, hidden=8)), tmp_path / "gpt")
    with pytest.raises(ArgumentError, match=r"can start only from a bert or long model with a tokenizer; .* is gpt"):
        train("masked", tmp_path / "run", book, start=tmp_path / "gpt")
    assert not (tmp_path / "run").exists()


def test_masked_refuses_invalid_data_and_sizes(tmp_path: Path, book: Path) -> None:
    (tmp_path / "one.txt").write_text("Only one paragraph, and it is not held out.\n")
    with pytest.raises(ArgumentError, match="the held-out split has no paragraph of at least 4 tokens"):
        train("masked", tmp_path / "run", tmp_path / "one.txt", **MASKED)
    (tmp_path / "bad.jsonl").write_text('{"text": "fine and good"}\n{"text": ""}\n')
    with pytest.raises(DataError, match=r"bad\.jsonl:2: "):
        train("masked", tmp_path / "run", tmp_path / "bad.jsonl", **MASKED)
    with pytest.raises(ArgumentError, match=r"a length of 5 is too short"):
        train("masked", tmp_path / "run", book, **{**MASKED, "length": 5})
    with pytest.raises(JumokError, match="must be from 260 to"):
        train("masked", tmp_path / "run", book, **{**MASKED, "vocabulary": 100})
    assert not (tmp_path / "run").exists()

    rows = "".join(json.dumps({"text": f"The {number} cats sat on the mat."}) + "\n" for number in range(60))
    (tmp_path / "mixed.jsonl").write_text(rows + '{"text": ""}\nno JSON\n')
    train("masked", tmp_path / "run", tmp_path / "mixed.jsonl", **MASKED, skip_bad=True)
    assert load_report(tmp_path / "run")["skipped"] == 2


# encoders for long texts


LONG = {**MASKED, "model": "long", "window": 4, "random": 1, "block": 4, "features": 8}


@pytest.mark.parametrize("mixing", MIXINGS)
def test_every_mixing_trains_and_fills_masks(mixing: str, tmp_path: Path, book: Path) -> None:
    changes = {**LONG, "steps": 2, "save_every": 2, "evaluate_every": 2, "mixing": mixing}
    assert train("masked", tmp_path / "run", book, **changes).progress.finished
    loaded = jumok.load(tmp_path / "run")
    assert isinstance(loaded.config, LongConfig) and loaded.config.mixing == mixing and loaded.config.window == 4
    assert len(jumok.run(tmp_path / "run", "the [MASK] sat on the [MASK], and")) == 2


@pytest.mark.parametrize("mixing", ["bigbird", "fnet"])
def test_resumed_long_run_equals_uninterrupted_run(mixing: str, tmp_path: Path, book: Path) -> None:
    finished, interrupted = tmp_path / "finished", tmp_path / "interrupted"
    train("masked", finished, book, **LONG, mixing=mixing)
    train("masked", interrupted, book, StopAt(3), **LONG, mixing=mixing)
    with skip_plots():
        assert resume_run(interrupted).progress.finished
    assert_same_run(interrupted, finished)


def test_trained_long_encoder_fills_masks_and_is_looked_at(tmp_path: Path, book: Path) -> None:
    changes = {
        **LONG, "mixing": "bigbird", "window": 2, "block": 8, "width": 32, "length": 48, "steps": 150, "batch": 16,
        "learning_rate": 1e-2, "matrix_rate": 3e-2, "evaluate_every": 150, "save_every": 150,
    }  # fmt: skip
    train("masked", tmp_path / "run", book, **changes)
    report = load_report(tmp_path / "run")
    assert report["accuracy"] > 2 * report["unigram_accuracy"] > 0 and "held-out examples" in report["what"]
    predictions = jumok.run(tmp_path / "run", "In [MASK] 7 the cat sat")
    assert predictions[0][0]["token"] == "year"
    loaded = jumok.load(tmp_path / "run")
    with jumok.Lens(loaded.model) as lens:
        capture = lens.run(torch.tensor([loaded.tokenizer.encode("In [MASK] 7 the cat sat")]))
    assert capture.weights(0, 1).sum(-1).allclose(torch.ones(1))

    train("masked", tmp_path / "more", book, start=tmp_path / "run", **SHORT)
    assert read_metrics(tmp_path / "more")[0]["loss"] < 4  # the loaded model has learned the book before
    assert jumok.load(tmp_path / "more").config == loaded.config


def test_long_examples_are_joined_paragraphs_of_equal_length(tmp_path: Path, book: Path) -> None:
    task = create_task("masked", tmp_path / "run", book, {**MASKED, "model": "long", "mixing": "fnet", "length": 50})
    batch, tokenizer = task.batches(0, 0, 1), task.loaded.tokenizer
    assert batch.inputs["tokens"].shape == (4, 50) and batch.inputs["token_mask"].all()
    assert (batch.inputs["tokens"] == tokenizer.separator).sum() > 2 * 4  # between paragraphs, and at the end
    for step in range(30):  # a separator is never masked
        assert not {tokenizer.separator, tokenizer.classify} & set(task.batches(step, 0, 1).targets.tolist())
    shards = [TokenShards(tmp_path / "run" / "tokens" / side) for side in ("train", "held-out")]
    texts = [{tuple(shard.read_list(number).tolist()) for number in range(shard.lists)} for shard in shards]
    assert all(len(text) == 48 for text in texts[0] | texts[1]) and not texts[0] & texts[1]
    # between separators, the examples have the paragraphs of the book
    paragraphs = {
        " ".join(text.split()) for name in "ab" for text in (book / f"{name}.txt").read_text("utf-8").split("\n\n")
    }
    inner = [part.strip() for text in texts[0] for part in tokenizer.decode(text).split("[SEP]")[1:-1]]
    assert len(inner) > 50 and set(inner) <= paragraphs


def test_long_needs_text_for_one_example(tmp_path: Path, book: Path, bert_run: Path) -> None:
    with pytest.raises(ArgumentError, match="the train split has fewer than 3998 tokens, which is one example"):
        train("masked", tmp_path / "run", book, **{**MASKED, "length": 4000, "model": "long"})
    with pytest.raises(ArgumentError, match="model of the masked recipe applies only without --from"):
        train("masked", tmp_path / "run", book, start=bert_run, model="long")
    with pytest.raises(ArgumentError, match="no field 'mixing'"):
        train("masked", tmp_path / "run", book, **MASKED, mixing="fnet")
    assert not (tmp_path / "run").exists()


# masking


def test_training_masks_15_percent_as_in_the_paper() -> None:
    """80 % of the chosen tokens become the mask token, 10 % a random token, 10 % stay; nothing else changes."""
    tokenizer = Tokenizer.train(["a b c"], 400, {"pad": "[PAD]", "mask": "[MASK]", "classify": "[CLS]"})
    assert tokenizer.vocabulary < 400
    tokens = torch.full((400, 40), 70)
    maskable = torch.ones(400, 40, dtype=torch.bool)
    maskable[:, 0] = maskable[:, 33:] = False
    inputs, positions = mask_for_training(tokens, maskable, tokenizer, torch.Generator().manual_seed(3))
    assert (positions.sum(-1) == 5).all() and not (positions & ~maskable).any()  # 15 % of 32
    assert torch.equal(inputs[~positions], tokens[~positions])

    chosen = inputs[positions]
    assert (chosen == tokenizer.mask).float().mean() == pytest.approx(0.8, abs=0.03)
    assert (chosen == 70).float().mean() == pytest.approx(0.1, abs=0.03)
    replaced = chosen[(chosen != tokenizer.mask) & (chosen != 70)]
    assert len(replaced) / len(chosen) == pytest.approx(0.1, abs=0.03) and len(replaced.unique()) > 80
    assert not {tokenizer.pad, tokenizer.mask, tokenizer.classify} & set(replaced.tolist())
    assert len(list_ordinary_tokens(tokenizer)) == tokenizer.vocabulary - 3
    # every position is equally probable
    assert positions[:, 1:33].float().mean(0).std() < 0.03


def test_short_row_has_one_masked_position() -> None:
    maskable = torch.zeros(3, 9, dtype=torch.bool)
    maskable[:, 4] = True
    assert torch.equal(choose_positions(maskable, torch.Generator().manual_seed(0)), maskable)


def test_evaluation_masks_are_fixed() -> None:
    tokenizer = Tokenizer.train(["a b c"], 400, {"pad": "[PAD]", "mask": "[MASK]", "classify": "[CLS]"})
    tokens, maskable = torch.full((40, 40), 70), torch.ones(40, 40, dtype=torch.bool)
    inputs, positions = mask_for_evaluation(tokens, maskable, tokenizer, 5)
    assert torch.equal(inputs, mask_for_evaluation(tokens, maskable, tokenizer, 5)[0])
    assert (inputs[positions] == tokenizer.mask).all()
    assert not torch.equal(positions, mask_for_evaluation(tokens, maskable, tokenizer, 6)[1])


def test_surrounding_tokens_are_those_of_the_tokenizer() -> None:
    special = {"pad": "[PAD]", "classify": "[CLS]", "separator": "[SEP]"}
    tokenizer = Tokenizer.train(["some text"], 262, special, ["classify"], ["separator", "separator"])
    assert find_surrounding_tokens(tokenizer) == ([1], [2, 2])
    assert find_surrounding_tokens(Tokenizer.for_bytes()) == ([], [])
    assert tokenizer.decode(tokenizer.encode("그 text"), special=False) == "그 text"
    with pytest.raises(ArgumentError, match="a vocabulary of 258 is too small"):
        Tokenizer.train(["text"], 258, special)


# batches and paragraphs


def test_batches_are_a_pure_function(tmp_path: Path, book: Path) -> None:
    task = create_task("masked", tmp_path / "run", book, MASKED)
    batch = task.batches(3, 0, 1)
    assert torch.equal(batch.inputs["tokens"], task.batches(3, 0, 1).inputs["tokens"])
    halves = [task.batches(3, part, 2) for part in (0, 1)]
    assert torch.equal(torch.cat([half.targets for half in halves]), batch.targets)
    assert torch.equal(torch.cat([half.inputs["tokens"] for half in halves]), batch.inputs["tokens"])
    assert sum(half.count for half in halves) == batch.count == len(batch.targets)
    assert not torch.equal(batch.inputs["tokens"], task.batches(4, 0, 1).inputs["tokens"])
    # [CLS] and [SEP] are around every row and are never targets
    tokenizer, tokens, token_mask = task.loaded.tokenizer, batch.inputs["tokens"], batch.inputs["token_mask"]
    assert (tokens[:, 0] == tokenizer.classify).all()
    assert (tokens.gather(1, token_mask.sum(-1, keepdim=True) - 1) == tokenizer.separator).all()
    special = {tokenizer.classify, tokenizer.separator, tokenizer.pad, tokenizer.mask}
    assert not special & set(batch.targets.tolist())


def test_scored_positions_have_the_logits_of_all_positions(tmp_path: Path, book: Path) -> None:
    task = create_task("masked", tmp_path / "run", book, MASKED)
    inputs = task.batches(3, 0, 1).inputs
    model = task.model.eval()
    logits = model(**inputs).logits
    all_logits = model(inputs["tokens"], token_mask=inputs["token_mask"]).logits
    torch.testing.assert_close(logits, all_logits[inputs["positions_to_score"]])
    without_head = BERT(BERTConfig(vocabulary=300, length=24, width=8, layers=1, heads=1, hidden=8))
    with pytest.raises(ArgumentError, match="positions_to_score needs a masked-language-model head"):
        without_head(inputs["tokens"], positions_to_score=inputs["positions_to_score"])


def test_held_out_paragraphs_are_never_trained_on(tmp_path: Path, book: Path) -> None:
    task = create_task("masked", tmp_path / "run", book, {**MASKED, "length": 90})
    assert task.data["examples"] > 4 * task.data["held_out"] > 0
    train_texts, held_out_texts = (
        {task.loaded.tokenizer.decode(shards.read_list(number).tolist()) for number in range(shards.lists)}
        for shards in (TokenShards(tmp_path / "run" / "tokens" / side) for side in ("train", "held-out"))
    )
    assert not train_texts & held_out_texts and len(held_out_texts) == task.data["held_out"]


def test_paragraphs_end_at_empty_lines() -> None:
    pieces = [
        TextPiece("a\nb\n\n\n c\n", False),
        TextPiece("d\n", True),
        TextPiece("e", True),
        TextPiece("\n\nf g\n\n", True),
    ]
    assert list(split_paragraphs(pieces)) == ["a b", "c d", "e", "f g"]
    long_text = [TextPiece("word\n" * 2000, True)]
    assert [len(paragraph.split()) for paragraph in split_paragraphs(long_text)] == [1001, 999]


def test_fields_of_the_simple_transformer_reach_the_model(tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("\n\n".join(f"The door number {n} is open today." for n in range(60)))
    sizes = {"vocabulary": 300, "length": 64, "width": 16, "layers": 2, "heads": 2, "hidden": 24, "segments": 0}
    with_biases = preview_training("masked", data=tmp_path / "texts.txt", **sizes)["parameters"]
    without = preview_training("masked", data=tmp_path / "texts.txt", **sizes, attention_bias=False, final_norm=True)[
        "parameters"
    ]
    assert with_biases - without == 2 * 4 * 16
