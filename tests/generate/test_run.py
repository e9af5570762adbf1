"""jumok.run, jumok run and jumok models, on small models."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, pipeline

import jumok
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError, ContextWarning
from jumok.generate import generate
from jumok.models import GPT, BERTConfig, GPTConfig, Numeric, NumericConfig, RNNSeq2Seq, RNNSeq2SeqConfig
from jumok.models.bert import BERT
from jumok.models.classifier import Classifier, ClassifierConfig
from jumok.models.registry import FAMILIES, get_family
from jumok.models.transformer import Transformer, TransformerConfig
from jumok.tasks.run import ANSWER_FUNCTIONS
from parity import perturb_parameters


def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "jumok", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, encoding="utf-8")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    tokenizer = Tokenizer.for_bytes()
    size = tokenizer.vocabulary
    gpt = GPT(GPTConfig(vocabulary=size, length=64, width=16, layers=1, heads=2, hidden=16))
    jumok.save(gpt, root / "gpt", tokenizer=tokenizer)
    jumok.save(gpt, root / "mute")
    bert = BERT(BERTConfig.from_json({"vocabulary": size, "width": 16, "layers": 1, "heads": 2, "hidden": 16}))
    jumok.save(bert, root / "bert", tokenizer=tokenizer)
    jumok.save(Numeric(NumericConfig()), root / "numeric")
    recurrent = RNNSeq2Seq(RNNSeq2SeqConfig(vocabulary=size, embedding_width=8, width=12))
    for parameter in recurrent.parameters():
        torch.nn.init.normal_(parameter, std=0.9)
    generated = generate(recurrent.eval(), [tokenizer.encode("a text")], limit=6)[0]
    recurrent.config = recurrent.config.replace(end=generated[-1])  # a token that it generates
    jumok.save(recurrent, root / "recurrent", tokenizer=tokenizer)
    small = {"vocabulary": size, "length": 9, "width": 16, "layers": 1, "heads": 2, "hidden": 16, "end": 255}
    jumok.save(Transformer(TransformerConfig.from_json(small)), root / "transformer", tokenizer=tokenizer)
    classifier = Classifier(ClassifierConfig(encoder=bert.config, classes=3))
    jumok.save(classifier, root / "classifier", tokenizer=tokenizer, labels=["좋다", "나쁘다", "글쎄"])
    return root


def test_text_comes_from_arguments_files_and_standard_input(folders: Path, tmp_path: Path) -> None:
    process = run("run", str(folders / "gpt"), "나는 학교에", "--limit", "8", "--json")
    assert process.returncode == 0, process.stderr
    answer = json.loads(process.stdout)
    assert answer["input"] == "나는 학교에"
    (tmp_path / "text.txt").write_text("나는 학교에\n", encoding="utf-8")
    for process in (
        run("run", str(folders / "gpt"), str(tmp_path / "text.txt"), "--limit", "8", "--json"),
        run("run", str(folders / "gpt"), "-", "--limit", "8", "--json", stdin="나는 학교에\n"),
    ):
        assert json.loads(process.stdout) == answer
    for _ in range(2):  # jumok.run must stay the function after jumok.tasks.run is imported
        assert jumok.run(folders / "gpt", "나는 학교에", limit=8) == answer["output"]


def test_encoder_returns_unit_vectors(folders: Path) -> None:
    process = run("run", str(folders / "bert"), "one text", "another", "--json")
    rows = [json.loads(line) for line in process.stdout.splitlines()]
    assert [row["input"] for row in rows] == ["one text", "another"] and len(rows[0]["embed"]) == 16
    assert abs(sum(number**2 for number in rows[0]["embed"]) - 1) < 1e-4


def test_numeric_model_predicts_numbers(folders: Path) -> None:
    process = run("run", str(folders / "numeric"), "10,20.5,30", "1 2", "--json")
    rows = [json.loads(line) for line in process.stdout.splitlines()]
    loaded = jumok.load(folders / "numeric")
    for row, numbers in zip(rows, ([10, 20.5, 30], [1, 2]), strict=True):
        expected = loaded.model.predict(torch.tensor([numbers]), len(numbers))[0]
        torch.testing.assert_close(torch.tensor(row["predict"]), expected)
        for inputs in (numbers, tuple(numbers), torch.tensor(numbers)):
            assert jumok.run(loaded, inputs) == row["predict"]
    batch = jumok.run(loaded, [[10, 20.5, 30], "1 2"])
    assert batch == [row["predict"] for row in rows]
    assert jumok.run(loaded, torch.tensor([[1, 2], [1, 2]])) == [rows[1]["predict"]] * 2
    shown = run("run", str(folders / "numeric"), "10,20.5,30").stdout.split()
    assert [float(number) for number in shown] == pytest.approx(rows[0]["predict"], rel=1e-4)


def test_recurrent_model_stops_at_its_end_token(folders: Path) -> None:
    loaded = jumok.load(folders / "recurrent")
    ids = generate(loaded.model, [loaded.tokenizer.encode("a text")], limit=6)[0]
    assert ids.index(loaded.config.end) == 5  # the end token of its config
    process = run("run", str(folders / "recurrent"), "a text", "--json")
    assert json.loads(process.stdout)["output"] == loaded.tokenizer.decode(ids[:-1])


def test_answer_stops_at_the_context_length(folders: Path) -> None:
    loaded = jumok.load(folders / "transformer")
    ids = generate(loaded.model, [loaded.tokenizer.encode("a text")], limit=9)[0]
    text = loaded.tokenizer.decode(ids).removesuffix(
        "\N{REPLACEMENT CHARACTER}"
    )  # an incomplete character is not shown
    with pytest.warns(ContextWarning, match="stops unfinished at 9 tokens"):
        assert len(ids) == 9 and jumok.run(loaded, "a text") == text
    process = run("run", str(folders / "transformer"), "a text")
    assert process.stdout == text + "\n" and process.stderr.startswith("jumok: the answer stops unfinished at 9 tokens")


def test_text_classes_have_names(folders: Path) -> None:
    loaded = jumok.load(folders / "classifier")
    assert loaded.labels == ("좋다", "나쁘다", "글쎄")
    with torch.no_grad():
        shares = loaded.model(torch.tensor([loaded.tokenizer.encode("one text")])).logits[0].softmax(-1)
    rows = jumok.run(loaded, "one text")
    assert sorted(rows, key=lambda row: -row["share"]) == rows
    for row in rows:
        assert row["name"] == loaded.labels[row["class"]]
        assert row["share"] == pytest.approx(float(shares[row["class"]]), abs=1e-6)
    process = run("run", str(folders / "classifier"), "one text")
    assert [line.split()[1] for line in process.stdout.splitlines()] == [row["name"] for row in rows]


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        (3, None),
        (3, "single_label_classification"),
        (3, "multi_label_classification"),
        (1, None),
        (3, "regression"),
        (1, "regression"),
    ],
)
def test_classes_match_the_pipeline_of_transformers(labels: int, problem: str | None, tmp_path: Path) -> None:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    names = {index: f"class number {index}" for index in range(labels)}
    ids = {name: index for index, name in names.items()}
    config = BertConfig(vocab_size=256, **sizes, id2label=names, label2id=ids, problem_type=problem)
    perturb_parameters(BertForSequenceClassification(config)).save_pretrained(tmp_path)
    Tokenizer.for_bytes().save(tmp_path)
    theirs = pipeline("text-classification", str(tmp_path), top_k=None)
    text = "a text of some words"
    expected = {row["label"]: row["score"] for row in theirs([text])[0]}
    loaded = jumok.load(tmp_path)
    rows = jumok.run(loaded, text)
    if problem == "regression":
        assert loaded.model.task == "score" and loaded.labels == tuple(names.values())
        rows = [{"name": names[index], "share": number} for index, number in enumerate(rows)]
    assert {row["name"]: row["share"] for row in rows} == pytest.approx(expected, abs=1e-5)
    assert run("run", str(tmp_path), text).returncode == 0


def test_every_family_declares_a_task_that_runs() -> None:
    for name in FAMILIES:
        family = get_family(name)
        with torch.device("meta"):
            model = family(family.config_class())
        assert model.answers == "text" or model.task in ANSWER_FUNCTIONS


def test_models_lists_the_families() -> None:
    rows = json.loads(run("models", "--json").stdout)
    assert {row["family"]: row["parameters"] for row in rows}["gpt"] == 124_439_808
    assert len(rows) == 13 and all(row["what"] for row in rows)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gpt", ""], "the text is empty"),
        (["gpt", "x", "--beams", "2", "--temperature", "1"], "beam search does not sample"),
        (["gpt", "x", "--chat"], "chat"),
        (["gpt", "x", "--stop", ""], "stop string is empty"),
        (["bert", "x", "--stop", "a"], "stops cannot be set"),
        (["mute", "x"], "has no tokenizer"),
        (["numeric", "10,x"], "reads numbers, such as 10,20,30, not '10 x'"),
        (["numeric", "nan"], "must be finite"),
        (["numeric", " , "], "at least one number"),
        (["numeric", "1", "--beams", "2"], "cannot be set"),
        (["bert", "x", "--temperature", "1"], "cannot be set for a model that does not generate"),
        (["nowhere", "x"], "there is no folder"),
    ],
)
def test_user_error_is_one_line(folders: Path, arguments: list[str], message: str) -> None:
    process = run("run", str(folders / arguments[0]), *arguments[1:])
    assert process.returncode == 2 and message in process.stderr, process.stderr
    assert process.stderr.count("\n") == 1 and process.stderr.startswith("jumok: ")


def test_empty_standard_input_is_refused(folders: Path) -> None:
    process = run("run", str(folders / "gpt"))
    assert process.returncode == 2 and "standard input is empty" in process.stderr


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("jumok.run('tiny', 'a', foo=1)", "unknown setting 'foo'; choose from limit"),
        ("jumok.run('tiny', 'a', limit='x')", "limit must be a number of new tokens"),
        ("jumok.save('gpt', 'folder')", "save takes a jumok model"),
        (
            "jumok.run(jumok.load('tiny').model, 'a')",
            "this GPT comes without its tokenizer",
        ),
        (
            "jumok.load(jumok.load('tiny').model)",
            "), not a GPT",
        ),
        ("transcribe('whisper-tiny-en', torch.zeros(999))", "pass what jumok.load(...) returned, not a str"),
        (
            "transcribe(jumok.load('tiny'), 'talk.wav')",
            "audio must be a tensor of samples at 16,000 per second, not a str",
        ),
        (
            "transcribe(jumok.load('tiny'), torch.zeros(999), {'beams': 2})",
            "settings must be TranscriptionSettings(...), not a dict",
        ),
        ("jumok.load(3)", "), not an int"),
        ("jumok.load(None)", "give a folder, a .gguf file or a name"),
        ("jumok.load('')", "give a folder, a .gguf file or a name"),
        ("generate(jumok.load('tiny').model, torch.tensor([[1, 2]]))", "give its .tolist()"),
        ("generate(jumok.load('tiny').model, [1, 2])", "prompts must be lists of token ids"),
        ("generate(jumok.load('tiny').model, 'hi')", "prompts must be lists of token ids"),
        ("jumok.load('tiny').model([1, 2])", "tokens must be a tensor [batch, length]"),
    ],
)
def test_invalid_calls_raise_readable_errors(call: str, message: str) -> None:
    """In a separate process, because the tests check types before a call is made."""
    code = (
        "import jumok, torch\nfrom jumok.generate import generate\nfrom jumok.tasks.speech import transcribe\n"
        f"try: {call}\nexcept jumok.JumokError as e: print(e)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert message in process.stdout


def test_numbers_unlike_those_of_the_training_are_reported(tmp_path: Path) -> None:
    config = NumericConfig(trained_lowest=0.0, trained_highest=100.0, trained_length=5)
    jumok.save(Numeric(config), tmp_path / "my-numbers")
    process = run("run", str(tmp_path / "my-numbers"), "1000,2000")
    reasons = "2 instead of 5 numbers, 1000 instead of numbers from 0 to 100"
    assert f"jumok: this model was not trained on such an input ({reasons})" in process.stderr
    assert len(process.stdout.split()) >= 2, "it answers all the same"
    for numbers in ("10,20,30,40,50", "0,0,0,0,100"):
        assert not run("run", str(tmp_path / "my-numbers"), numbers).stderr
    assert "4 instead of 5 numbers)" in run("run", str(tmp_path / "my-numbers"), "1,2,3,4").stderr
    assert "(-1 instead of numbers" in run("run", str(tmp_path / "my-numbers"), "--", "-1,2,3,4,5").stderr
    with pytest.warns(ContextWarning, match="101 instead of numbers from 0 to 100"):
        jumok.run(tmp_path / "my-numbers", [1, 2, 3, 4, 101])


def test_the_recipe_stores_what_it_trains_on(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="trained_length cannot be set: this recipe trains on 5 numbers"):
        jumok.train("numbers", out=tmp_path / "refused", steps=1, trained_length=9)
    outcome = jumok.train("numbers", out=tmp_path / "run", steps=1, width=4, hidden=4)
    config = outcome.load().model.config
    assert (config.trained_lowest, config.trained_highest, config.trained_length) == (0, 100, 5)
