"""jumok run with pictures: classes as transformers has them, captions as a plain loop writes them; what is saved."""

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
from jumok.cli import main
from jumok.data.images.preparation import Preparation
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import CheckpointError, JumokError
from jumok.models import GPT, Captioner, CaptionerConfig, GPTConfig, Swin, SwinConfig, ViT, ViTConfig
from parity import assert_parity, perturb_parameters
from test_images import draw_image

NAMES = {0: "tabby cat", 1: "개", 2: "crane", 3: "crane", 4: "an\x1b[2Jescape"}  # ImageNet has two cranes as well
SMALL = {
    "image_size": 30, "patch_size": 5, "hidden_size": 30, "num_hidden_layers": 2, "num_attention_heads": 5,
    "intermediate_size": 41, "id2label": NAMES, "label2id": {name: place for place, name in NAMES.items()},
}  # fmt: skip
SWIN = {
    "image_size": 30, "patch_size": 2, "embed_dim": 12, "depths": [2, 1], "num_heads": [2, 3], "window_size": 3,
    "id2label": NAMES, "label2id": {name: place for place, name in NAMES.items()},
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


def moved(model: Any) -> Any:
    """Large enough numbers that answers differ."""
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return model.eval()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    for name, made in THEIRS.items():
        theirs, processor = made()
        perturb_parameters(theirs).save_pretrained(root / name)
        processor.save_pretrained(root / name)
    small = {"width": 16, "layers": 1, "heads": 2, "hidden": 16}
    bare = ViTConfig.from_json({**small, "image": [12, 20], "patch": [4, 4], "channels": 1, "head": "none"})
    jumok.save(moved(ViT(bare)), root / "bare")
    caption = {**small, "decoder_layers": 2, "vocabulary": LETTERS.vocabulary, "length": 7, "start": 0, "end": 3}
    torch.manual_seed(11)  # of its captions one comes to an end, and one does not
    patches = CaptionerConfig.from_json({**caption, "source": "patches", "image": [16, 24], "patch": [8, 8]})
    jumok.save(moved(Captioner(patches)), root / "captioner", tokenizer=LETTERS)
    regions = CaptionerConfig.from_json({**caption, "source": "regions", "regions": 4, "features": 6})
    jumok.save(moved(Captioner(regions)), root / "regions", tokenizer=LETTERS)
    gpt = GPT(GPTConfig(vocabulary=LETTERS.vocabulary, length=8, width=16, layers=1, heads=2, hidden=16))
    jumok.save(gpt, root / "gpt", tokenizer=LETTERS)
    seven = ViTConfig.from_json({**small, "image": [8, 8], "patch": [4, 4], "channels": 7})
    jumok.save(ViT(seven), root / "seven")
    draw_image(61, 45).save(root / "cat.png")
    draw_image(33, 80, "L").save(root / "dog.jpg")
    Image.new("RGBA", (5, 5), (0, 0, 0, 0)).save(root / "clear.webp")
    save_file({"found": torch.randn(3, 6)}, root / "found.safetensors")
    return root


@pytest.mark.parametrize("name", THEIRS)
def test_classes_have_the_shares_of_transformers(folders: Path, name: str) -> None:
    theirs = type(THEIRS[name]()[0]).from_pretrained(folders / name).eval()
    processor = AutoImageProcessor.from_pretrained(folders / name, backend="pil")
    loaded = jumok.load(folders / name)
    assert loaded.labels == tuple(NAMES.values())
    for picture in ("cat.png", "dog.jpg"):
        path = folders / picture
        with torch.no_grad():
            wanted = theirs(**processor(load_image(str(path)), return_tensors="pt")).logits[0].softmax(-1)
        for given in (path, str(path), Image.open(path)):
            rows = jumok.run(loaded, given)
            assert [row["class"] for row in rows] == wanted.sort(descending=True).indices.tolist()
            assert all(row["name"] == NAMES[row["class"]] for row in rows)
            assert_parity(torch.tensor([row["share"] for row in rows]), wanted.sort(descending=True).values)
    assert float(wanted.max() - wanted.min()) > 0.05  # not all the same, or any order would be right


def test_the_command_names_the_classes(folders: Path) -> None:
    one = run(str(folders / "vit"), str(folders / "cat.png"))
    assert one.returncode == 0, one.stderr
    rows = jumok.run(folders / "vit", folders / "cat.png")
    wanted = [f"{row['share']:6.3f}  {row['name']}".replace("\x1b", " ") for row in rows]
    assert one.stdout.splitlines() == wanted and "\x1b" not in one.stdout
    both = run(str(folders / "vit"), str(folders / "cat.png"), str(folders / "dog.jpg"))
    assert both.stdout.splitlines()[:6] == [f"{folders / 'cat.png'}:", *wanted]
    told = run(str(folders / "vit"), str(folders / "cat.png"), str(folders / "dog.jpg"), "--json").stdout.splitlines()
    assert [json.loads(line)["input"] for line in told] == [str(folders / "cat.png"), str(folders / "dog.jpg")]
    assert [row["class"] for row in json.loads(told[0])["classify"]] == [row["class"] for row in rows]
    assert all(len(jumok.run(folders / "vit", [folders / "cat.png", folders / "clear.webp"])[i]) == 5 for i in (0, 1))


def test_without_a_head_a_picture_is_a_vector(folders: Path) -> None:
    loaded = jumok.load(folders / "bare")
    assert loaded.preparation == Preparation((12, 20), mean=(0.5,), std=(0.5,)) and loaded.labels is None
    prepared = loaded.preparation.apply(folders / "cat.png")
    with torch.no_grad():
        token = loaded.model(prepared[None]).hidden[:, 0]
    wanted = token / token.norm()
    torch.testing.assert_close(jumok.run(loaded, folders / "cat.png"), wanted[0])
    torch.testing.assert_close(jumok.run(loaded, prepared), wanted[0])  # a tensor is prepared already
    batch = torch.stack([prepared, -prepared])
    assert jumok.run(loaded, batch).shape == (2, 16)
    told = json.loads(run(str(folders / "bare"), str(folders / "cat.png"), "--json").stdout)
    torch.testing.assert_close(torch.tensor(told["embed"]), wanted[0])
    swin = Swin(SwinConfig.from_json({"width": 6, "depths": [1], "heads": [2], "window": 2, "head": "none"})).eval()
    image = torch.randn(3, 16, 16)
    with torch.no_grad():
        mean = swin(image[None]).hidden.mean(1)[0]
    found = jumok.run(jumok.checkpoint.Loaded(swin, None, swin.config, "swin"), image)
    torch.testing.assert_close(found, mean / mean.norm())


def plainly(loaded: Any, source: torch.Tensor, limit: int) -> list[int]:
    """The likeliest token, again and again, with no cache and no steps."""
    tokens = [loaded.config.start]
    with torch.no_grad():
        while len(tokens) <= limit and loaded.config.end not in tokens[1:]:
            tokens.append(int(loaded.model(source, torch.tensor([tokens])).logits[0, -1].argmax()))
    return tokens[1:]


def written(loaded: Any, tokens: list[int]) -> str:
    return str(loaded.tokenizer.decode([token for token in tokens if token != loaded.config.end]))


def likeliest(loaded: Any, source: torch.Tensor, limit: int) -> list[int]:
    """Of all texts up to ``limit`` tokens the one with the best log-probability a token: all are tried."""
    end, found = loaded.config.end, []
    for text in itertools.product(range(loaded.config.vocabulary), repeat=limit):
        cut = list(text[: text.index(end) + 1]) if end in text else list(text)
        with torch.no_grad():
            logits = loaded.model(source, torch.tensor([[loaded.config.start, *cut[:-1]]])).logits[0]
        shares = logits.double().log_softmax(-1)[range(len(cut)), cut]
        found.append((float(shares.mean()), cut))
    return max(found)[1]


@pytest.mark.parametrize(("name", "given"), [("captioner", "cat.png"), ("captioner", "dog.jpg"), ("regions", None)])
def test_a_caption_is_what_a_plain_loop_writes(folders: Path, name: str, given: str | None) -> None:
    loaded = jumok.load(folders / name)
    path = folders / (given or "found.safetensors")
    assert loaded.model.reads == ("image" if given else "regions") and (loaded.preparation is None) == (given is None)
    source = (loaded.preparation.apply(path) if given else jumok.checkpoint.tensor_files.read_tensor(path))[None]
    wanted = written(loaded, plainly(loaded, source, 7))  # 7: the longest that this model has places for
    assert jumok.run(loaded, path) == wanted
    assert jumok.run(loaded, source) == [wanted]
    assert jumok.run(loaded, source[0], limit=2) == written(loaded, plainly(loaded, source, 2))
    assert jumok.run(loaded, [path, path]) == [wanted] * 2
    told = run(str(folders / name), str(path), "--json")
    assert json.loads(told.stdout) == {"input": str(path), "output": wanted}


def test_beams_find_the_likeliest_caption(folders: Path) -> None:
    loaded, others = jumok.load(folders / "captioner"), 0
    for image in 2 * torch.randn(4, 3, 16, 24):
        best = written(loaded, likeliest(loaded, image[None], 2))
        assert jumok.run(loaded, image, beams=40, limit=2) == best
        others += best != jumok.run(loaded, image, limit=2)
    assert others  # else one beam would do


def test_captions_differ_between_pictures(folders: Path) -> None:
    captions = jumok.run(folders / "captioner", [folders / "cat.png", folders / "dog.jpg"])
    assert [len(caption) for caption in captions] == [3, 7]  # the first comes to an end by itself
    drawn_ones = jumok.run(folders / "captioner", folders / "cat.png", temperature=2.0, seed=3)
    assert drawn_ones == jumok.run(folders / "captioner", folders / "cat.png", temperature=2.0, seed=3)


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("vit", ["a cat on a mat"], "this vit model reads images, but there is no file 'a cat on a mat'"),
        ("vit", ["none.png"], "there is no file"),
        ("vit", [], "standard input is empty"),
        ("vit", ["vit"], "there is no file"),  # a folder
        ("vit", ["text.png"], "is not a readable image; supported formats are PNG, JPEG, WEBP, GIF, BMP"),
        ("vit", ["cat.png", "--temperature", "1"], "cannot be set for a model that does not generate text"),
        ("captioner", ["cat.png", "--chat"], "chat is for models that read text"),
        ("captioner", ["found.safetensors"], "is not a readable image"),
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
def test_a_mistake_is_one_sentence(
    folders: Path,
    name: str,
    given: list[str],
    says: str,
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
    told = [str(folders / one) if "." in one and " " not in one else one for one in given]
    monkeypatch.setattr(sys, "argv", ["jumok", "run", str(folders / name), *told])
    monkeypatch.setattr(sys, "stdin", StringIO())
    with pytest.raises(SystemExit) as left:
        main()
    said = capsys.readouterr().err
    assert left.value.code == 2 and says in said, said
    assert said.count("\n") == 1 and said.startswith("jumok: ")


def test_a_mistake_in_python_is_a_sentence(folders: Path) -> None:
    for name, given, says in (
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
        with pytest.raises(JumokError, match=says):
            jumok.run(folders / name, given)


# what is saved


@pytest.mark.parametrize("name", THEIRS)
@pytest.mark.parametrize("format", ["jumok", "huggingface"])
def test_what_was_loaded_is_saved_with_its_names_and_preparation(
    folders: Path, tmp_path: Path, name: str, format: str
) -> None:
    first = jumok.load(folders / name)
    jumok.save(first, tmp_path / "saved", format)
    again = jumok.load(tmp_path / "saved")
    assert (again.labels, again.preparation) == (first.labels, first.preparation)
    for found, wanted in zip(jumok.run(again, folders / "cat.png"), jumok.run(first, folders / "cat.png"), strict=True):
        assert found == {**wanted, "share": pytest.approx(wanted["share"], abs=1e-6)}
    if format == "huggingface":
        theirs = type(THEIRS[name]()[0]).from_pretrained(tmp_path / "saved").eval()
        assert theirs.config.id2label == NAMES
        processor = AutoImageProcessor.from_pretrained(tmp_path / "saved", backend="pil")
        pixels = processor(load_image(str(folders / "cat.png")), return_tensors="pt")["pixel_values"][0].float()
        torch.testing.assert_close(first.preparation.apply(folders / "cat.png"), pixels, rtol=0, atol=1e-5)


def test_names_and_preparation_can_be_given(tmp_path: Path) -> None:
    config = ViTConfig(image=(8, 8), patch=(4, 4), width=8, layers=1, heads=2, hidden=8, classes=2)
    own = Preparation((10, 9), (8, 8), "box", 1 / 64, (0.25, 0.5, 0.75), (0.1, 0.2, 0.3))
    jumok.save(ViT(config), tmp_path / "own", preparation=own, labels=["a", "b"])
    loaded = jumok.load(tmp_path / "own")
    assert loaded.preparation == own and loaded.labels == ("a", "b")
    jumok.save(loaded, tmp_path / "other", labels=["c", "d"])  # what is said counts more than what was loaded
    assert jumok.load(tmp_path / "other").labels == ("c", "d")
    assert jumok.load(tmp_path / "other").preparation == own
    jumok.save(ViT(config), tmp_path / "plain")
    plain = jumok.load(tmp_path / "plain")
    assert plain.labels is None and plain.preparation == Preparation((8, 8))
    assert "labels" not in json.loads((tmp_path / "plain" / "config.json").read_text())
    for labels, says in ((["a"], "1 labels, but the model has 2 classes"), ("ab", "a list"), (["a", ""], "label 1")):
        with pytest.raises(CheckpointError, match=says):
            jumok.save(ViT(config), tmp_path / "never", labels=labels)
    with pytest.raises(CheckpointError, match="has no classes"):
        jumok.save(ViT(config.replace(head="none")), tmp_path / "never", labels=["a", "b"])
    assert not (tmp_path / "never").exists()


def test_classes_that_nobody_named_have_no_names(folders: Path, tmp_path: Path) -> None:
    plain = {name: value for name, value in SMALL.items() if "label" not in name}
    ViTForImageClassification(TheirViTConfig(**plain, num_labels=4)).save_pretrained(tmp_path / "four")
    four = jumok.load(tmp_path / "four")
    assert four.labels is None and four.config.classes == 4
    assert run(str(tmp_path / "four"), str(folders / "cat.png")).stdout.split()[1] == "class"
    ViTModel(TheirViTConfig(**SMALL)).save_pretrained(tmp_path / "bare")  # it has names, and no classes to name
    assert jumok.load(tmp_path / "bare").labels is None


def test_a_tensor_goes_to_the_models_number_type(folders: Path) -> None:
    half = jumok.load(folders / "vit", dtype=torch.bfloat16)
    rows = jumok.run(half, folders / "cat.png")
    assert abs(sum(row["share"] for row in rows) - 1) < 1e-3
