"""Whisper in the format of CTranslate2: a small one equals transformers; Whisper base does, if it is in the cache."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from real_audio import read_sentences
from small_whisper import ALPHABET, SIZES, TIMES, build_whisper, list_special_tokens
from test_transcribe import ONCE
from torch import Tensor
from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration

import jumok
from catalogue_cache import use_cached
from jumok.checkpoint import Loaded
from jumok.checkpoint.ctranslate2_whisper import read_ctranslate2_model
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.tasks.speech import TranscriptionSettings, transcribe
from parity import assert_parity

LANGUAGES = ("en", "ko", "de")
NUMBERS = {"encoder/num_heads": SIZES["encoder_attention_heads"], "decoder/num_heads": SIZES["decoder_attention_heads"]}


def rename(theirs: WhisperForConditionalGeneration) -> dict[str, Tensor]:
    """Return the parameters of a model as CTranslate2 names and joins them."""
    parameters = theirs.state_dict()
    variables: dict[str, Tensor] = {
        "encoder/conv1/weight": parameters["model.encoder.conv1.weight"],
        "encoder/conv1/bias": parameters["model.encoder.conv1.bias"],
        "encoder/conv2/weight": parameters["model.encoder.conv2.weight"],
        "encoder/conv2/bias": parameters["model.encoder.conv2.bias"],
        "encoder/position_encodings/encodings": parameters["model.encoder.embed_positions.weight"],
        "decoder/position_encodings/encodings": parameters["model.decoder.embed_positions.weight"],
        "decoder/embeddings/weight": parameters["model.decoder.embed_tokens.weight"],
    }

    def add_norm(name: str, norm: str) -> None:
        variables[f"{name}/gamma"], variables[f"{name}/beta"] = parameters[f"{norm}.weight"], parameters[f"{norm}.bias"]

    def add_linear(name: str, *linears: str) -> None:
        weights = [parameters[f"{linear}.weight"] for linear in linears]
        biases = [
            parameters.get(f"{linear}.bias", torch.zeros(len(weight)))
            for linear, weight in zip(linears, weights, strict=True)
        ]
        variables[f"{name}/weight"], variables[f"{name}/bias"] = torch.cat(weights), torch.cat(biases)

    for stack in ("encoder", "decoder"):
        add_norm(f"{stack}/layer_norm", f"model.{stack}.layer_norm")
        for layer in range(SIZES[f"{stack}_layers"]):
            ours, block = f"{stack}/layer_{layer}", f"model.{stack}.layers.{layer}"
            add_norm(f"{ours}/self_attention/layer_norm", f"{block}.self_attn_layer_norm")
            add_linear(f"{ours}/self_attention/linear_0", *(f"{block}.self_attn.{name}_proj" for name in "qkv"))
            add_linear(f"{ours}/self_attention/linear_1", f"{block}.self_attn.out_proj")
            add_norm(f"{ours}/ffn/layer_norm", f"{block}.final_layer_norm")
            add_linear(f"{ours}/ffn/linear_0", f"{block}.fc1")
            add_linear(f"{ours}/ffn/linear_1", f"{block}.fc2")
            if stack == "decoder":
                add_norm(f"{ours}/attention/layer_norm", f"{block}.encoder_attn_layer_norm")
                add_linear(f"{ours}/attention/linear_0", f"{block}.encoder_attn.q_proj")
                add_linear(f"{ours}/attention/linear_1", *(f"{block}.encoder_attn.{name}_proj" for name in "kv"))
                add_linear(f"{ours}/attention/linear_2", f"{block}.encoder_attn.out_proj")
    return variables


def write_variables(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write model.bin."""

    def name_bytes(name: str) -> bytes:
        return struct.pack("<H", len(name) + 1) + name.encode() + b"\0"

    content = struct.pack("<I", 6) + name_bytes("WhisperSpec") + struct.pack("<II", 3, len(tensors) + len(NUMBERS))
    for name, number in NUMBERS.items():
        content += name_bytes(name) + struct.pack("<BBIh", 0, 2, 2, number)
    for name, tensor in sorted(tensors.items()):
        stored = tensor.numpy().astype(np.float16).tobytes()
        shape = struct.pack(f"<B{tensor.dim()}I", tensor.dim(), *tensor.shape)
        content += name_bytes(name) + shape + struct.pack("<BI", 4, len(stored)) + stored
    aliases = struct.pack("<I", 1) + name_bytes("decoder/projection/weight") + name_bytes("decoder/embeddings/weight")
    path.write_bytes(content + aliases)


def test_small_model_equals_transformers(tmp_path: Path) -> None:
    theirs = build_whisper(LANGUAGES).half().float()
    write_variables(tmp_path / "model.bin", rename(theirs))
    special = list_special_tokens(LANGUAGES)[:-TIMES]
    Tokenizer.for_characters(ALPHABET).with_special_tokens(special).save(tmp_path)
    generation = theirs.generation_config
    settings = {
        "alignment_heads": generation.alignment_heads,
        "lang_ids": list(generation.lang_to_id.values()),
        "suppress_ids": generation.suppress_tokens,
        "suppress_ids_begin": generation.begin_suppress_tokens,
    }
    (tmp_path / "config.json").write_text(json.dumps(settings))

    loaded = read_ctranslate2_model(tmp_path)
    features, target = (
        torch.randn(2, SIZES["num_mel_bins"], 2 * SIZES["max_source_positions"]),
        torch.arange(22).view(2, 11),
    )
    with torch.no_grad():
        assert_parity(loaded.model.float()(features, target).logits, theirs(features, decoder_input_ids=target).logits)
    tokens = loaded.speech_tokens
    assert (tokens.start, tokens.end) == (theirs.config.decoder_start_token_id, theirs.config.eos_token_id)
    assert tokens.languages == {code: generation.lang_to_id[f"<|{code}|>"] for code in LANGUAGES}
    assert {"transcribe": tokens.transcribe, "translate": tokens.translate} == generation.task_to_id
    assert (tokens.no_timestamps, tokens.previous) == (generation.no_timestamps_token_id, generation.prev_sot_token_id)
    assert loaded.tokenizer.encode("<|30.00|>", special=False) == [tokens.first_time + 1500]
    assert tokens.suppressed == tuple(generation.suppress_tokens)
    assert tokens.alignment_heads == ((0, 1), (2, 4))


@pytest.fixture(scope="module")
def whisper_base() -> Loaded:
    """Return Whisper base, a download of 133 MB that the tests do not make by themselves."""
    with use_cached("whisper-base"):
        return jumok.load("whisper-base")


@pytest.mark.slow
def test_whisper_base_equals_transformers(whisper_base: Loaded, tmp_path: Path) -> None:
    """The logits, the language, and the text of a sentence, by transformers with the same parameters."""
    jumok.save(whisper_base, tmp_path / "theirs", format="huggingface")
    theirs: Any = WhisperForConditionalGeneration.from_pretrained(tmp_path / "theirs").eval()
    _, samples = read_sentences()[3]
    features = WhisperFeatureExtractor()(samples.numpy(), sampling_rate=16_000, return_tensors="pt")["input_features"]
    with torch.inference_mode():
        sequence = theirs.generate(features, num_beams=1, do_sample=False)  # detects the language, transcribes
        language = theirs.detect_language(features)
        prompt = torch.tensor([whisper_base.speech_tokens.build_prompt("en", timestamps=False)])
        text = torch.cat([prompt, sequence[:, -12:]], 1)
        assert_parity(whisper_base.model(features, text).logits, theirs(features, decoder_input_ids=text).logits)
    transcript = transcribe(whisper_base, samples, TranscriptionSettings(timestamps=False, **ONCE))
    assert whisper_base.speech_tokens.languages[transcript.language] == int(language)
    expected = whisper_base.require_tokenizer().decode(sequence[0].tolist(), special=False).strip()
    assert transcript.text == expected and len(expected.split()) > 5
