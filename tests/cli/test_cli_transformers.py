"""The commands look, effect and models on folders that are opened with transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from click.testing import CliRunner
from PIL import Image

import jumok
from jumok.checkpoint.transformers_folder import LoadedTransformers, open_model
from jumok.cli import cli
from jumok.lens import KnockOut, Lens
from jumok.lens.support_level import find_support_level
from jumok.tasks.labelled_input import prepare_input
from transformers_folders import build_model, build_tokenizer, write_folder

TEXT = "the cat sat on the mat"
LABELS = ["<s>", "the", "cat", "sat", "on", "the", "mat", "</s>"]
PATCHES = [f"{row},{column}" for row in range(1, 5) for column in range(1, 5)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    folders = {
        name: write_folder(root / name, name)
        for name in ("opt", "electra", "bart", "bloom", "fnet", "reformer", "dinov2", "beit", "wav2vec2")
    }
    hf.BeitImageProcessorPil(size={"height": 32, "width": 32}, do_center_crop=False).save_pretrained(folders["beit"])
    crop = {"height": 28, "width": 28}
    hf.BitImageProcessorPil(size={"shortest_edge": 40}, crop_size=crop).save_pretrained(folders["dinov2"])
    # a random model would answer with the end token at once
    generation = json.loads((folders["bart"] / "generation_config.json").read_text())
    generation |= {"suppress_tokens": [1, 2, 3], "do_sample": True, "max_length": 6}
    (folders["bart"] / "generation_config.json").write_text(json.dumps(generation))
    return folders


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pictures") / "noise.png"
    noise = torch.randint(0, 256, (40, 60, 3), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    Image.fromarray(noise.numpy()).save(path)
    return path


def run(*words: str | Path) -> Any:
    return CliRunner().invoke(cli, [str(word) for word in words], catch_exceptions=False)


def run_json(*words: str | Path) -> Any:
    process = run(*words, "--json")
    assert process.exit_code == 0, process.output
    return json.loads(process.stdout)


def refuse(*words: str | Path) -> str:
    with pytest.raises(jumok.JumokError) as error:
        run(*words)
    return str(error.value)


def test_look_shows_the_weights_of_the_plain_model(folders: dict[str, Path]) -> None:
    shown = run_json("look", folders["opt"], TEXT, "--top", "3")
    assert shown["model"] == "OPTForCausalLM" and shown["source"] == LABELS
    assert {(row["layer"], row["head"]) for row in shown["heads"]} == {
        (layer, head) for layer in (0, 1) for head in range(4)
    }
    assert all("kind" in row and "kind_on_repeats" in row for row in shown["heads"])
    model = hf.OPTForCausalLM.from_pretrained(folders["opt"], attn_implementation="eager")
    weights = model(torch.tensor([[0, 4, 5, 6, 7, 4, 8, 2]]), output_attentions=True).attentions
    for token in shown["tokens"]:
        for source in token["sources"]:
            expected = weights[source["layer"]][0, source["head"], token["token"], source["key"]].item()
            assert source["weight"] == pytest.approx(expected, abs=1e-5)
            assert source["label"] == LABELS[source["key"]]


def test_encoder_decoder_answers_first(folders: dict[str, Path]) -> None:
    shown = run_json("look", folders["bart"], TEXT, "--limit", "5")
    model, tokenizer = hf.BartForConditionalGeneration.from_pretrained(folders["bart"]), build_tokenizer()
    settings = {"num_beams": 1, "do_sample": False, "max_new_tokens": 5}
    answer = model.generate(**tokenizer(TEXT, return_tensors="pt", return_token_type_ids=False), **settings)[0, 1:]
    assert len(answer) == 5
    assert shown["source"] == LABELS and shown["target"] == ["<start>", *tokenizer.convert_ids_to_tokens(answer)]
    assert shown["answer"] == tokenizer.decode(answer, skip_special_tokens=True) and shown["unfinished"]
    crosses = [row for row in shown["tokens"] if row["side"] == "target"]
    assert len(crosses) == 6 and {source["side"] for row in crosses for source in row["sources"]} == {
        "source",
        "target",
    }

    effects = run_json("effect", folders["bart"], TEXT, "--limit", "5", "--position", "2")
    decoder_ids = torch.tensor([[2, *answer.tolist()]])
    logits = model(input_ids=tokenizer(TEXT, return_tensors="pt")["input_ids"], decoder_input_ids=decoder_ids).logits
    assert effects["clean"] == pytest.approx(logits[0, 2].log_softmax(-1)[answer[2]].item(), abs=1e-4)


@pytest.mark.parametrize("name", ["beit", "dinov2"])
def test_image_is_prepared_as_transformers_does(name: str, folders: dict[str, Path], picture: Path) -> None:
    loaded = open_model(folders[name])
    assert isinstance(loaded, LoadedTransformers)
    labelled = prepare_input(loaded, str(picture))
    processor = hf.AutoImageProcessor.from_pretrained(folders[name], backend="pil")
    expected = processor(images=Image.open(picture), return_tensors="pt")["pixel_values"]
    torch.testing.assert_close(labelled.named["pixel_values"], expected)
    assert labelled.source == ["[class]", *PATCHES]
    with Lens(loaded) as lens:
        assert lens.run(**labelled.named).weights(0).shape == (4, 17, 17)


def test_image_without_a_processor_is_resized_to_the_model(tmp_path: Path, picture: Path) -> None:
    loaded = open_model(write_folder(tmp_path / "beit", "beit"))
    assert isinstance(loaded, LoadedTransformers)
    pixels = prepare_input(loaded, str(picture)).named["pixel_values"]
    expected = torch.from_numpy(
        __import__("numpy").array(Image.open(picture).resize((32, 32), Image.Resampling.BILINEAR))
    )
    torch.testing.assert_close(pixels[0], (expected.permute(2, 0, 1) / 255 - 0.5) / 0.5)


def test_pictures_and_effects_of_an_image(folders: dict[str, Path], picture: Path, tmp_path: Path) -> None:
    for command in ("look", "effect"):
        path = tmp_path / f"{command}.png"
        assert run_json(command, folders["beit"], picture, "--png", path)["pictures"] == [str(path)]
        with Image.open(path) as image:
            assert min(image.size) > 100
    shown = run("effect", folders["beit"], picture, "--metric", "class", "--label", "1", "--rows", "1")
    assert "BeitForImageClassification, 17 positions" in shown.stdout and "class 1" in shown.stdout


def test_effect_measures_a_token_of_the_folders_tokenizer(folders: dict[str, Path]) -> None:
    effects = run_json("effect", folders["opt"], "the cat", "--token", "sat", "--over", "edges", "--verify", "1")
    model = hf.OPTForCausalLM.from_pretrained(folders["opt"])
    assert effects["clean"] == pytest.approx(
        model(torch.tensor([[0, 4, 5, 2]])).logits[0, -1].log_softmax(-1)[6].item(), abs=1e-5
    )
    assert "log-probability of token 'sat'" in run("effect", folders["opt"], "the cat", "--token", "sat").stdout


def test_notes_go_to_standard_error(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "electra", "electra", architectures=["ElectraForSequenceClassification"])
    process = run("look", folder, TEXT, "--json")
    assert json.loads(process.stdout)["model"] == "ElectraModel"
    assert (
        "jumok: " in process.stderr and "no tensors for the head of ElectraForSequenceClassification" in process.stderr
    )


def test_kinds_are_left_out_with_a_sentence_where_the_model_cannot_be_profiled(tmp_path: Path) -> None:
    config = hf.XLMRobertaConfig(
        vocab_size=30, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4,
        max_position_embeddings=40, pad_token_id=1,
    )  # fmt: skip
    hf.XLMRobertaForMaskedLM(config).save_pretrained(tmp_path)  # reads 38 positions, as it counts from 2
    build_tokenizer().save_pretrained(tmp_path)
    process = run("look", tmp_path, TEXT)
    assert process.exit_code == 0
    assert "jumok: heads are classified on this text only: index 40 is out of bounds" in process.stderr
    assert "layer  head  kind" in process.stdout


@pytest.mark.parametrize(
    ("name", "model_input", "message"),
    [
        ("wav2vec2", "a.wav", "reads input_values; the command line takes texts and images, and jumok.Lens"),
        ("beit", "the cat", "BeitForImageClassification reads images, but there is no file 'the cat'"),
        ("fnet", "the cat", "cannot record FNetForMaskedLM: no attention was found"),
    ],
)
def test_wrong_inputs_are_one_sentence(name: str, model_input: str, message: str, folders: dict[str, Path]) -> None:
    assert message in refuse("look", folders[name], model_input)


def test_image_for_a_text_model_and_a_long_text_are_refused(folders: dict[str, Path], picture: Path) -> None:
    assert "is an image, but OPTForCausalLM reads text" in refuse("look", folders["opt"], picture)
    assert "the text has 202 tokens, but this OPTForCausalLM reads at most 128" in refuse(
        "look", folders["opt"], "the " * 200
    )


def test_tokenizer_of_another_model_is_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "opt", "opt")
    jumok.load("tiny").tokenizer.save(folder)  # type: ignore[union-attr]
    assert "the tokenizer gives token 116, but OPTForCausalLM has 30 tokens" in refuse("look", folder, "the")


def test_models_tells_the_level_of_each_model(folders: dict[str, Path], tmp_path: Path) -> None:
    broken = write_folder(tmp_path / "opt", "opt", num_hidden_layers=3)
    names = [
        "tiny",
        *(folders[name] for name in ("opt", "electra", "bart", "beit", "wav2vec2", "bloom", "fnet", "reformer")),
        broken,
    ]
    rows = run_json("models", *names)
    levels = {Path(row["model"]).name: row["level"] for row in rows[:-1]}
    assert levels["tiny"] == "own family" and rows[0]["reason"] == "gpt"
    assert {levels[name] for name in ("opt", "electra", "bart", "beit", "wav2vec2", "bloom")} == {"editable"}
    assert levels["fnet"] == "refused"  # it mixes tokens by a Fourier transform
    assert levels["reformer"] == "maps only"
    assert rows[-1]["level"] == "refused" and "random numbers" in rows[-1]["reason"]
    shown = run("models", "tiny", folders["opt"]).stdout
    assert "tiny: own family (gpt)\n" in shown and "opt: editable (OPTForCausalLM of transformers" in shown


def test_a_model_that_only_returns_maps_is_labelled_as_such(folders: dict[str, Path]) -> None:
    shown = run("look", folders["reformer"], "the cat sat").stdout
    assert "maps only: the model returned these maps itself" in shown and "where tokens look most" in shown
    assert run_json("look", folders["reformer"], "the cat sat")["level"] == "maps only"
    assert "the lens has only the maps that the model returns" in refuse("effect", folders["reformer"], "the cat sat")


def test_models_without_a_name_lists_the_families() -> None:
    assert {"gpt", "bert", "t5"} <= {row["family"] for row in run_json("models")}
    assert "there is no folder or .gguf file" in refuse("models", "no-such-folder")


def test_editable_means_that_an_edit_changes_the_output() -> None:
    model = build_model("opt")
    assert find_support_level(model).level == "editable"
    with Lens(model) as lens:
        clean, edited = (
            lens.run([4, 5, 6], logits=True, edits=edits).output.logits
            for edits in ([], [KnockOut(layer=0, head=0, query=2, key=0)])
        )
    assert not torch.allclose(clean, edited)


def test_level_of_a_model_that_reads_a_text_and_an_image() -> None:
    sizes: dict[str, Any] = {
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4,
    }  # fmt: skip
    tokens = {"vocab_size": 30, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1, "max_position_embeddings": 16}
    config = hf.CLIPConfig(
        text_config={**sizes, **tokens}, vision_config={**sizes, "image_size": 16, "patch_size": 8}, projection_dim=16
    )
    assert find_support_level(hf.CLIPModel(config).eval()).level == "editable"
