"""The recipe translate at a small size, from the user's pairs to ``jumok.run``, and tables of several runs."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
import torch

import jumok
from jumok.data.readers.lines import ProblemLog
from jumok.errors import ArgumentError, DataError, JumokError
from jumok.models.gpt import GPT, GPTConfig
from jumok.models.t5 import T5, T5Config
from jumok.recipes import TrainingRequest, resume_run
from jumok.recipes.language.parallel_text import MAX_HELD_OUT, TranslateOptions, find_korean_column, read_side
from jumok.recipes.report import compare_runs, format_markdown
from jumok.recipes.shared.text_scores import choose_bleu_tokenization, score_translations
from jumok.training.metrics_log import read_metrics
from recipe_runs import SHORT, SMALL, assert_same_run, create_task, load_report, train, write_pairs
from toys import StopAt, skip_plots

pytestmark = pytest.mark.xdist_group("recipes_translate")

TRANSFORMER = {**SHORT, **SMALL, "length": 32, "vocabulary": 320, "average": 0.5}
LEARNING_STEPS = 160
LSTM = {**SHORT, "width": 16, "embedding_width": 16, "vocabulary": 320, "model": "lstm"}
CASES: dict[str, dict[str, Any]] = {
    "transformer": {**TRANSFORMER, "dropout": 0.1},
    "lstm": {**LSTM, "dropout": 0.1, "accumulate": 2},
}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pairs(tmp_path_factory.mktemp("pairs") / "pairs.tsv")


@pytest.fixture(scope="module")
def translators(tmp_path_factory: pytest.TempPathFactory, pairs: Path) -> Path:
    """A finished run of each model."""
    folder = tmp_path_factory.mktemp("runs")
    for model, changes in CASES.items():
        assert train("translate", folder / model, pairs, **changes).progress.finished
    return folder


@pytest.mark.parametrize("model", CASES)
def test_resumed_run_equals_uninterrupted_run(model: str, tmp_path: Path, pairs: Path, translators: Path) -> None:
    finished, interrupted = translators / model, tmp_path / "interrupted"
    files = {path.name for path in finished.iterdir()}
    assert {"run.json", "metrics.jsonl", "report.json", "report.md", "tokenizer", "tokens", "best.json"} <= files
    assert train("translate", interrupted, pairs, StopAt(3), **CASES[model]).signal == signal.SIGTERM
    with skip_plots():
        assert resume_run(interrupted, display=StopAt(5)).signal == signal.SIGTERM
        assert resume_run(interrupted).progress.finished
    assert_same_run(interrupted, finished)
    assert all(number == number for row in read_metrics(finished) for number in row.values())  # no NaN


@pytest.mark.parametrize("model", CASES)
def test_trained_model_translates(model: str, translators: Path) -> None:
    translation = jumok.run(translators / model, "Open file 7", limit=12)
    assert isinstance(translation, str) and "</s>" not in translation
    assert isinstance(jumok.run(translators / model, ["Open file 7", "Close"], beams=4, limit=5), list)
    report = load_report(translators / model)
    assert report["model"] == {"transformer": "transformer", "lstm": "rnn_seq2seq"}[model]
    for name in ("bleu", "chrf", "bleu_beam_4", "chrf_beam_4", "bleu_copied", "chrf_copied"):
        assert 0 <= report[name] <= 100
    assert report["direction"] == "source-target" and report["unknown_rate"] == 0.0 and report["too_long"] == 0
    assert "characters" in report["what"] and "tok:char" in report["scores"]
    assert {"source", "reference", "translation"} == set(report["translations"][0])


def test_transformer_learns_to_translate(tmp_path: Path, pairs: Path) -> None:
    """After enough steps for the four words and the number, scores are far above those of the copied source."""
    changes = {"steps": LEARNING_STEPS, "batch": 32, "learning_rate": 5e-3, "warmup": 20, "average": 0.9}
    small = {"width": 32, "layers": 1, "heads": 4, "hidden": 64, "length": 32, "vocabulary": 320, "dropout": 0.0}
    train("translate", tmp_path / "run", pairs, **changes, **small)
    report = load_report(tmp_path / "run")
    assert report["chrf"] > report["chrf_copied"] + 30 and report["bleu"] > report["bleu_copied"] + 20
    assert "열기" in jumok.run(tmp_path / "run", "Open file 7")


def test_transformers_loads_the_transformer_as_pegasus(translators: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer, PegasusForConditionalGeneration

    loaded = jumok.load(translators / "transformer")
    jumok.save(loaded, tmp_path / "huggingface", format="huggingface")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "huggingface")
    tokens = tokenizer("Open file 7")["input_ids"]
    assert tokens == loaded.tokenizer.encode("Open file 7") and tokens[-1] == loaded.tokenizer.end
    model = PegasusForConditionalGeneration.from_pretrained(tmp_path / "huggingface").eval()
    source, target = torch.tensor([tokens]), torch.tensor([[loaded.tokenizer.begin, 40, 50]])
    with torch.inference_mode():
        expected = model(input_ids=source, decoder_input_ids=target).logits
        torch.testing.assert_close(loaded.model(source, target).logits, expected, rtol=1e-4, atol=1e-4)
    translation = jumok.run(translators / "transformer", "Open file 7", limit=9)
    assert jumok.run(tmp_path / "huggingface", "Open file 7", limit=9) == translation
    with pytest.raises(JumokError, match="rnn_seq2seq"):
        jumok.save(jumok.load(translators / "lstm"), tmp_path / "lstm", format="huggingface")


def test_batches_are_a_pure_function(tmp_path: Path, pairs: Path) -> None:
    task = create_task("translate", tmp_path / "run", pairs, TRANSFORMER)
    batch, halves = task.batches(5, 0, 1), [task.batches(5, part, 2) for part in (0, 1)]
    assert batch.count == sum(half.count for half in halves) == int((batch.targets != -100).sum())
    end, start = task.loaded.tokenizer.end, task.loaded.tokenizer.begin
    for part in (batch, *halves):
        inputs, targets = part.inputs, part.targets
        assert (inputs["target"][:, 0] == start).all()
        # the decoder reads its targets shifted by one position; every target ends with the end token
        continued = (targets[:, :-1] != -100) & (targets[:, 1:] != -100)
        assert torch.equal(inputs["target"][:, 1:][continued], targets[:, :-1][continued])
        lengths = (targets != -100).sum(-1)
        assert (targets.gather(1, lengths[:, None] - 1) == end).all()
        token_mask = inputs.get("source_token_mask", torch.ones_like(inputs["source"], dtype=torch.bool))
        assert (inputs["source"].gather(1, token_mask.sum(-1, keepdim=True) - 1) == end).all()

    def decode(rows: torch.Tensor) -> list[str]:
        return [task.loaded.tokenizer.decode(row[row != -100].tolist(), special=False) for row in rows]

    assert decode(batch.targets) == [text for half in halves for text in decode(half.targets)]


def test_held_out_pairs_are_never_trained_on(tmp_path: Path, pairs: Path) -> None:
    request = TrainingRequest("translate", tmp_path / "run", str(pairs), changes=TRANSFORMER)
    options = TranslateOptions.parse(request)
    train_pairs, held_out = (list(read_side(request, options, side, ProblemLog())) for side in ("train", "held-out"))
    held_out_sources = {source for source, _ in held_out}
    assert len(train_pairs) + len(held_out) == 120
    assert not {source for source, _ in train_pairs} & held_out_sources
    task = create_task("translate", tmp_path / "run", pairs, TRANSFORMER)
    assert task.data["pairs"] == len(train_pairs) and task.data["held_out"] == len(held_out) < MAX_HELD_OUT
    lines = (tmp_path / "run" / "held-out.jsonl").read_text(encoding="utf-8").splitlines()
    assert {json.loads(line)["source"] for line in lines} == held_out_sources


def test_translate_reads_other_columns(tmp_path: Path) -> None:
    rows = [json.dumps({"en": f"Door {number}", "ko": f"문 {number}"}, ensure_ascii=False) for number in range(40)]
    (tmp_path / "a.jsonl").write_text("\n".join(rows), encoding="utf-8")
    train("translate", tmp_path / "run", tmp_path / "a.jsonl", **TRANSFORMER, source="ko", target="en")
    report = load_report(tmp_path / "run")
    assert report["direction"] == "ko-en" and "tok:13a" in report["scores"]
    assert report["translations"][0]["source"].startswith("문 ")


@pytest.mark.parametrize("columns", ["en-ko", "ko-en"])
@pytest.mark.parametrize("direction", ["en-ko", "ko-en", "both"])
def test_direction_arranges_the_columns_of_a_file(columns: str, direction: str, tmp_path: Path) -> None:
    rows = [(f"Door {number}", f"문 {number}") for number in range(60)] + [("OK", "OK")]
    lines = ["\t".join(pair if columns == "en-ko" else pair[::-1]) for pair in rows]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines), encoding="utf-8")
    changes = {**TRANSFORMER, "direction": direction}
    request = TrainingRequest("translate", tmp_path / "run", str(tmp_path / "pairs.tsv"), changes=changes)
    options = TranslateOptions.parse(request)
    train_pairs, held_out = (list(read_side(request, options, side, ProblemLog())) for side in ("train", "held-out"))

    two_directions = [pair for row in rows for pair in (row, row[::-1])]
    by_direction = {"en-ko": rows, "ko-en": [pair[::-1] for pair in rows], "both": two_directions}
    expected = by_direction[direction]
    assert set(train_pairs) | set(held_out) <= set(expected) and train_pairs and held_out
    if direction == "both":
        held_out_sources = {source for source, _ in held_out}
        assert not held_out_sources & {text for pair in train_pairs for text in pair}, "nor in the other direction"
        assert {source.split()[0] for source in held_out_sources} >= {"Door", "문"}
        assert set(train_pairs) == {(target, source) for source, target in train_pairs}
    else:
        assert len(train_pairs) + len(held_out) == len(rows)


def test_a_model_of_both_directions_is_trained_on_a_file(tmp_path: Path) -> None:
    lines = [f"Door {number}\t문 {number}" for number in range(60)]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines), encoding="utf-8")
    train("translate", tmp_path / "run", tmp_path / "pairs.tsv", **TRANSFORMER, direction="both")
    report = load_report(tmp_path / "run")
    assert report["direction"] == "both" and [row["direction"] for row in report["directions"]] == ["ko-en", "en-ko"]


def test_direction_needs_a_korean_and_an_english_column(tmp_path: Path) -> None:
    table = tmp_path / "pairs.csv"
    table.write_text("ko,en\n" + "\n".join(f"moon {n},door {n}" for n in range(40)), encoding="utf-8")
    with pytest.raises(ArgumentError, match="0% of the first and 0% of the second texts have Hangul; name the columns"):
        train("translate", tmp_path / "run", table, **TRANSFORMER, direction="ko-en")
    assert find_korean_column([("moon", "door")], ("Korean", "en")) == 0  # romanised, but the names tell
    table.write_text("de,en\n" + "\n".join(f"Tür {n},door {n}" for n in range(40)), encoding="utf-8")
    with pytest.raises(ArgumentError, match="direction needs one Korean and one English column"):
        train("translate", tmp_path / "run", table, **TRANSFORMER, direction="both", source="de", target="en")
    table.write_text("ko,en\n" + "\n".join(f"문 {n},door {n}" for n in range(40)), encoding="utf-8")
    with pytest.raises(ArgumentError, match="the source column en is English, which contradicts direction=ko-en"):
        train("translate", tmp_path / "run", table, **TRANSFORMER, direction="ko-en", source="en", target="ko")


def test_translate_reads_po_files(tmp_path: Path) -> None:
    messages = "".join(f'msgid "Lamp {number}"\nmsgstr "램프 {number}"\n\n' for number in range(40))
    (tmp_path / "a.po").write_text(messages, encoding="utf-8")
    train("translate", tmp_path / "run", tmp_path / "a.po", **LSTM, source="msgstr")
    assert load_report(tmp_path / "run")["translations"][0]["source"].startswith("램프 ")


@pytest.mark.parametrize(
    ("direction", "prefix"),
    [("en-ko", "{0} opens door "), ("ko-en", "{0}이 문 "), ("both", ("{0} opens door ", "{0}이 문 "))],
)
def test_translate_numbers_placeholders_of_the_catalogue(
    direction: str, prefix: str | tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "catalogue"
    english = {f"key{number}": f"{{name}} opens door {number}" for number in range(40)}
    korean = {f"key{number}": f"{{name}}이 문 {number} 열기" for number in range(40)}
    for language, texts in (("en", english), ("ko", korean)):
        (folder / language).mkdir(parents=True)
        (folder / language / "a.json").write_text(json.dumps(texts), encoding="utf-8")
    monkeypatch.setattr("jumok.data.datasets.text_corpora.require_entry_folder", lambda *_: folder)
    train("translate", tmp_path / "run", None, **TRANSFORMER, direction=direction)
    report = load_report(tmp_path / "run")
    assert report["direction"] == direction
    assert report["translations"][0]["source"].startswith(prefix)
    assert ("directions" in report) == (direction == "both")
    assert report["pairs"] == (2 if direction == "both" else 1) * 35  # of 40; the others are held out


@pytest.mark.parametrize("model", CASES)
def test_translate_continues_its_own_model(model: str, tmp_path: Path, pairs: Path, translators: Path) -> None:
    changes = {**SHORT, "smoothing": 0, "longest": 16}
    finished, interrupted = tmp_path / "finished", tmp_path / "interrupted"
    train("translate", finished, pairs, start=translators / model, **changes)
    train("translate", interrupted, pairs, StopAt(4), start=translators / model, **changes)
    with skip_plots():
        resume_run(interrupted)
    assert_same_run(interrupted, finished)


def test_translate_continues_a_t5(tmp_path: Path, pairs: Path, translators: Path) -> None:
    tokenizer = jumok.load(translators / "lstm").tokenizer
    t5 = T5(T5Config(vocabulary=tokenizer.vocabulary, width=16, layers=1, heads=2, head_width=8, hidden=16, end=2))
    jumok.save(t5, tmp_path / "t5", tokenizer=tokenizer)
    train("translate", tmp_path / "run", pairs, start=tmp_path / "t5", **SHORT, smoothing=0, longest=16)
    assert isinstance(jumok.run(tmp_path / "run", "Open file 7", limit=5), str)
    jumok.save(t5, tmp_path / "no tokenizer")
    with pytest.raises(ArgumentError, match="is t5 without a tokenizer"):
        train("translate", tmp_path / "no", pairs, start=tmp_path / "no tokenizer")
    jumok.save(GPT(GPTConfig(vocabulary=8, length=8, width=8, layers=1, heads=1, hidden=8)), tmp_path / "gpt")
    with pytest.raises(ArgumentError, match="is gpt without a tokenizer"):
        train("translate", tmp_path / "no", pairs, start=tmp_path / "gpt")


def test_translate_refuses_invalid_data_and_fields(tmp_path: Path, pairs: Path) -> None:
    valid = pairs.read_text(encoding="utf-8")
    (tmp_path / "bad.tsv").write_text(valid + "only one column\n\tempty source\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"bad\.tsv:121: "):
        train("translate", tmp_path / "run", tmp_path / "bad.tsv", **TRANSFORMER)
    with pytest.raises(ArgumentError, match="direction of the recipe config must be one of en-ko, ko-en"):
        train("translate", tmp_path / "run", None, direction="en-fr")
    (tmp_path / "few.tsv").write_text("one\t하나\n", encoding="utf-8")
    with pytest.raises(ArgumentError, match="no pair was held out"):
        train("translate", tmp_path / "run", tmp_path / "few.tsv", **TRANSFORMER)
    assert not (tmp_path / "run").exists()

    long_lines = "".join(f"{'word ' * 40}{number}\t낱말\n" for number in range(20))
    (tmp_path / "bad.tsv").write_text(valid + long_lines + "only one column\n\tempty source\n", encoding="utf-8")
    train("translate", tmp_path / "run", tmp_path / "bad.tsv", **TRANSFORMER, skip_bad=True)
    report = load_report(tmp_path / "run")
    assert report["skipped"] == 2 and 15 <= report["too_long"] <= 20


def test_missing_sacrebleu_is_reported_before_training(
    tmp_path: Path, pairs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(ArgumentError, match=r'pip install "jumok\[train\]"'):
        train("translate", tmp_path / "run", pairs, **TRANSFORMER)


def test_scores_equal_those_of_sacrebleu() -> None:
    translations, references = ["파일을 열어요", "창 닫기"], ["파일 열기", "창 닫기"]
    scores = score_translations(translations, references, "char")
    bleu = sacrebleu.corpus_bleu(translations, [references], tokenize="char").score
    chrf = sacrebleu.corpus_chrf(translations, [references]).score
    assert scores["bleu"] == pytest.approx(bleu, abs=0.01) and scores["chrf"] == pytest.approx(chrf, abs=0.01)
    assert choose_bleu_tokenization(references) == "char"
    assert choose_bleu_tokenization(["Open the file", "문"]) == "13a"


# several runs in one table


def test_compare_runs_has_one_row_for_each_run(translators: Path, tmp_path: Path) -> None:
    masked = tmp_path / "masked"
    masked.mkdir()
    (masked / "report.json").write_text(json.dumps({"recipe": "masked", "steps": 6, "accuracy": 0.25}))
    table = compare_runs([translators / "transformer", translators / "lstm", masked])
    assert [row["model"] for row in table] == ["transformer", "rnn_seq2seq", None]
    assert table[0]["run"] == str(translators / "transformer") and table[2]["accuracy"] == 0.25
    assert len({tuple(row) for row in table}) == 1 and "translations" not in table[0] and "what" not in table[0]
    assert f"| {translators / 'lstm'} | translate |" in format_markdown("runs", {"runs": table})
    with pytest.raises(ArgumentError, match="there is no report in"):
        compare_runs([tmp_path])
    with pytest.raises(ArgumentError, match="there are no runs to compare"):
        compare_runs([])
