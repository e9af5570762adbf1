"""jumok run with images: classes compared with transformers, captions with a plain loop; saving and loading."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from transformers import (
    DeiTConfig,
    DeiTForImageClassificationWithTeacher,
    SwinForImageClassification,
    ViTForImageClassification,
    ViTModel,
)
from transformers import SwinConfig as TheirSwinConfig
from transformers import ViTConfig as TheirViTConfig
from transformers.image_utils import load_image
from transformers.models.auto.image_processing_auto import AutoImageProcessor
from transformers.models.deit.image_processing_pil_deit import DeiTImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

import jumok
from image_drawing import draw_image
from jumok.cli import main
from jumok.data.images.preparation import Preparation
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import CheckpointError, JumokError
from jumok.models import GPT, Captioner, CaptionerConfig, GPTConfig, Swin, SwinConfig, ViT, ViTConfig
from parity import assert_parity, perturb_parameters

NAMES = {0: "tabby cat", 1: "개", 2: "crane", 3: "crane", 4: "an\x1b[2Jescape"}  # ImageNet has two cranes as well
SMALL = {
    "image_size": 30, "patch_size": 5, "hidden_size": 30, "num_hidden_layers": 2, "num_attention_heads": 5,
    "intermediate_size": 41, "id2label": NAMES, "label2id": {name: index for index, name in NAMES.items()},
}  # fmt: skip
SWIN = {
    "image_size": 30, "patch_size": 2, "embed_dim": 12, "depths": [2, 1], "num_heads": [2, 3], "window_size": 3,
    "id2label": NAMES, "label2id": {name: index for index, name in NAMES.items()},
}  # fmt: skip
THEIRS: dict[str, Any] = {
    "vit": lambda: (
        ViTForImageClassification(TheirViTConfig(**SMALL)),
        ViTImageProcessorPil(size=30, image_mean=[0.485, 0.456, 0.406], image_std=[0.229, 0.224, 0.225]),
    ),
    "deit": lambda: (
        DeiTForImageClassificationWithTeacher(DeiTConfig(**SMALL)),
        DeiTImageProcessorPil(size=36, crop_size=30),
    ),
    "swin": lambda: (SwinForImageClassification(TheirSwinConfig(**SWIN)), ViTImageProcessorPil(size=30, resample=3)),
}
LETTERS = Tokenizer.for_characters("abcde")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "jumok", "run", *arguments]
    return subprocess.run(command, input="", capture_output=True, text=True, check=False, encoding="utf-8")


def enlarge_parameters(model: Any) -> Any:
    """Draw parameters that are large enough for different answers."""
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return model.eval()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    for name, build in THEIRS.items():
        theirs, processor = build()
        perturb_parameters(theirs).save_pretrained(root / name)
        processor.save_pretrained(root / name)
    small = {"width": 16, "layers": 1, "heads": 2, "hidden": 16}
    bare = ViTConfig.from_json({**small, "image": [12, 20], "patch": [4, 4], "channels": 1, "head": "none"})
    jumok.save(enlarge_parameters(ViT(bare)), root / "bare")
    caption = {**small, "decoder_layers": 2, "vocabulary": LETTERS.vocabulary, "length": 7, "start": 0, "end": 3}
    torch.manual_seed(11)  # one of its captions reaches the end token, another does not
    patches = CaptionerConfig.from_json({**caption, "source": "patches", "image": [16, 24], "patch": [8, 8]})
    jumok.save(enlarge_parameters(Captioner(patches)), root / "captioner", tokenizer=LETTERS)
    regions = CaptionerConfig.from_json({**caption, "source": "regions", "regions": 4, "features": 6})
    jumok.save(enlarge_parameters(Captioner(regions)), root / "regions", tokenizer=LETTERS)
    gpt = GPT(GPTConfig(vocabulary=LETTERS.vocabulary, length=8, width=16, layers=1, heads=2, hidden=16))
    jumok.save(gpt, root / "gpt", tokenizer=LETTERS)
    seven = ViTConfig.from_json({**small, "image": [8, 8], "patch": [4, 4], "channels": 7})
    jumok.save(ViT(seven), root / "seven")
    draw_image(61, 45).save(root / "cat.png")
    draw_image(33, 80, "L").save(root / "dog.jpg")
    Image.new("RGBA", (5, 5), (0, 0, 0, 0)).save(root / "clear.webp")
    save_file({"regions": torch.randn(3, 6)}, root / "regions.safetensors")
    return root


@pytest.mark.parametrize("name", THEIRS)
def test_class_probabilities_match_transformers(folders: Path, name: str) -> None:
    theirs = type(THEIRS[name]()[0]).from_pretrained(folders / name).eval()
    processor = AutoImageProcessor.from_pretrained(folders / name, backend="pil")
    loaded = jumok.load(folders / name)
    assert loaded.labels == tuple(NAMES.values())
    for name_of_file in ("cat.png", "dog.jpg"):
        path = folders / name_of_file
        with torch.no_grad():
            expected = theirs(**processor(load_image(str(path)), return_tensors="pt")).logits[0].softmax(-1)
        for image in (path, str(path), Image.open(path)):
            rows = jumok.run(loaded, image)
            assert [row["class"] for row in rows] == expected.sort(descending=True).indices.tolist()
            assert all(row["name"] == NAMES[row["class"]] for row in rows)
            assert_parity(torch.tensor([row["share"] for row in rows]), expected.sort(descending=True).values)
    assert float(expected.max() - expected.min()) > 0.05  # not uniform, or any order would pass


def test_command_prints_class_names(folders: Path) -> None:
    process = run(str(folders / "vit"), str(folders / "cat.png"))
    assert process.returncode == 0, process.stderr
    rows = jumok.run(folders / "vit", folders / "cat.png")
    expected = [f"{row['share']:6.3f}  {row['name']}".replace("\x1b", " ") for row in rows]
    assert process.stdout.splitlines() == expected and "\x1b" not in process.stdout
    process = run(str(folders / "vit"), str(folders / "cat.png"), str(folders / "dog.jpg"))
    assert process.stdout.splitlines()[:6] == [f"{folders / 'cat.png'}:", *expected]
    lines = run(str(folders / "vit"), str(folders / "cat.png"), str(folders / "dog.jpg"), "--json").stdout.splitlines()
    assert [json.loads(line)["input"] for line in lines] == [str(folders / "cat.png"), str(folders / "dog.jpg")]
    assert [row["class"] for row in json.loads(lines[0])["classify"]] == [row["class"] for row in rows]
    assert all(len(jumok.run(folders / "vit", [folders / "cat.png", folders / "clear.webp"])[i]) == 5 for i in (0, 1))


def test_model_without_a_head_returns_a_vector(folders: Path) -> None:
    loaded = jumok.load(folders / "bare")
    assert loaded.preparation == Preparation((12, 20), mean=(0.5,), std=(0.5,)) and loaded.labels is None
    prepared = loaded.preparation.apply(folders / "cat.png")
    with torch.no_grad():
        token = loaded.model(prepared[None]).hidden[:, 0]
    expected = token / token.norm()
    torch.testing.assert_close(jumok.run(loaded, folders / "cat.png"), expected[0])
    torch.testing.assert_close(jumok.run(loaded, prepared), expected[0])  # a tensor counts as prepared
    batch = torch.stack([prepared, -prepared])
    assert jumok.run(loaded, batch).shape == (2, 16)
    answer = json.loads(run(str(folders / "bare"), str(folders / "cat.png"), "--json").stdout)
    torch.testing.assert_close(torch.tensor(answer["embed"]), expected[0])
    swin = Swin(SwinConfig.from_json({"width": 6, "depths": [1], "heads": [2], "window": 2, "head": "none"})).eval()
    image = torch.randn(3, 16, 16)
    with torch.no_grad():
        mean = swin(image[None]).hidden.mean(1)[0]
    vector = jumok.run(jumok.checkpoint.Loaded(swin, None), image)
    torch.testing.assert_close(vector, mean / mean.norm())


def decode_without_cache(loaded: Any, source: torch.Tensor, limit: int) -> list[int]:
    """Append the most probable token repeatedly; the model reads the whole caption each time."""
    tokens = [loaded.config.start]
    with torch.no_grad():
        while len(tokens) <= limit and loaded.config.end not in tokens[1:]:
            tokens.append(int(loaded.model(source, torch.tensor([tokens])).logits[0, -1].argmax()))
    return tokens[1:]


def decode_caption(loaded: Any, tokens: list[int]) -> str:
    return str(loaded.tokenizer.decode([token for token in tokens if token != loaded.config.end]))


def search_exhaustively(loaded: Any, source: torch.Tensor, limit: int) -> list[int]:
    """Return the text of up to ``limit`` tokens with the highest mean log-probability; all texts are tried."""
    end, scored = loaded.config.end, []
    for text in itertools.product(range(loaded.config.vocabulary), repeat=limit):
        cut = list(text[: text.index(end) + 1]) if end in text else list(text)
        with torch.no_grad():
            logits = loaded.model(source, torch.tensor([[loaded.config.start, *cut[:-1]]])).logits[0]
        shares = logits.double().log_softmax(-1)[range(len(cut)), cut]
        scored.append((float(shares.mean()), cut))
    return max(scored)[1]


@pytest.mark.filterwarnings("ignore::jumok.errors.ContextWarning")  # captions of untrained models do not end
@pytest.mark.parametrize(("name", "image"), [("captioner", "cat.png"), ("captioner", "dog.jpg"), ("regions", None)])
def test_caption_equals_decoding_without_cache(folders: Path, name: str, image: str | None) -> None:
    loaded = jumok.load(folders / name)
    path = folders / (image or "regions.safetensors")
    assert loaded.model.reads == ("image" if image else "regions") and (loaded.preparation is None) == (image is None)
    source = (loaded.preparation.apply(path) if image else jumok.checkpoint.tensor_files.read_tensor(path))[None]
    expected = decode_caption(loaded, decode_without_cache(loaded, source, 7))  # 7: the context length
    assert jumok.run(loaded, path) == expected
    assert jumok.run(loaded, source) == [expected]
    assert jumok.run(loaded, source[0], limit=2) == decode_caption(loaded, decode_without_cache(loaded, source, 2))
    assert jumok.run(loaded, [path, path]) == [expected] * 2
    process = run(str(folders / name), str(path), "--json")
    assert json.loads(process.stdout) == {"input": str(path), "output": expected}


def test_beam_search_finds_the_most_probable_caption(folders: Path) -> None:
    loaded, differences = jumok.load(folders / "captioner"), 0
    for image in 2 * torch.randn(4, 3, 16, 24):
        best = decode_caption(loaded, search_exhaustively(loaded, image[None], 2))
        assert jumok.run(loaded, image, beams=40, limit=2) == best
        differences += best != jumok.run(loaded, image, limit=2)
    assert differences  # otherwise greedy decoding would pass too


@pytest.mark.filterwarnings("ignore::jumok.errors.ContextWarning")  # captions of untrained models do not end
def test_captions_differ_between_images(folders: Path) -> None:
    captions = jumok.run(folders / "captioner", [folders / "cat.png", folders / "dog.jpg"])
    assert [len(caption) for caption in captions] == [3, 7]  # the first reaches its end token
    sampled = jumok.run(folders / "captioner", folders / "cat.png", temperature=2.0, seed=3)
    assert sampled == jumok.run(folders / "captioner", folders / "cat.png", temperature=2.0, seed=3)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("vit", ["a cat on a mat"], "this vit model reads images, but there is no file 'a cat on a mat'"),
        ("vit", ["none.png"], "there is no file"),
        ("vit", [], "standard input is empty"),
        ("vit", ["vit"], "there is no file"),  # a folder
        ("vit", ["text.png"], "is not a readable image; supported formats are PNG, JPEG, WEBP, GIF, BMP"),
        ("vit", ["cat.png", "--temperature", "1"], "cannot be set for a model that does not generate text"),
        ("captioner", ["cat.png", "--chat"], "chat is for models that read text"),
        ("captioner", ["regions.safetensors"], "is not a readable image"),
        ("regions", ["cat.png"], "give a .safetensors file with one tensor [region, feature]"),
        ("regions", ["two.safetensors"], "holds 2 tensors"),
        ("regions", ["wide.safetensors"], "up to 4, 6]"),
        ("regions", ["flat.safetensors"], "[region, feature], not torch.float32[6]"),
        ("regions", ["whole.safetensors"], "floating-point"),
        ("regions", ["nan.safetensors"], "finite"),
        ("regions", ["bad.safetensors"], "header"),
        ("gpt", ["cat.png"], "is an image, but this gpt model reads text"),
        ("seven", ["cat.png"], "does not say how images are prepared"),
    ],
)
def test_user_error_is_one_line(
    folders: Path,
    name: str,
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (folders / "text.png").write_text("a text")
    save_file({"a": torch.ones(3, 6), "b": torch.ones(3, 6)}, folders / "two.safetensors")
    save_file({"a": torch.ones(3, 7)}, folders / "wide.safetensors")
    save_file({"a": torch.ones(6)}, folders / "flat.safetensors")
    save_file({"a": torch.ones(3, 6, dtype=torch.int32)}, folders / "whole.safetensors")
    save_file({"a": torch.full((3, 6), float("nan"))}, folders / "nan.safetensors")
    (folders / "bad.safetensors").write_bytes(b"\xff" * 100)
    words = [str(folders / word) if "." in word and " " not in word else word for word in arguments]
    monkeypatch.setattr(sys, "argv", ["jumok", "run", str(folders / name), *words])
    monkeypatch.setattr(sys, "stdin", StringIO())
    with pytest.raises(SystemExit) as exit_info:
        main()
    printed = capsys.readouterr().err
    assert exit_info.value.code == 2 and message in printed, printed
    assert printed.count("\n") == 1 and printed.startswith("jumok: ")


def test_invalid_input_in_python_raises(folders: Path) -> None:
    for name, inputs, message in (
        ("gpt", Image.new("RGB", (3, 3)), "reads text, not an Image"),
        ("gpt", folders / "cat.png", "reads text, not a"),
        ("gpt", torch.ones(3), "reads text, not a Tensor"),
        ("vit", 5, "not an? int"),
        ("vit", [], "no input; this vit model reads images"),
        ("vit", torch.ones(3, 4), r"\[channel, row, column\]"),
        ("vit", torch.ones(3, 4, 4), "30 x 30"),
        ("vit", torch.ones(3, 30, 30, dtype=torch.uint8), "floating-point"),
        ("regions", Image.new("RGB", (3, 3)), r"regions must be a tensor \[region, feature\], not an Image"),
    ):
        with pytest.raises(JumokError, match=message):
            jumok.run(folders / name, inputs)


# saving and loading


@pytest.mark.parametrize("name", THEIRS)
@pytest.mark.parametrize("format", ["jumok", "huggingface"])
def test_saving_keeps_labels_and_preparation(folders: Path, tmp_path: Path, name: str, format: str) -> None:
    first = jumok.load(folders / name)
    jumok.save(first, tmp_path / "saved", format)
    again = jumok.load(tmp_path / "saved")
    assert (again.labels, again.preparation) == (first.labels, first.preparation)
    answers = jumok.run(again, folders / "cat.png"), jumok.run(first, folders / "cat.png")
    for row, expected in zip(*answers, strict=True):
        assert row == {**expected, "share": pytest.approx(expected["share"], abs=1e-6)}
    if format == "huggingface":
        theirs = type(THEIRS[name]()[0]).from_pretrained(tmp_path / "saved").eval()
        assert theirs.config.id2label == NAMES
        processor = AutoImageProcessor.from_pretrained(tmp_path / "saved", backend="pil")
        pixels = processor(load_image(str(folders / "cat.png")), return_tensors="pt")["pixel_values"][0].float()
        torch.testing.assert_close(first.preparation.apply(folders / "cat.png"), pixels, rtol=0, atol=1e-5)


def test_labels_and_preparation_can_be_passed_to_save(tmp_path: Path) -> None:
    config = ViTConfig(image=(8, 8), patch=(4, 4), width=8, layers=1, heads=2, hidden=8, classes=2)
    preparation = Preparation((10, 9), (8, 8), "box", 1 / 64, (0.25, 0.5, 0.75), (0.1, 0.2, 0.3))
    jumok.save(ViT(config), tmp_path / "own", preparation=preparation, labels=["a", "b"])
    loaded = jumok.load(tmp_path / "own")
    assert loaded.preparation == preparation and loaded.labels == ("a", "b")
    jumok.save(loaded, tmp_path / "other", labels=["c", "d"])  # arguments override what was loaded
    assert jumok.load(tmp_path / "other").labels == ("c", "d")
    assert jumok.load(tmp_path / "other").preparation == preparation
    jumok.save(ViT(config), tmp_path / "plain")
    plain = jumok.load(tmp_path / "plain")
    assert plain.labels is None and plain.preparation == Preparation((8, 8))
    assert "labels" not in json.loads((tmp_path / "plain" / "config.json").read_text())
    for labels, message in ((["a"], "1 labels, but the model has 2 classes"), ("ab", "a list"), (["a", ""], "label 1")):
        with pytest.raises(CheckpointError, match=message):
            jumok.save(ViT(config), tmp_path / "never", labels=labels)
    with pytest.raises(CheckpointError, match="has no classes"):
        jumok.save(ViT(config.replace(head="none")), tmp_path / "never", labels=["a", "b"])
    assert not (tmp_path / "never").exists()


def test_default_label_names_are_ignored(folders: Path, tmp_path: Path) -> None:
    plain = {name: value for name, value in SMALL.items() if "label" not in name}
    ViTForImageClassification(TheirViTConfig(**plain, num_labels=4)).save_pretrained(tmp_path / "four")
    four = jumok.load(tmp_path / "four")
    assert four.labels is None and four.config.classes == 4
    assert run(str(tmp_path / "four"), str(folders / "cat.png")).stdout.split()[1] == "class"
    ViTModel(TheirViTConfig(**SMALL)).save_pretrained(tmp_path / "bare")  # it has label names, but no classes
    assert jumok.load(tmp_path / "bare").labels is None


def test_image_is_converted_to_the_dtype_of_the_model(folders: Path) -> None:
    half = jumok.load(folders / "vit", dtype=torch.bfloat16)
    rows = jumok.run(half, folders / "cat.png")
    assert abs(sum(row["share"] for row in rows) - 1) < 1e-3
