"""The commands jumok look and jumok effect."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from PIL import Image

import jumok
from jumok.cli import cli
from jumok.cli.arguments import read_if_text_file
from jumok.cli.look.look_reports import TEXTS
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import JumokError
from jumok.lens import classify_heads
from jumok.lens.describe.head_kinds import KEY_KINDS, OTHER_KINDS
from jumok.lens.describe.head_statistics import merge_into_words
from jumok.models.gpt import GPT, GPTConfig
from jumok.models.numeric import Numeric, NumericConfig
from jumok.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
from jumok.tasks.labelled_input import prepare_input

TEXT = "the cat sat; the cat"
KOREAN = "주목은 주의다. 주목은"


def run_text(*words: str) -> str:
    process = CliRunner().invoke(cli, list(words), catch_exceptions=False)
    assert process.exit_code == 0, process.output
    return process.stdout


def run_json(*words: str) -> Any:
    return json.loads(run_text(*words, "--json"))


def test_look_prints_what_the_lens_captures() -> None:
    tiny = jumok.load("tiny")
    with jumok.Lens(tiny) as lens:
        capture = lens.run(TEXT)
    shown = run_json("look", TEXT, "--top", "2")
    assert shown["source"] == list(TEXT.replace(" ", "␣"))
    names = {(kind.site, kind.head): kind.name for kind in classify_heads(capture, list(TEXT.encode()))}
    for row in shown["heads"]:
        assert row["kind"] == names[f"blocks.{row['layer']}.attention", row["head"]]
        assert row["future"] == 0 and row["sums"] < 1e-6
    for token in shown["tokens"]:
        expected = capture.top(token["token"], 2)
        assert [(row["key"], row["head"]) for row in token["sources"]] == [(top.key, top.head) for top in expected]
        for row, top in zip(token["sources"], expected, strict=True):
            assert row["weight"] == pytest.approx(top.weight, abs=1e-6)


def test_default_model_is_tiny_and_has_an_induction_head() -> None:
    shown = run_text("look", TEXT)
    assert shown == run_text("look", "tiny", TEXT)
    assert any(line.split()[:3] == ["1", "0", "induction"] for line in shown.splitlines())
    assert any(line.strip().startswith("t[19] <- ␣[7] 0.90 (1.0)") for line in shown.splitlines()), (
        "a space follows the earlier 'cat'"
    )


def test_words_merges_korean_tokens() -> None:
    shown = run_json("look", KOREAN, "--words", "--layer", "1", "--head", "0")
    assert [token["label"] for token in shown["tokens"]] == ["주목은", "주의다.", "주목은"]
    with jumok.Lens(jumok.load("tiny")) as lens:
        weights = lens.run(KOREAN).weights(1, 0)
    words = [range(9), range(9, 20), range(20, 30)]
    expected = merge_into_words(weights, words, words)[2]
    for source in shown["tokens"][2]["sources"]:
        assert source["weight"] == pytest.approx(float(expected[source["key"]]), abs=1e-5)
    letters = run_json("look", KOREAN)["source"]
    assert letters[:4] == ["주₁", "주₂", "주₃", "목₁"]


@pytest.mark.parametrize("command", ["look", "effect"])
def test_numbers_outside_the_trained_range_are_reported(command: str, tmp_path: Path) -> None:
    trained: Any = {"trained_length": 3, "trained_lowest": 0.0, "trained_highest": 100.0}
    config = NumericConfig(width=8, heads=2, layers=1, hidden=8, **trained)
    jumok.save(Numeric(config), tmp_path / "numeric")
    trained_input = CliRunner().invoke(cli, [command, str(tmp_path / "numeric"), "1,2,3"], catch_exceptions=False)
    assert trained_input.exit_code == 0 and trained_input.stderr == ""
    process = CliRunner().invoke(cli, [command, str(tmp_path / "numeric"), "1,2,300,4"], catch_exceptions=False)
    assert process.exit_code == 0, "it is a warning"
    expected = "not trained on such an input (4 instead of 3 numbers, 300 instead of numbers from 0 to 100)"
    assert f"jumok: this model was {expected}, so its answer may be wrong" in process.stderr
    assert expected in run_json(command, str(tmp_path / "numeric"), "1,2,300,4")["warning"]


def test_words_hides_special_tokens_and_says_so() -> None:
    arguments = ["look", "translator", "나는 학교에 간다", "--layer", "encoder.0"]
    by_tokens = run_json(*arguments)
    shown = run_json(*arguments, "--words", "--top", "9")
    assert by_tokens["source"][-1] == "</s>" and "hidden" not in by_tokens
    assert shown["hidden"] == ["</s>"]
    assert [token["label"] for token in shown["tokens"]] == ["나는", "학교에", "간다"]
    assert "hidden by --words: </s>; the rows of words sum to 1 only together" in run_text(*arguments, "--words")

    loaded = jumok.load("translator")
    with jumok.Lens(loaded) as lens:
        weights = lens.run("나는 학교에 간다", "").weights("encoder.0.attention", 2)
    assert weights.shape[1] == len(by_tokens["source"])
    words = run_json(*arguments, "--head", "2", "--words", "--top", "9")["tokens"]
    for query, row in enumerate(words):
        total = sum(source["weight"] for source in row["sources"])
        assert total < 0.99, "the weight on </s> is not given to the words"
        query_tokens = prepare_input(loaded, "나는 학교에 간다").source_words[query][1]
        expected = 1 - weights[query_tokens.start : query_tokens.stop, -1].mean()
        assert total == pytest.approx(float(expected), abs=1e-5)


def test_words_and_skip_first_skip_the_first_token_once(tmp_path: Path) -> None:
    """A hidden first token is skipped already: the first word stays."""
    tokenizer = Tokenizer.train(["the cat sat"] * 3, 300, {"begin": "<s>"})
    folder = jumok.save(
        GPT(GPTConfig(vocabulary=300, width=8, heads=2, layers=1)), tmp_path / "gpt", tokenizer=tokenizer
    )
    arguments = ["look", str(folder), "<s>the cat sat", "--words", "--query", "cat", "--json"]
    process = CliRunner().invoke(cli, [*arguments, "--skip-first"], catch_exceptions=False)
    assert "--words hides the first token, <s>, so --skip-first has no effect" in process.stderr
    assert process.stdout == CliRunner().invoke(cli, arguments, catch_exceptions=False).stdout
    assert json.loads(process.stdout)["hidden"] == ["<s>"]


def test_look_draws_one_head_and_all_heads(tmp_path: Path) -> None:
    single, grid, drawing = tmp_path / "one.png", tmp_path / "grid.png", tmp_path / "one.svg"
    run_text("look", KOREAN, "--layer", "1", "--head", "0", "--words", "--png", str(single), "--svg", str(drawing))
    assert run_json("look", TEXT, "--png", str(grid))["pictures"] == [str(grid)]
    assert 300 < measure_width(single) < measure_width(grid)
    assert "<svg" in drawing.read_text(encoding="utf-8")


def read_svg_texts(path: Path) -> list[str]:
    return re.findall("<!-- (.*?) -->", path.read_text(encoding="utf-8"))


def test_the_caption_of_a_pooled_map_names_its_first_key(tmp_path: Path) -> None:
    text = "quick " + "brown fox " * 42
    for options in (["--layer", "0", "--head", "1"], ["--layer", "0"], ["--layer", "0", "--words"]):
        path = tmp_path / "map.svg"
        run_text("look", text, *options, "--skip-first", "--svg", str(path))
        first_key = "quick" if "--words" in options else "q"
        assert any(f"without the first key, {first_key!r}" in caption for caption in read_svg_texts(path))
        assert first_key in read_svg_texts(path)


def test_a_picture_of_the_model_has_a_row_for_each_layer_and_all_heads(tmp_path: Path) -> None:
    path = tmp_path / "model.svg"
    assert f"wrote {path}\n" in run_text("look", TEXT, "--svg", str(path), "--skip-first", "--scale", "sqrt")
    texts = read_svg_texts(path)
    assert [text for text in texts if text.startswith(("layer", "head"))] == ["layer 0", "head 0", "head 1", "layer 1"]
    assert "rows are queries, columns are keys; without the first key" in texts
    assert "weights of 4 heads" in texts and "weight (square-root scale)" in texts


def test_a_long_text_is_drawn_as_maxima(tmp_path: Path) -> None:
    """The induction head's weights on single tokens stay dark in a picture with fewer cells than tokens."""
    path, long_text = tmp_path / "head.svg", ("qzv kxw pmf " * 20)[:210]
    run_text("look", long_text, "--layer", "-1", "--svg", str(path))  # the grid of a layer shows 135 cells
    assert "each cell is the maximum of up to 2 x 2 weights; the axes count positions" in read_svg_texts(path)
    run_text("look", long_text, "--layer", "-1", "--head", "-1", "--svg", str(path))
    assert not any("maximum" in text for text in read_svg_texts(path))


def test_negative_layers_and_heads_count_from_the_end() -> None:
    assert run_json("look", TEXT, "--layer", "-1", "--head", "-2") == run_json(
        "look", TEXT, "--layer", "1", "--head", "0"
    )


def test_effect_draws_layers_by_heads(tmp_path: Path) -> None:
    path = tmp_path / "effects.svg"
    assert run_json("effect", KOREAN, "--svg", str(path))["pictures"] == [str(path)]
    texts = read_svg_texts(path)
    assert any("log-probability of token" in text for text in texts) and {"layer", "head", "effect"} <= set(texts)
    assert f"wrote {tmp_path / 'e.png'}" in run_text("effect", TEXT, "--png", str(tmp_path / "e.png"))


def measure_width(path: Path) -> int:
    with Image.open(path) as image:
        return image.width


def test_effect_prints_heads_and_edges() -> None:
    heads = run_text("effect", TEXT, "--token", " ")
    assert "log-probability of token '␣' at position -1" in heads
    rows = [line.split() for line in heads.splitlines() if line.strip()[:1].isdigit()]
    assert len(rows) == 4 and [row[0] for row in rows] == ["1", "2", "3", "4"]
    edges = run_text("effect", TEXT, "--over", "edges", "--rows", "3")
    assert "t[19] <- ␣[7]" in edges and "1 of 21" in edges
    assert "largest weights without an effect" in edges and "Pearson" in edges
    effects = run_json("effect", TEXT, "--over", "edges", "--verify", "0")
    assert len(effects["rows"]) == 4 * 20 * 21 // 2 and effects["agreement"] == effects["agreement_of_chosen"]


def test_effect_json_has_the_text_of_tokens() -> None:
    effects = run_json("effect", "ab cd ab", "--token", "c", "--over", "edges", "--verify", "0")
    assert effects["metric"] == "log-probability of token 99 at position -1"
    assert effects["metric_text"] == "log-probability of token 'c' at position -1"
    relation = effects["weight_and_effect"]
    listed = [*effects["rows"], *relation["looked_at_but_useless"], *relation["useful_but_little_looked_at"]]
    for row in listed:
        assert row["query_token"] == "ab␣cd␣ab"[row["query"]] and row["key_token"] == "ab␣cd␣ab"[row["key"]]
    heads = run_json("effect", "ab cd ab", "--token", "c")
    assert all(row["looks_at_token"] == "ab␣cd␣ab"[row["looks_at"]] for row in heads["rows"])


@pytest.mark.parametrize(
    ("words", "metric"),
    [
        (("--right", "b", "--wrong", "a"), "logit of token 98 minus that of token 97"),
        (("--metric", "loss"), "loss over 20 tokens"),
        (("--metric", "kl"), "KL(clean || edited)"),
        (("--token", "x", "--position", "3"), "log-probability of token 120 at position 3"),
        ((), "log-probability of token 32 at position -1"),
    ],
)
def test_options_choose_the_metric(words: tuple[str, ...], metric: str) -> None:
    assert run_json("effect", TEXT, *words)["metric"].startswith(metric)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("look", "tiny", "a", "b"), "put the text in quotes"),
        (("look", "no-such-model", "a"), "no folder or .gguf file 'no-such-model'"),
        (("look", ""), "the text is empty"),
        (("look", TEXT, "--layer", "9"), "there are 2 layers"),
        (
            ("look", TEXT, "--head", "9", "--png", "x.png"),
            "has 2 heads, counted from 0 (-1 is the last); 9 is not one of them",
        ),
        (("look", "a" * 600), "reads at most"),
        (("effect", TEXT, "--right", "a"), "needs two tokens"),
        (("effect", TEXT, "--metric", "class"), "needs --label"),
        (("effect", TEXT, "--token", "a", "--metric", "loss"), "--token and --metric loss select different metrics"),
        (("effect", TEXT, "--token", "a", "--label", "1"), "--token and --label select different metrics"),
        (("effect", "no-such-model", TEXT, "--right", "a"), "needs two tokens"),  # reported before the model is loaded
        (("effect", TEXT, "--token", "주"), "is 3 tokens (주₁ 주₂ 주₃)"),
        (("look", "tiny"), 'tiny is a model; give it an input too: tiny "a text"'),
        (("effect", "smollm2"), "smollm2 is a model"),
        (("look", TEXT, "tiny"), "the model comes first"),
        (("effect", TEXT, "--label", "1"), "has no classes"),
        (("effect", TEXT, "--position", "2"), "--position needs a metric"),
        (("effect", TEXT, "--metric", "loss", "--position", "2"), "has no position"),
        (("effect", TEXT, "--metric", "value"), "outputs logits, which Value cannot measure"),
        (("look", "nothere.txt"), "put a space before it"),
        (("look", "nothere.png"), "there is no file nothere.png"),
        (("look", TEXT, "--head", "9"), "has 2 heads, counted from 0 (-1 is the last); 9 is not one of them"),
    ],
)
def test_user_error_is_a_jumok_error(words: tuple[str, ...], message: str) -> None:
    process = CliRunner().invoke(cli, list(words))
    assert isinstance(process.exception, JumokError) and message in str(process.exception), process.exception


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("look", TEXT, "--png", "x.jpg"), "--png writes PNG; x.jpg must end in .png"),
        (("look", TEXT, "--svg", "x.png"), "--svg writes SVG; x.png must end in .svg"),
        (("look", TEXT, "--png", "no/where/x.png"), "there is no folder no/where"),
        (("effect", TEXT, "--over", "edges", "--by", "mean"), "--by applies only to --over heads"),
        (("effect", TEXT, "--over", "edges", "--png", "e.png"), "--png applies only to --over heads"),
        (("effect", TEXT, "--verify", "3"), "--verify applies only to --over edges"),
        (("effect", TEXT, "--controls", "3"), "--controls applies only to --over edges"),
        (("effect", TEXT, "--verify", "-3"), "-3 is not in the range x>=0"),
    ],
)
def test_invalid_option_is_refused_before_loading(words: tuple[str, ...], message: str) -> None:
    process = CliRunner().invoke(cli, list(words))
    assert process.exit_code != 0 and message in str(process.exception) + process.output


def test_metric_without_a_position_has_no_looks_column() -> None:
    assert "attends most to" in run_text("effect", TEXT)
    assert "attends most to" not in run_text("effect", TEXT, "--metric", "loss")
    assert "too few edges" in run_text("effect", "a", "--over", "edges")


def test_look_reads_standard_input() -> None:
    process = CliRunner().invoke(cli, ["look", "-", "--json"], input=TEXT + "\n", catch_exceptions=False)
    assert json.loads(process.stdout) == run_json("look", TEXT)
    broken = CliRunner().invoke(cli, ["look", "-"], input=b"\xff\xfe hello")
    assert isinstance(broken.exception, JumokError) and "standard input is not UTF-8" in str(broken.exception)
    empty = CliRunner().invoke(cli, ["effect", "tiny", "-"], input="\n")
    assert isinstance(empty.exception, JumokError) and "standard input is empty" in str(empty.exception)


def test_cut_answers_and_unknown_tokens_are_reported(tmp_path: Path) -> None:
    letters = Tokenizer.for_characters("abcdefgh")
    torch.manual_seed(1)
    model = RNNSeq2Seq(RNNSeq2SeqConfig(vocabulary=9, embedding_width=8, width=8, start=0, end=8))
    jumok.save(model, tmp_path / "toy", tokenizer=letters)
    fields = run_json("look", str(tmp_path / "toy"), "abc?d", "--limit", "4")
    assert len(fields["target"]) == 5 and fields["unfinished"] and fields["unknown"] == 1
    assert fields["unknown_words"] == ["?"] and fields["warning"] is None
    shown = run_text("look", str(tmp_path / "toy"), "abc?d", "--limit", "4").splitlines()[0]
    assert "5 positions (1 of them unknown to its tokenizer: ?); answer: " in shown and shown.endswith(
        "4 tokens: --limit)"
    )
    assert "--limit" in run_text("effect", str(tmp_path / "toy"), "abc?d", "--limit", "4").splitlines()[0]
    assert run_json("effect", str(tmp_path / "toy"), "abcd")["unknown"] == 0
    process = CliRunner().invoke(cli, ["run", str(tmp_path / "toy"), "abc?d"])
    assert "1 of 5 tokens are unknown to this model's tokenizer" in process.stderr
    assert "unknown" not in CliRunner().invoke(cli, ["run", str(tmp_path / "toy"), "abcd"]).stderr
    refused = CliRunner().invoke(cli, ["effect", str(tmp_path / "toy"), "abcd", "--token", "?"])
    assert "'?' is unknown to this model's tokenizer" in str(refused.exception)
    assert fields["target"][0] == "<start>" and "".join(fields["target"][1:]) == fields["answer"]
    # The metric is the log-probability of an answer token at the decoder position that predicts it.
    source, answer = letters.encode("abc?d"), letters.encode(fields["answer"])
    with torch.no_grad():
        logits = model.eval()(torch.tensor([source]), torch.tensor([[0, *answer]])).logits[0]
    for position, token in enumerate(answer):
        effects = run_json("effect", str(tmp_path / "toy"), "abc?d", "--limit", "4", "--position", str(position))
        assert effects["metric"] == f"log-probability of token {token} at position {position}"
        assert effects["clean"] == pytest.approx(float(logits[position].log_softmax(-1)[token]), abs=1e-5)
        assert int(logits[position].argmax()) == token


def test_columns_with_hangul_are_aligned() -> None:
    from rich.cells import cell_len

    lines = run_text("effect", KOREAN, "--over", "edges", "--rows", "6").splitlines()
    title = next(index for index, line in enumerate(lines) if "gradient estimate" in line)
    assert {cell_len(line[: line.index(" of 21")]) for line in lines[title + 1 : title + 7]} == {
        cell_len(lines[title][: lines[title].index("rank")]) + 1
    }


def test_progress_is_shown_only_on_a_terminal() -> None:
    command = [sys.executable, "-m", "jumok", "effect", TEXT, "--over", "edges"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stderr == ""
    parent, child = pty.openpty()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=child) as process:
        os.close(child)
        shown = b""
        try:
            while piece := os.read(parent, 4096):
                shown += piece
        except OSError:  # the process has closed its end
            pass
        assert process.stdout is not None and b"effect" in process.stdout.read()
    os.close(parent)
    assert process.returncode == 0 and b"cutting" in shown and b"loading tiny" in shown


def test_ablating_the_induction_head_of_tiny_stops_copying() -> None:
    """tiny comes with a trained induction head; without this head it does not repeat text."""
    tiny = jumok.load("tiny")
    text = "qzv kxw pmf qzv kx"
    with jumok.Lens(tiny) as lens, torch.no_grad():
        clean = lens.run(text, logits=True).logits[0, -1]
        ablated = lens.run(text, logits=True, edits=jumok.Ablate(layer=1, head=0)).logits[0, -1]
    assert int(clean.argmax()) == ord("w") and int(ablated.argmax()) != ord("w")
    assert float(ablated.softmax(-1)[ord("w")]) < 0.2 * float(clean.softmax(-1)[ord("w")])


def test_korean_text_may_be_longer_than_a_file_name() -> None:
    text = "나는 오늘 학교에 갔다 " * 9  # 117 characters, 261 bytes
    assert run_json("effect", text)
    assert run_json("look", text)


def test_long_path_is_read_as_a_file(tmp_path: Path) -> None:
    folder = tmp_path
    for name in "abcdef":
        folder = folder / (name * 50)
    folder.mkdir(parents=True)
    (folder / "cat.txt").write_text("the cat")
    assert read_if_text_file(str(folder / "cat.txt")) == "the cat"


def test_pictures_say_what_words_hide_and_what_the_rows_of_a_decoder_are(tmp_path: Path) -> None:
    target = tmp_path / "heads.svg"
    arguments = ["look", "translator", "나는 매일 학교에 간다", "--layer", "decoder.1.cross", "--svg", str(target)]
    assert CliRunner().invoke(cli, arguments).exit_code == 0
    assert "a row of the decoder is the token that it read last" in target.read_text()
    assert "hidden:" not in target.read_text()
    assert CliRunner().invoke(cli, [*arguments, "--words"]).exit_code == 0
    assert "hidden: &lt;/s&gt;" in target.read_text() or "hidden: </s>" in target.read_text()


def test_look_prints_and_draws_in_korean(tmp_path: Path) -> None:
    target = tmp_path / "head.svg"
    text, picture = "the cat sat; the cat", ["--layer", "1", "--head", "0", "--svg", str(target)]
    korean = CliRunner().invoke(cli, ["look", "tiny", text, *picture, "--language", "ko"]).output
    assert "토큰이 가장 많이 보는 곳(층.헤드):" in korean and "모든 행의 합은 1" in korean
    assert any(line.split()[:2] == ["1", "0"] and "인덕션" in line for line in korean.splitlines())
    names = [name.removesuffix("_margin") for name in (*KEY_KINDS, *OTHER_KINDS)]
    assert all(TEXTS(f"kinds.{name}").english == name for name in (*names, "mixed"))
    assert {"쿼리", "키", "가중치"} <= set(re.findall("<!-- (.*?) -->", target.read_text(encoding="utf-8")))
    query = CliRunner().invoke(cli, ["look", "tiny", text, "--query", "19", "--language", "ko"]).output
    assert "t[19], 헤드 4개" in query and "헤드가 가장 많이 보는 키:" in query
    between = ["look", "tiny", text, "--query", "18", "--between", "c,s", "--language", "ko"]
    assert "가운데 어느 쪽?" in CliRunner().invoke(cli, between).output
