"""More hostile folders: damaged configs of a Qwen2 with a window and scaled rotations, and of a BERT classifier."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hostile_files.folders import change_config, link_to, move_outside_and_link, write_file


def write_rotary_folder(folder: Path) -> None:
    """Write a Qwen2 with a window in its second layer, YaRN, a tokenizer and two tokens that end a text."""
    import torch

    import jumok
    from jumok.data.tokenizers.tokenizer import Tokenizer
    from jumok.models import GPT, llama_config

    torch.manual_seed(0)
    sizes = {"vocabulary": 11, "length": 64, "width": 8, "layers": 2, "heads": 2, "hidden": 8}
    scaling = {"rotary_scaling": "yarn", "rotary_factor": 4.0, "rotary_length": 16}
    model = GPT(llama_config(**sizes, **scaling, attention_bias=True, window=4, windowed=[1]))
    letters = Tokenizer(Tokenizer.for_characters("abcdefghij")._inner, {"end": "a"}, ends=[3])
    jumok.save(model, folder, format="huggingface", tokenizer=letters)


def write_classifier_folder(folder: Path) -> None:
    """Write a BERT with three classes."""
    import torch

    import jumok
    from jumok.models.bert import BERT, BERTConfig

    torch.manual_seed(0)
    sizes = {"vocabulary": 11, "length": 8, "width": 4, "layers": 1, "heads": 2, "hidden": 8}
    model = BERT(BERTConfig(**sizes, head="classes", head_activation="tanh", classes=3))
    jumok.save(model, folder, format="huggingface")


def change_rope(**changes: Any) -> Callable[[Path], None]:
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, **changes}
    return change_config(rope_scaling={name: field for name, field in rope.items() if field is not ...})


def change_llama3(**changes: Any) -> Callable[[Path], None]:
    return change_rope(**{"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0, **changes})


def change_layer_types(*names: str) -> Callable[[Path], None]:
    return change_config(layer_types=list(names))


FULL, SHORT = "full_attention", "sliding_attention"
GENERATION = "generation_config.json"
ROTARY: dict[str, Callable[[Path], None]] = {
    "a rope factor of 0": change_rope(factor=0),
    "a negative rope factor": change_rope(factor=-4.0),
    "a rope factor that is no number": change_rope(factor=float("nan")),
    "an endless rope factor": change_rope(factor=float("inf")),
    "a rope factor of 1e308": change_rope(factor=1e308),
    "a rope factor of four hundred digits": change_rope(factor=10**400),
    "a rope factor of text": change_rope(factor="4"),
    "a rope factor that is true": change_rope(factor=True),
    "a rope factor that is a list": change_rope(factor=[4.0] * 100_000),
    "a rope base of 0": change_config(rope_scaling=None, rope_parameters={"rope_theta": 0.0}),
    "a rope base of 1, scaled": change_rope(rope_theta=1.0),
    "a rope base that is no number": change_rope(rope_theta=float("nan")),
    "a rope base of 1e308": change_rope(rope_theta=1e308),
    "an unknown rope": change_rope(rope_type="evil" * 1000),
    "a rope that is a list": change_rope(rope_type=["yarn"]),
    "rope parameters that are a list": change_config(rope_scaling=[["rope_type", "yarn"]]),
    "rope parameters that are text": change_config(rope_scaling="yarn"),
    "ropes for each layer type": change_config(rope_scaling=None, rope_parameters={FULL: {"rope_type": "default"}}),
    "a part of each head": change_config(partial_rotary_factor=0.5),
    "a part of each head that is no number": change_config(partial_rotary_factor=float("nan")),
    "an original length of 0": change_rope(original_max_position_embeddings=0),
    "an original length of 2**60": change_rope(original_max_position_embeddings=2**60),
    "an original length with a fraction": change_rope(original_max_position_embeddings=16.5),
    "a length of four hundred digits": change_config(max_position_embeddings=10**400),
    "a factor that makes the length 2**39": change_rope(factor=2.0**19, original_max_position_embeddings=2**20),
    "beta_fast below beta_slow": change_rope(beta_fast=1, beta_slow=32),
    "a negative beta": change_rope(beta_slow=-1),
    "a beta that is no number": change_rope(beta_fast=float("nan")),
    "an attention factor of 0": change_rope(attention_factor=0.0),
    "an attention factor of 1e308": change_rope(attention_factor=1e308),
    "a scale of text": change_rope(mscale="a", mscale_all_dim="b"),
    "a negative scale": change_rope(mscale=-100.0, mscale_all_dim=1.0),
    "not truncated": change_rope(truncate=False),
    "llama3 without its turns": change_rope(rope_type="llama3"),
    "llama3 with equal turns": change_llama3(low_freq_factor=4.0),
    "llama3 with turns in the wrong order": change_llama3(low_freq_factor=8.0),
    "llama3 with no turns": change_llama3(low_freq_factor=0),
    "llama3 with endless turns": change_llama3(high_freq_factor=float("inf")),
    "too few kinds of layers": change_layer_types(FULL),
    "too many kinds of layers": change_layer_types(FULL, SHORT, SHORT),
    "three hundred thousand kinds of layers": change_config(layer_types=[SHORT] * 300_000),
    "an unknown kind of layer": change_layer_types(FULL, "chunked_attention"),
    "a kind of layer that is a list": change_config(layer_types=[FULL, [SHORT]]),
    "kinds of layers that are text": change_config(layer_types=SHORT),
    "a window that is not used": change_config(use_sliding_window=False),
    "a window of 0": change_config(sliding_window=0),
    "a negative window": change_config(sliding_window=-4),
    "a window of text": change_config(sliding_window="4"),
    "a negative number of layers without a window": change_config(layer_types=None, max_window_layers=-1),
    "layers without a window that are text": change_config(layer_types=None, max_window_layers="1"),
    "a billion layers with a window": change_config(layer_types=None, max_window_layers=0, num_hidden_layers=10**9),
    "a million ends": write_file(GENERATION, '{"eos_token_id": [' + "1," * 10**6 + "1]}"),
    "a negative end": write_file(GENERATION, '{"eos_token_id": -1}'),
    "an end that is text": write_file(GENERATION, '{"eos_token_id": ["</s>"]}'),
    "an end of four hundred digits": write_file(GENERATION, f'{{"eos_token_id": {10**400}}}'),
    "an end with a fraction": write_file(GENERATION, '{"eos_token_id": 1.5}'),
    "ends that are an object": write_file(GENERATION, '{"eos_token_id": {"0": 1}}'),
    "a generation config that is a list": write_file(GENERATION, "[1]"),
    "a generation config that is no JSON": write_file(GENERATION, "{"),
    "a generation config that is nested deep": write_file(GENERATION, "[" * 100_000),
    "a generation config of 20 MB": write_file(GENERATION, '{"a": "' + "x" * 20_000_000 + '"}'),
    "a generation config that is a link outside": link_to(GENERATION, "/etc/hostname"),
    "a generation config that is a link to a good one outside": move_outside_and_link(GENERATION),
    "a link to nothing": link_to("vocab.txt", "no-such-file"),
}

CLASSIFIER: dict[str, Callable[[Path], None]] = {
    "more classes than the file has": change_config(num_labels=4),
    "a billion classes": change_config(num_labels=10**9),
    "no classes": change_config(num_labels=0),
    "classes that are text": change_config(num_labels="three"),
    "an unknown problem": change_config(problem_type="evil"),
    "a problem that is a list": change_config(problem_type=["regression"]),
    "classes of another model": change_config(model_type="roberta"),
    "classes for each token": change_config(architectures=["BertForTokenClassification"]),
}
