"""Folders that none of our families holds: opened with transformers, without code and without random parameters."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

import jumok
from jumok.checkpoint import Loaded
from jumok.checkpoint.transformers_folder import LoadedTransformers, open_model
from jumok.errors import CheckpointError, CheckpointWarning, TokenizerError
from transformers_folders import SIZES, build_model, build_tokenizer, change_config, write_folder

TOKENS = torch.tensor([[0, 4, 5, 6, 2]])


@pytest.fixture(scope="module")
def opt_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("models") / "opt", "opt")


@pytest.fixture
def copied(opt_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(opt_folder, tmp_path / "copied"))


def open_quietly(folder: Path) -> Any:
    """Open a folder that must give no message."""
    return open_model(folder, lambda message: pytest.fail(message))


@pytest.mark.parametrize("name", ["opt", "gpt_neox", "phi", "gemma", "electra", "bert", "bart", "mbart"])
def test_opened_model_computes_what_was_saved(name: str, tmp_path: Path) -> None:
    loaded = open_quietly(write_folder(tmp_path / name, name))
    original = build_model(name)
    assert isinstance(loaded, LoadedTransformers) and type(loaded.model) is type(original)
    assert loaded.reads == "text" and not loaded.model.training
    expected, actual = original(TOKENS)[0], loaded.model(TOKENS)[0]
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-6)
    assert loaded.tokenizer is not None
    assert loaded.tokenizer.encode("the cat sat") == build_tokenizer()("the cat sat")["input_ids"]


def test_image_models_have_no_tokenizer(tmp_path: Path) -> None:
    loaded = open_quietly(write_folder(tmp_path / "beit", "beit"))
    assert loaded.reads == "image" and loaded.tokenizer is None


def test_own_families_are_not_opened_with_transformers(tmp_path: Path) -> None:
    assert isinstance(open_model("tiny"), Loaded)
    config = hf.GPT2Config(vocab_size=30, n_embd=32, n_layer=2, n_head=4, n_positions=64)
    hf.GPT2LMHeadModel(config).save_pretrained(tmp_path)
    assert isinstance(open_quietly(tmp_path), Loaded)


def test_load_says_who_opens_other_models(opt_folder: Path) -> None:
    with pytest.raises(CheckpointError, match=r"model_type 'opt'.*jumok\.Lens open other models with transformers"):
        jumok.load(opt_folder)


def test_nothing_is_downloaded(opt_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert isinstance(open_quietly(opt_folder), LoadedTransformers)


def test_settings_of_transformers_are_restored(opt_folder: Path) -> None:
    logging = hf.utils.logging
    logging.enable_progress_bar()
    logging.set_verbosity_info()
    try:
        open_quietly(opt_folder)
        assert logging.is_progress_bar_enabled() and logging.get_verbosity() == logging.INFO
    finally:
        logging.set_verbosity_warning()


# folders that are refused


def refuse(folder: Path, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        open_quietly(folder)


def add_code(folder: Path, marker: Path) -> None:
    """Write Python code into a folder that leaves a mark if it runs, and let all configs refer to it."""
    (folder / "modeling.py").write_text(f"open({str(marker)!r}, 'w')\n")
    references = dict.fromkeys(("AutoConfig", "AutoModel", "AutoModelForCausalLM"), "modeling.Own")
    change_config(folder, auto_map=references)


def test_code_of_an_unknown_model_is_refused(copied: Path, tmp_path: Path) -> None:
    add_code(copied, tmp_path / "ran")
    change_config(copied, model_type="own")
    refuse(copied, r"needs Python code of its own for model_type 'own' \(auto_map in config.json\), which is not run")
    assert not (tmp_path / "ran").exists()


def test_code_beside_a_known_model_is_not_run(copied: Path, tmp_path: Path) -> None:
    add_code(copied, tmp_path / "ran")
    assert isinstance(open_quietly(copied).model, hf.OPTForCausalLM)
    change_config(copied, architectures=["Own"])
    with pytest.warns(CheckpointWarning, match="names no class of transformers, so OPTModel is used"):
        assert isinstance(open_model(copied), LoadedTransformers)
    assert not (tmp_path / "ran").exists()


def test_unknown_model_type_is_refused(copied: Path) -> None:
    change_config(copied, model_type="own")
    refuse(copied, f"neither Jumok nor transformers {re.escape(hf.__version__)} has model_type 'own'")


class Bomb:
    """Creates a folder when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.marker),)


def test_pickled_files_are_never_read(copied: Path, tmp_path: Path) -> None:
    (copied / "model.safetensors").unlink()
    (copied / "pytorch_model.bin").write_bytes(pickle.dumps({"weight": Bomb(tmp_path / "ran")}))
    refuse(copied, r"only as a pickled file \(pytorch_model.bin\).*transformers\.OPTForCausalLM\.from_pretrained")
    assert not (tmp_path / "ran").exists()


def test_pickled_file_beside_safetensors_is_ignored(copied: Path, tmp_path: Path) -> None:
    (copied / "pytorch_model.bin").write_bytes(pickle.dumps({"weight": Bomb(tmp_path / "ran")}))
    assert isinstance(open_quietly(copied), LoadedTransformers)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": 3}, r"no tensors for model\.decoder\.layers\.2.* 12 more .* random numbers"),
        ({"ffn_dim": 64}, r"layers\.0\.fc1\.bias is \[48\] in the file and \[64\] in the model"),
        ({"hidden_size": 2**20, "ffn_dim": 2**22}, r"config.json describes [\d,]+ parameters, but .* hold"),
        ({"num_hidden_layers": 10**6}, "num_hidden_layers = 1,000,000, but copied holds 36 tensors"),
        ({"architectures": ["LlamaForCausalLM"]}, "LlamaForCausalLM, which is not a class of model_type 'opt'"),
        ({"quantization_config": {"quant_method": "awq"}}, r"quantized \(awq\)"),
        ({"hidden_size": "many"}, "transformers cannot (read config.json|open)"),
        ({"model_type": None}, "has no model_type"),
    ],
)
def test_wrong_config_is_refused(copied: Path, changes: dict[str, Any], message: str) -> None:
    change_config(copied, **changes)
    refuse(copied, message)


def test_damaged_and_foreign_files_are_refused(copied: Path, tmp_path: Path) -> None:
    tensors = (copied / "model.safetensors").read_bytes()
    (copied / "model.safetensors").write_bytes(tensors[:-100])
    refuse(copied, "should contain .* bytes of tensors")
    (tmp_path / "outside.safetensors").write_bytes(tensors)
    (copied / "model.safetensors").unlink()
    (copied / "model.safetensors").symlink_to(tmp_path / "outside.safetensors")
    refuse(copied, "symlink that points outside the folder")
    (copied / "model.safetensors").unlink()
    (copied / "adapter_config.json").write_text("{}")
    refuse(copied, "holds an adapter, not a whole model")


def test_no_file_outside_the_folder_is_read(copied: Path, tmp_path: Path) -> None:
    (copied / "tokenizer.json").rename(tmp_path / "outside.json")
    (copied / "tokenizer.json").symlink_to(tmp_path / "outside.json")
    refuse(copied, "tokenizer.json in copied is a symlink that points outside the folder")


def test_missing_transformers_is_one_sentence(opt_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    refuse(opt_folder, r'model_type \'opt\' .*; transformers opens other models: pip install "jumok\[transformers\]"')


# folders that are opened with a message


def test_missing_head_is_named_and_left_out(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "electra", "electra", architectures=["ElectraForSequenceClassification"])
    messages: list[str] = []
    loaded = open_model(folder, messages.append)
    assert type(loaded.model) is hf.ElectraModel
    assert len(messages) == 2
    assert "no tensors for the head of ElectraForSequenceClassification (classifier.dense.bias, " in messages[0]
    assert "ElectraModel is used, which has no head" in messages[0]
    assert "ElectraModel does not use discriminator_predictions.dense.bias, " in messages[1]


def test_random_pooler_is_named_only_where_no_head_reads_it(tmp_path: Path) -> None:
    hf.AlbertForMaskedLM(hf.AlbertConfig(**SIZES, vocab_size=30, embedding_size=16)).save_pretrained(tmp_path)
    for architecture in ("AlbertModel", "AlbertForSequenceClassification"):
        change_config(tmp_path, architectures=[architecture])
        messages: list[str] = []
        assert type(open_model(tmp_path, messages.append).model) is hf.AlbertModel
        assert any("no tensors for the pooler of AlbertModel" in message for message in messages)
        assert any("for the head" in message for message in messages) == (architecture != "AlbertModel")


def test_head_that_reads_a_missing_pooler_is_left_out(tmp_path: Path) -> None:
    config = hf.AlbertConfig(**SIZES, vocab_size=30, embedding_size=16)
    hf.AlbertForSequenceClassification(config).save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    without_pooler = {name: tensor for name, tensor in tensors.items() if "pooler" not in name}
    assert len(without_pooler) == len(tensors) - 2
    save_file(without_pooler, tmp_path / "model.safetensors", {"format": "pt"})
    messages: list[str] = []
    assert type(open_model(tmp_path, messages.append).model) is hf.AlbertModel
    assert "no tensors for the head of AlbertForSequenceClassification (albert.pooler.bias" in messages[0]


def test_unused_tensors_are_named(copied: Path) -> None:
    change_config(copied, num_hidden_layers=1)
    with pytest.warns(CheckpointWarning, match=r"does not use model\.decoder\.layers\.1\.fc1\.bias.* and 12 more"):
        jumok.Lens(copied)


def test_incomplete_folder_of_an_own_family_is_refused_by_the_family(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "bert", "bert", architectures=["BertForMaskedLM"])
    with pytest.raises(CheckpointError, match=r"no tensor 'cls\.predictions\.bias'"):
        open_model(folder, lambda message: None)


# tokenizers


def test_damaged_tokenizer_is_refused(copied: Path) -> None:
    (copied / "tokenizer.json").write_text("{}")
    with pytest.raises(jumok.ArgumentError, match="is not a tokenizer"):
        open_quietly(copied)


def test_folder_without_tokenizer_says_so_when_it_reads_a_text(copied: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (copied / name).unlink()
    loaded = open_quietly(copied)
    assert loaded.tokenizer is None
    with pytest.raises(jumok.ArgumentError, match="has no tokenizer, so OPTForCausalLM cannot read a text"):
        loaded.require_tokenizer()


def test_vocabulary_is_never_invented(copied: Path) -> None:
    (copied / "tokenizer.json").unlink()
    (copied / "tokenizer_config.json").write_text('{"tokenizer_class": "AlbertTokenizer"}')
    messages: list[str] = []
    assert open_model(copied, messages.append).tokenizer is None
    assert len(messages) == 1 and re.search("there is no (tokenizer|vocabulary) in", messages[0])


def test_tokenizer_with_its_own_code_is_refused(copied: Path) -> None:
    (copied / "tokenizer.json").unlink()
    (copied / "tokenizer_config.json").write_text('{"auto_map": {"AutoTokenizer": ["own.Own", null]}}')
    with pytest.raises(TokenizerError, match=r"Python code of its own \(auto_map\), which is not run"):
        jumok.Lens(build_model("opt"), tokenizer=copied)
