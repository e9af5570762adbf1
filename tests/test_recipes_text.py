"""The recipes that learn from texts: text, text-fast, masked, translate; small enough for a test, whole from the data
of a user to what jumok run says."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import jumok
from jumok.checkpoint import run_folder
from jumok.data.readers.documents import TextPiece
from jumok.data.readers.lines import ProblemLog
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError, DataError, JumokError
from jumok.models.bert import BERT, BERTConfig
from jumok.models.gpt import GPT, GPTConfig
from jumok.models.t5 import T5, T5Config
from jumok.recipes import TrainingRequest, get_recipe, resume_run, start_run
from jumok.recipes.compare_runs import compare_runs
from jumok.recipes.language.masking import (
    choose_positions,
    find_surrounding_tokens,
    list_ordinary_tokens,
    mask_for_evaluation,
    mask_for_training,
)
from jumok.recipes.language.paragraphs import split_paragraphs
from jumok.recipes.language.parallel_text import MAX_HELD_OUT, _read_pairs
from jumok.recipes.report import format_markdown
from jumok.recipes.shared.run_tokenizer import learn_tokenizer
from jumok.recipes.shared.text_scores import choose_bleu_tokenization, score_translations
from jumok.training import Outcome
from jumok.training.metrics_log import read_metrics
from jumok.training.progress import ProgressDisplay
from toys import StopAt

SHORT = {"steps": 6, "batch": 4, "evaluate_every": 3, "save_every": 2, "log_every": 1, "warmup": 1}
SMALL = {"width": 16, "layers": 1, "heads": 2, "hidden": 32}
MASKED = {**SHORT, **SMALL, "length": 24, "vocabulary": 300}
TRANSFORMER = {**SHORT, **SMALL, "length": 32, "vocabulary": 320, "average": 0.5}
LSTM = {**SHORT, "width": 16, "embedding_width": 16, "vocabulary": 320, "model": "lstm"}
GPT_FIELDS = {**SHORT, "width": 16, "layers": 1, "heads": 2, "hidden": 32, "length": 16}


def go(name: str, folder: Path, data: Path | None, show: ProgressDisplay | None = None, **fields: Any) -> Outcome:
    heard: list[str] = []
    asked = TrainingRequest(
        name, folder, None if data is None else str(data), fields.pop("start", None), report=heard.append
    )
    asked.skip_bad = fields.pop("skip_bad", False)
    asked.changes = fields
    return start_run(asked, display=show)


def report_of(folder: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return told


def assert_same_run(one: Path, other: Path) -> None:
    """Equal to the last bit: what was learned, every number on the way, and the report."""
    assert (one / "metrics.jsonl").read_text() == (other / "metrics.jsonl").read_text()
    last = [run_folder.read_pointer(folder, "last") for folder in (one, other)]
    assert last[0] is not None and last[1] is not None and last[0].name == last[1].name
    for name in ("model.safetensors", "optimizer.safetensors", "state.safetensors"):
        assert (last[0] / name).read_bytes() == (last[1] / name).read_bytes(), name
    assert report_of(one) == report_of(other)


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 paragraphs of a few words each, in two files of a folder."""
    folder = tmp_path_factory.mktemp("book")
    animals, verbs, places = ("cat", "dog", "owl", "고양이"), ("sat", "slept", "sang"), ("mat", "roof", "hill")
    made = [
        f"In year {number} the {animals[number % 4]} {verbs[number % 3]}\non the {places[number % 5 % 3]} and was glad."
        for number in range(200)
    ]
    (folder / "a.txt").write_text("\n\n".join(made[:120]) + "\n", encoding="utf-8")
    (folder / "b.txt").write_text("\n\n".join(made[120:]) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    lines = [f"Open file {number}\t파일 {number} 열기" for number in range(60)]
    lines += [f"Close window {number}\t창 {number} 닫기" for number in range(60)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


# every recipe: whole, and the same however often it stops

WAYS = {
    "text": ("text", "book", GPT_FIELDS),
    "text-fast": ("text-fast", "book", {**GPT_FIELDS, "tokens": "learned", "vocabulary": 300}),
    "masked": ("masked", "book", {**MASKED, "dropout": 0.1}),
    "transformer": ("translate", "pairs", {**TRANSFORMER, "dropout": 0.1}),
    "lstm": ("translate", "pairs", {**LSTM, "dropout": 0.1, "accumulate": 2}),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_run_is_whole_and_stopping_changes_nothing(way: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    name, source, fields = WAYS[way]
    data = request.getfixturevalue(source)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert go(name, whole, data, **fields).progress.finished
    assert {"run.json", "metrics.jsonl", "report.json", "report.md", "tokenizer", "tokens", "best.json"} <= {
        one.name for one in whole.iterdir()
    }
    assert go(name, cut, data, StopAt(3), **fields).signal == signal.SIGTERM
    assert resume_run(cut, display=StopAt(5)).signal == signal.SIGTERM
    assert resume_run(cut).progress.finished
    assert_same_run(whole, cut)
    assert all(value == value for one in read_metrics(whole) for value in one.values())  # no NaN


def test_a_run_goes_on_without_the_data_it_was_made_from(tmp_path: Path, book: Path) -> None:
    """What was prepared is in the folder: a file that changed or went away meanwhile cannot change the run."""
    mine = tmp_path / "mine.txt"
    mine.write_text((book / "a.txt").read_text(encoding="utf-8"), encoding="utf-8")
    for name, fields in (("masked", MASKED), ("text", GPT_FIELDS)):
        whole, cut = tmp_path / f"{name}-whole", tmp_path / f"{name}-cut"
        go(name, whole, book / "a.txt", **fields)
        go(name, cut, mine, StopAt(3), **fields)
        mine.write_text("something else altogether\n" * 50, encoding="utf-8")
        resume_run(cut)
        assert_same_run(whole, cut)
        mine.write_text((book / "a.txt").read_text(encoding="utf-8"), encoding="utf-8")


# text


@pytest.fixture(scope="module")
def gpt_run(tmp_path_factory: pytest.TempPathFactory, book: Path) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "gpt"
    go("text", folder, book, **GPT_FIELDS, tokens="learned", vocabulary=290)
    return folder


def test_text_goes_on_with_what_it_is_given(gpt_run: Path) -> None:
    loaded = jumok.load(gpt_run)
    assert loaded.config.vocabulary == loaded.tokenizer.vocabulary == 290
    written = jumok.run(gpt_run, "In year", limit=6)
    assert isinstance(written, str) and written
    told = report_of(gpt_run)
    assert told["recipe"] == "text" and told["unknown_rate"] == 0.0 and told["sample"]
    assert "over the whole last tenth of the text" in told["what"]


def test_a_learned_vocabulary_is_as_large_as_the_text_allows(tmp_path: Path) -> None:
    """A model with more tokens than its tokenizer would be asked for tokens that nobody can write."""
    (tmp_path / "a.txt").write_text("ab\n" * 300, encoding="utf-8")
    go("text", tmp_path / "run", tmp_path / "a.txt", **GPT_FIELDS, tokens="learned", vocabulary=2000)
    loaded = jumok.load(tmp_path / "run")
    assert loaded.config.vocabulary == loaded.tokenizer.vocabulary < 300


def test_text_takes_a_tokenizer_like_gpt2s(tmp_path: Path, book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "like-gpt2"
    place.mkdir()
    letters = {chr(letter): letter - 33 for letter in range(33, 127)} | {
        "Ġ": 94,
        "Ċ": 95,
        "th": 96,
        "<|endoftext|>": 97,
    }
    (place / "vocab.json").write_text(json.dumps(letters), encoding="utf-8")
    (place / "merges.txt").write_text("#version: 0.2\nt h\n", encoding="utf-8")
    monkeypatch.setattr("jumok.data.catalogue.download_entry", lambda name, report=None: place)
    (tmp_path / "data").mkdir()
    for name in "ab":
        (tmp_path / "data" / f"{name}.txt").write_text("the other thing\n" * 40, encoding="utf-8")
    go("text-fast", tmp_path / "run", tmp_path / "data", **GPT_FIELDS, tokens="gpt2")
    loaded = jumok.load(tmp_path / "run")
    assert loaded.config.vocabulary == 98 and loaded.tokenizer.end == 97
    data = json.loads((tmp_path / "run" / "run.json").read_text())["data_facts"]
    one = len(loaded.tokenizer.encode("the other thing\n" * 40))
    assert data["tokens"] == 2 * (one + 1)  # the end of a text stands behind each file


def test_text_starts_from_a_run(tmp_path: Path, book: Path, gpt_run: Path) -> None:
    """Its model and its tokenizer; what it has become goes on when the start is gone."""
    begun = tmp_path / "begun"
    jumok.save(jumok.load(gpt_run), begun)
    fields = {**SHORT, "window": 8}
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    go("text", whole, book, start=str(begun), **fields)
    go("text", cut, book, StopAt(4), start=str(begun), **fields)
    for file in begun.iterdir():
        file.unlink()
    resume_run(cut)
    assert_same_run(whole, cut)
    first = read_metrics(whole)[0]["loss"]
    scratch = tmp_path / "scratch"
    go("text", scratch, book, **{**GPT_FIELDS, "steps": 1}, tokens="learned", vocabulary=290)
    assert first < read_metrics(scratch)[0]["loss"]
    told = json.loads((whole / "run.json").read_text())
    assert told["settings"]["learning_rate"] == 1e-4 and told["settings"]["optimizer"] == "adamw"
    for name in ("text", "text-fast"):
        with pytest.raises(ArgumentError, match=r"window of the recipe .* must be from 2 to 16, not 17"):
            go(name, tmp_path / "long", book, start=str(gpt_run), **{**fields, "window": 17})
        assert not (tmp_path / "long").exists()


def test_text_evaluates_a_sample_of_a_long_text(tmp_path: Path, book: Path) -> None:
    whole, part = tmp_path / "whole", tmp_path / "part"
    go("text", whole, book, **GPT_FIELDS)
    go("text", part, book, **GPT_FIELDS, evaluated=40)
    assert report_of(part)["what"].endswith("the beginning of the last tenth of the text (40 tokens)")
    assert report_of(part)["loss"] != report_of(whole)["loss"]


def test_text_refuses_what_cannot_be(tmp_path: Path, book: Path) -> None:
    (tmp_path / "short.txt").write_text("short\n")
    with pytest.raises(ArgumentError, match=r"the text has 6 tokens, .* --set length="):
        go("text", tmp_path / "run", tmp_path / "short.txt")
    with pytest.raises(ArgumentError, match="tokens=learned only"):
        go("text", tmp_path / "run", book, vocabulary=400)
    (tmp_path / "bad.txt").write_bytes(b"fine\n" * 300 + b"caf\xe9\n" + b"fine\n" * 300)
    with pytest.raises(DataError, match=r"bad\.txt:301: character 4 is byte E9"):
        go("text", tmp_path / "run", tmp_path / "bad.txt", **GPT_FIELDS)
    with pytest.raises(DataError, match=r"bad\.txt:301: character 4 is byte E9"):
        go("text", tmp_path / "run", tmp_path / "bad.txt", **GPT_FIELDS, tokens="learned")
    assert not (tmp_path / "run").exists()
    go("text", tmp_path / "run", tmp_path / "bad.txt", **GPT_FIELDS, skip_bad=True)
    bert = BERT(BERTConfig(vocabulary=20, length=8, width=8, layers=1, heads=1, hidden=8))
    jumok.save(bert, tmp_path / "bert")
    with pytest.raises(ArgumentError, match="continues a gpt that has a tokenizer"):
        go("text", tmp_path / "again", book, start=str(tmp_path / "bert"))


# masked


@pytest.fixture(scope="module")
def bert_run(tmp_path_factory: pytest.TempPathFactory, book: Path) -> Path:
    """Trained until it knows the book a little: what follows 'In' is 'year'."""
    folder = tmp_path_factory.mktemp("runs") / "bert"
    go(
        "masked",
        folder,
        book,
        **{**MASKED, "steps": 60, "batch": 16, "evaluate_every": 30, "save_every": 60, "width": 32},
    )
    return folder


def test_masked_fills_what_is_hidden(bert_run: Path) -> None:
    found = jumok.run(bert_run, "In [MASK] 7 the cat sat")
    assert len(found) == 1 and found[0][0]["token"] == "year"
    assert len(jumok.run(bert_run, "the [MASK] sat on the [MASK], and")) == 2
    told = report_of(bert_run)
    assert told["accuracy"] > told["unigram_accuracy"] > 0 and 0 < told["loss"] < 6
    assert told["unknown_rate"] == 0.0 and told["guesses"] > 10
    assert {"text", "hidden", "guesses"} == set(told["examples"][0]) and "___" in told["examples"][0]["text"]
    assert "| text | hidden | guesses |" in (bert_run / "report.md").read_text(encoding="utf-8")


def test_masked_is_written_as_transformers_have_it(bert_run: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    loaded = jumok.load(bert_run)
    jumok.save(loaded, tmp_path / "theirs", format="huggingface")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "theirs")
    ids = tokenizer("the [MASK] sat\non the mat")["input_ids"]
    assert ids == loaded.tokenizer.encode("the [MASK] sat\non the mat") and tokenizer.mask_token == "[MASK]"
    model = AutoModelForMaskedLM.from_pretrained(tmp_path / "theirs").eval()
    with torch.inference_mode():
        wanted, found = model(torch.tensor([ids])).logits, loaded.model(torch.tensor([ids])).logits
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_masked_hides_what_the_paper_says() -> None:
    """15 % of each row: 80 % of them behind the mask, 10 % behind any token, 10 % as they are; nothing else changes."""
    tokenizer = learn_tokenizer(["a b c"], 400, {"pad": "[PAD]", "mask": "[MASK]", "classify": "[CLS]"})
    assert tokenizer.vocabulary < 400
    tokens = torch.full((400, 40), 70)
    free = torch.ones(400, 40, dtype=torch.bool)
    free[:, 0] = free[:, 33:] = False
    seen, places = mask_for_training(tokens, free, tokenizer, torch.Generator().manual_seed(3))
    assert (places.sum(-1) == 5).all() and not (places & ~free).any()  # 15 % of 32
    assert torch.equal(seen[~places], tokens[~places])
    asked = seen[places]
    assert (asked == tokenizer.mask).float().mean() == pytest.approx(0.8, abs=0.03)
    assert (asked == 70).float().mean() == pytest.approx(0.1, abs=0.03)
    others = asked[(asked != tokenizer.mask) & (asked != 70)]
    assert len(others) / len(asked) == pytest.approx(0.1, abs=0.03) and len(others.unique()) > 80
    assert not {tokenizer.pad, tokenizer.mask, tokenizer.classify} & set(others.tolist())
    assert len(list_ordinary_tokens(tokenizer)) == tokenizer.vocabulary - 3
    # each place is as likely as any other, and a short row has one
    assert places[:, 1:33].float().mean(0).std() < 0.03
    few = torch.zeros(3, 9, dtype=torch.bool)
    few[:, 4] = True
    assert torch.equal(choose_positions(few, torch.Generator().manual_seed(0)), few)
    # held-out places are the same each time, and all of them are hidden
    once, again = (mask_for_evaluation(tokens, free, tokenizer, 5) for _ in range(2))
    assert torch.equal(once[0], again[0]) and (once[0][once[1]] == tokenizer.mask).all()
    assert not torch.equal(once[1], mask_for_evaluation(tokens, free, tokenizer, 6)[1])


def test_masked_batches_are_a_pure_function(tmp_path: Path, book: Path) -> None:
    (tmp_path / "run").mkdir()
    task = get_recipe("masked").build(TrainingRequest("masked", tmp_path / "run", str(book), changes=MASKED))
    whole = task.batches(3, 0, 1)
    assert torch.equal(whole.inputs["tokens"], task.batches(3, 0, 1).inputs["tokens"])
    halves = [task.batches(3, part, 2) for part in (0, 1)]
    assert torch.equal(torch.cat([one.targets for one in halves]), whole.targets)
    assert torch.equal(torch.cat([one.inputs["tokens"] for one in halves]), whole.inputs["tokens"])
    assert sum(one.count for one in halves) == whole.count == len(whole.targets)
    assert not torch.equal(whole.inputs["tokens"], task.batches(4, 0, 1).inputs["tokens"])
    # [CLS] and [SEP] stand around every row and are never asked for
    tokenizer, tokens, real = task.tokenizer, whole.inputs["tokens"], whole.inputs["token_mask"]
    assert (tokens[:, 0] == tokenizer.classify).all()
    assert (tokens.gather(1, real.sum(-1, keepdim=True) - 1) == tokenizer.separator).all()
    assert not {tokenizer.classify, tokenizer.separator, tokenizer.pad, tokenizer.mask} & set(whole.targets.tolist())
    # logits at the places are those of the whole text
    model = task.model.eval()
    at_places = model(**whole.inputs).logits
    everywhere = model(tokens, token_mask=real).logits
    torch.testing.assert_close(at_places, everywhere[whole.inputs["positions_to_score"]])


def test_masked_holds_out_paragraphs(tmp_path: Path, book: Path) -> None:
    """What is tested on is never trained on, and the vocabulary has not seen it either."""
    (tmp_path / "run").mkdir()
    task = get_recipe("masked").build(
        TrainingRequest("masked", tmp_path / "run", str(book), changes={**MASKED, "length": 90})
    )
    assert task.data["examples"] > 4 * task.data["held_out"] > 0
    from jumok.data.token_store.token_shards import TokenShards

    sides = [TokenShards(tmp_path / "run" / "tokens" / name) for name in ("train", "held-out")]
    texts = [{task.tokenizer.decode(one.read_list(number).tolist()) for number in range(one.lists)} for one in sides]
    assert not texts[0] & texts[1] and len(texts[1]) == task.data["held_out"]


def test_paragraphs_end_at_empty_lines() -> None:
    pieces = [
        TextPiece("a\nb\n\n\n c\n", False),
        TextPiece("d\n", True),
        TextPiece("e", True),
        TextPiece("\n\nf g\n\n", True),
    ]
    assert list(split_paragraphs(pieces)) == ["a b", "c d", "e", "f g"]
    long = [TextPiece("word\n" * 2000, True)]
    assert [len(one.split()) for one in split_paragraphs(long)] == [1001, 999]


def test_masked_goes_on_with_a_bert(tmp_path: Path, book: Path, bert_run: Path) -> None:
    """With a head for masked tokens, and one that is given a head: MiniLM has none, a classifier another."""
    fields = {**SHORT, "window": 16}
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    go("masked", whole, book, start=str(bert_run), **fields)
    assert read_metrics(whole)[0]["loss"] < 4  # it knows the book already
    go("masked", cut, book, StopAt(4), start=str(bert_run), **fields)
    resume_run(cut)
    assert_same_run(whole, cut)
    loaded = jumok.load(bert_run)
    assert isinstance(loaded.config, BERTConfig)
    for head in ("none", "classes"):
        bare = BERT(loaded.config.replace(head=head, head_activation="tanh" if head == "classes" else "gelu"))
        kept = {name: one for name, one in loaded.model.state_dict().items() if not name.startswith("head.")}
        bare.load_state_dict(kept, strict=False)
        jumok.save(bare, tmp_path / head, tokenizer=loaded.tokenizer)
        go("masked", tmp_path / f"from-{head}", book, start=str(tmp_path / head), **fields)
        assert len(jumok.run(tmp_path / f"from-{head}", "the [MASK] sat")) == 1
        jumok.save(jumok.load(tmp_path / f"from-{head}"), tmp_path / f"theirs-{head}", format="huggingface")
    jumok.save(bare, tmp_path / "mute")
    jumok.save(bare, tmp_path / "maskless", tokenizer=Tokenizer.for_bytes())
    for name in ("mute", "maskless"):
        with pytest.raises(ArgumentError, match="needs a tokenizer with a mask token"):
            go("masked", tmp_path / "no", book, start=str(tmp_path / name))
    gpt = GPT(GPTConfig(vocabulary=8, length=8, width=8, layers=1, heads=1, hidden=8))
    jumok.save(gpt, tmp_path / "gpt")
    with pytest.raises(ArgumentError, match=r"continues a bert; .* is a gpt"):
        go("masked", tmp_path / "no", book, start=str(tmp_path / "gpt"))
    assert not (tmp_path / "no").exists()


def test_masked_refuses_what_cannot_be(tmp_path: Path, book: Path) -> None:
    (tmp_path / "one.txt").write_text("Only one paragraph, and it is not held out.\n")
    with pytest.raises(ArgumentError, match="the held-out part has no paragraph of 4 or more tokens"):
        go("masked", tmp_path / "run", tmp_path / "one.txt", **MASKED)
    (tmp_path / "bad.jsonl").write_text('{"text": "fine and good"}\n{"text": ""}\n')
    with pytest.raises(DataError, match=r"bad\.jsonl:2: "):
        go("masked", tmp_path / "run", tmp_path / "bad.jsonl", **MASKED)
    with pytest.raises(ArgumentError, match=r"a length of 5 leaves no room"):
        go("masked", tmp_path / "run", book, **{**MASKED, "length": 5})
    with pytest.raises(JumokError, match="must be from 260 to"):
        go("masked", tmp_path / "run", book, **{**MASKED, "vocabulary": 100})
    assert not (tmp_path / "run").exists()
    rows = "".join(json.dumps({"text": f"The {number} cats sat on the mat."}) + "\n" for number in range(60))
    (tmp_path / "mixed.jsonl").write_text(rows + '{"text": ""}\nno JSON\n')
    go("masked", tmp_path / "run", tmp_path / "mixed.jsonl", **MASKED, skip_bad=True)
    assert report_of(tmp_path / "run")["skipped"] == 2


# translate


@pytest.fixture(scope="module")
def translators(tmp_path_factory: pytest.TempPathFactory, pairs: Path) -> Path:
    """Both models, trained for a moment."""
    folder = tmp_path_factory.mktemp("runs")
    go("translate", folder / "transformer", pairs, **TRANSFORMER)
    go("translate", folder / "lstm", pairs, **LSTM)
    return folder


@pytest.mark.parametrize("model", ["transformer", "lstm"])
def test_a_translator_is_used_at_once(model: str, translators: Path) -> None:
    found = jumok.run(translators / model, "Open file 7", limit=12)
    assert isinstance(found, str) and "</s>" not in found
    assert isinstance(jumok.run(translators / model, ["Open file 7", "Close"], beams=4, limit=5), list)
    told = report_of(translators / model)
    assert told["model"] == {"transformer": "transformer", "lstm": "rnn_seq2seq"}[model]
    for name in ("bleu", "chrf", "bleu_beam_4", "chrf_beam_4", "bleu_copied", "chrf_copied"):
        assert 0 <= told[name] <= 100
    assert told["direction"] == "source-target" and told["unknown_rate"] == 0.0 and told["too_long"] == 0
    assert "characters" in told["what"] and "tok:char" in told["scores"]
    assert {"source", "reference", "translation"} == set(told["translations"][0])


def test_a_translator_learns(tmp_path: Path, pairs: Path) -> None:
    """Enough steps to know the four words and to copy the number: far above copying the source."""
    fields = {"steps": 250, "batch": 32, "evaluate_every": 125, "save_every": 250, "learning_rate": 5e-3, "warmup": 20}
    small = {"width": 32, "layers": 1, "heads": 4, "hidden": 64, "length": 32, "vocabulary": 320, "dropout": 0.0}
    go("translate", tmp_path / "run", pairs, **fields, **small, average=0.9)
    told = report_of(tmp_path / "run")
    assert told["chrf"] > told["chrf_copied"] + 30 and told["bleu"] > told["bleu_copied"] + 20
    assert "열기" in jumok.run(tmp_path / "run", "Open file 7")


def test_only_the_transformer_is_written_as_transformers_have_it(translators: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer, PegasusForConditionalGeneration

    loaded = jumok.load(translators / "transformer")
    jumok.save(loaded, tmp_path / "theirs", format="huggingface")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "theirs")
    ids = tokenizer("Open file 7")["input_ids"]
    assert ids == loaded.tokenizer.encode("Open file 7") and ids[-1] == loaded.tokenizer.end
    model = PegasusForConditionalGeneration.from_pretrained(tmp_path / "theirs").eval()
    source, target = torch.tensor([ids]), torch.tensor([[loaded.tokenizer.begin, 40, 50]])
    with torch.inference_mode():
        wanted = model(input_ids=source, decoder_input_ids=target).logits
        torch.testing.assert_close(loaded.model(source, target).logits, wanted, rtol=1e-4, atol=1e-4)
    given = jumok.run(translators / "transformer", "Open file 7", limit=9)
    assert jumok.run(tmp_path / "theirs", "Open file 7", limit=9) == given
    with pytest.raises(JumokError, match="rnn_seq2seq"):
        jumok.save(jumok.load(translators / "lstm"), tmp_path / "no", format="huggingface")


def test_translate_batches_are_a_pure_function(tmp_path: Path, pairs: Path) -> None:
    (tmp_path / "run").mkdir()
    task = get_recipe("translate").build(
        TrainingRequest("translate", tmp_path / "run", str(pairs), changes=TRANSFORMER)
    )
    whole, halves = task.batches(5, 0, 1), [task.batches(5, part, 2) for part in (0, 1)]
    assert whole.count == sum(one.count for one in halves) == int((whole.targets != -100).sum())
    end, start = task.tokenizer.end, task.tokenizer.begin
    for batch in (whole, *halves):
        inputs, targets = batch.inputs, batch.targets
        assert (inputs["target"][:, 0] == start).all()
        # the decoder reads what it has to write, one place later; a text ends with its end
        kept = targets[:, :-1] != -100
        assert torch.equal(
            inputs["target"][:, 1:][kept & (targets[:, 1:] != -100)], targets[:, :-1][kept & (targets[:, 1:] != -100)]
        )
        lengths = (targets != -100).sum(-1)
        assert (targets.gather(1, lengths[:, None] - 1) == end).all()
        real = inputs.get("source_token_mask", torch.ones_like(inputs["source"], dtype=torch.bool))
        assert (inputs["source"].gather(1, real.sum(-1, keepdim=True) - 1) == end).all()
    rows = [task.tokenizer.decode(row[row != -100].tolist(), special=False) for row in whole.targets]
    again = [task.tokenizer.decode(row[row != -100].tolist(), special=False) for one in halves for row in one.targets]
    assert rows == again


def test_translate_knows_its_sides(tmp_path: Path, pairs: Path) -> None:
    asked = TrainingRequest("translate", tmp_path / "run", str(pairs), changes=TRANSFORMER)
    train, held = (list(_read_pairs(asked, side, ProblemLog())) for side in ("train", "held-out"))
    assert len(train) + len(held) == 120 and not {one for one, _ in train} & {one for one, _ in held}
    (tmp_path / "run").mkdir()
    task = get_recipe("translate").build(asked)
    assert task.data["pairs"] == len(train) and task.data["held_out"] == len(held) < MAX_HELD_OUT
    lines = (tmp_path / "run" / "held-out.jsonl").read_text(encoding="utf-8").splitlines()
    assert {json.loads(line)["source"] for line in lines} == {one for one, _ in held}


def test_translate_reads_other_columns_and_po_files(tmp_path: Path) -> None:
    rows = [json.dumps({"en": f"Door {one}", "ko": f"문 {one}"}, ensure_ascii=False) for one in range(40)]
    (tmp_path / "a.jsonl").write_text("\n".join(rows), encoding="utf-8")
    go("translate", tmp_path / "ko", tmp_path / "a.jsonl", **TRANSFORMER, source="ko", target="en")
    told = report_of(tmp_path / "ko")
    assert told["direction"] == "ko-en" and "tok:13a" in told["scores"]
    assert told["translations"][0]["source"].startswith("문 ")
    messages = "".join(f'msgid "Lamp {one}"\nmsgstr "램프 {one}"\n\n' for one in range(40))
    (tmp_path / "a.po").write_text(messages, encoding="utf-8")
    go("translate", tmp_path / "po", tmp_path / "a.po", **LSTM, source="msgstr")
    assert report_of(tmp_path / "po")["translations"][0]["source"].startswith("램프 ")


def test_translate_learns_from_the_catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both directions, placeholders numbered."""
    place = tmp_path / "fetched"
    english = {f"key{number}": f"{{name}} opens door {number}" for number in range(40)}
    korean = {f"key{number}": f"{{name}}이 문 {number} 열기" for number in range(40)}
    for language, told in (("en", english), ("ko", korean)):
        (place / language).mkdir(parents=True)
        (place / language / "a.json").write_text(json.dumps(told), encoding="utf-8")
    monkeypatch.setattr("jumok.data.datasets.text_corpora.locate_or_download", lambda name, report=None: place)
    for direction, first in (("en-ko", "{0} opens door "), ("ko-en", "{0}이 문 ")):
        go("translate", tmp_path / direction, None, **TRANSFORMER, direction=direction)
        assert report_of(tmp_path / direction)["direction"] == direction
        assert report_of(tmp_path / direction)["translations"][0]["source"].startswith(first)
    with pytest.raises(ArgumentError, match="direction of the recipe config must be one of en-ko, ko-en"):
        go("translate", tmp_path / "no", None, direction="en-fr")


def test_translate_goes_on_with_a_model(tmp_path: Path, pairs: Path, translators: Path) -> None:
    fields = {**SHORT, "smoothing": 0, "longest": 16}
    for model in ("transformer", "lstm"):
        whole, cut = tmp_path / f"{model}-whole", tmp_path / f"{model}-cut"
        go("translate", whole, pairs, start=str(translators / model), **fields)
        go("translate", cut, pairs, StopAt(4), start=str(translators / model), **fields)
        resume_run(cut)
        assert_same_run(whole, cut)
    tokenizer = jumok.load(translators / "lstm").tokenizer
    t5 = T5(T5Config(vocabulary=tokenizer.vocabulary, width=16, layers=1, heads=2, head_width=8, hidden=16, end=2))
    jumok.save(t5, tmp_path / "t5", tokenizer=tokenizer)
    go("translate", tmp_path / "t5-run", pairs, start=str(tmp_path / "t5"), **fields)
    assert isinstance(jumok.run(tmp_path / "t5-run", "Open file 7", limit=5), str)
    gpt = GPT(GPTConfig(vocabulary=8, length=8, width=8, layers=1, heads=1, hidden=8))
    jumok.save(gpt, tmp_path / "gpt")
    jumok.save(t5, tmp_path / "mute")
    for name, said in (("gpt", "is a gpt without a tokenizer"), ("mute", "is a t5 without a tokenizer")):
        with pytest.raises(ArgumentError, match=said):
            go("translate", tmp_path / "no", pairs, start=str(tmp_path / name))


def test_translate_refuses_what_cannot_be(tmp_path: Path, pairs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = pairs.read_text(encoding="utf-8")
    (tmp_path / "bad.tsv").write_text(good + "only one column\n\tempty source\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"bad\.tsv:121: "):
        go("translate", tmp_path / "run", tmp_path / "bad.tsv", **TRANSFORMER)
    with pytest.raises(ArgumentError, match="direction of the recipe translate applies only without --data"):
        go("translate", tmp_path / "run", pairs, **TRANSFORMER, direction="en-ko")
    (tmp_path / "few.tsv").write_text("one\t하나\n", encoding="utf-8")
    with pytest.raises(ArgumentError, match="none of the pairs was held out"):
        go("translate", tmp_path / "run", tmp_path / "few.tsv", **TRANSFORMER)
    assert not (tmp_path / "run").exists()
    long = good + "".join(f"{'word ' * 40}{number}\t낱말\n" for number in range(20))
    (tmp_path / "bad.tsv").write_text(long + "only one column\n\tempty source\n", encoding="utf-8")
    go("translate", tmp_path / "run", tmp_path / "bad.tsv", **TRANSFORMER, skip_bad=True)
    told = report_of(tmp_path / "run")
    assert told["skipped"] == 2 and 15 <= told["too_long"] <= 20
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(ArgumentError, match="pip install 'jumok\\[train\\]'"):
        go("translate", tmp_path / "no", pairs, **TRANSFORMER)


def test_scores_are_sacrebleus() -> None:
    sacrebleu = pytest.importorskip("sacrebleu")
    found, wanted = ["파일을 열어요", "창 닫기"], ["파일 열기", "창 닫기"]
    told = score_translations(found, wanted, "char")
    assert told["bleu"] == pytest.approx(sacrebleu.corpus_bleu(found, [wanted], tokenize="char").score, abs=0.01)
    assert told["chrf"] == pytest.approx(sacrebleu.corpus_chrf(found, [wanted]).score, abs=0.01)
    assert choose_bleu_tokenization(wanted) == "char" and choose_bleu_tokenization(["Open the file", "문"]) == "13a"


# several runs in one table


def test_figures_of_several_runs_stand_in_one_table(translators: Path, bert_run: Path, tmp_path: Path) -> None:
    table = compare_runs([translators / "transformer", translators / "lstm", bert_run])
    assert [row["model"] for row in table] == ["transformer", "rnn_seq2seq", None]
    assert (
        table[0]["run"] == str(translators / "transformer") and table[2]["accuracy"] == report_of(bert_run)["accuracy"]
    )
    assert len({tuple(row) for row in table}) == 1 and "translations" not in table[0] and "what" not in table[0]
    assert f"| {translators / 'lstm'} | translate |" in format_markdown("runs", {"runs": table})
    with pytest.raises(ArgumentError, match="there is no report in"):
        compare_runs([tmp_path])
    with pytest.raises(ArgumentError, match="there are no runs to compare"):
        compare_runs([])


def test_around_a_text_stand_the_tokens_that_its_model_expects() -> None:
    special = {"pad": "[PAD]", "classify": "[CLS]", "separator": "[SEP]"}
    made = learn_tokenizer(["some text"], 262, special, ["classify"], ["separator", "separator"])
    assert find_surrounding_tokens(made) == ([1], [2, 2]) and find_surrounding_tokens(Tokenizer.for_bytes()) == ([], [])
    assert made.decode(made.encode("그 text"), special=False) == "그 text"
    with pytest.raises(ArgumentError, match="a vocabulary of 258 is too small"):
        learn_tokenizer(["text"], 258, special)
