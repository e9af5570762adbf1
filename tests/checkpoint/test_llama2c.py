"""A model of llama2.c: a small one equals transformers with the same parameters."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from jumok.checkpoint.conversion import find_converted_folder
from jumok.checkpoint.llama2c import read_llama2c_model
from parity import assert_parity, perturb_parameters

WIDTH, HIDDEN, LAYERS, HEADS, GROUPS, LENGTH = 24, 37, 3, 6, 3, 19
PIECES = [("<unk>", 0.0), ("\n<s>\n", 0.0), ("\n</s>\n", 0.0), *((chr(byte), 0.0) for byte in range(256))]
PIECES += [(" ", -9.0), ("t", -9.0), ("h", -9.0), ("e", -9.0), (" t", -3.0), ("he", -2.0), ("th", -4.0), (" the", -1.0)]
KINDS = (
    "input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
    "post_attention_layernorm", "mlp.gate_proj", "mlp.down_proj", "mlp.up_proj",
)  # fmt: skip


def pair_neighbours(kind: str, tensor: torch.Tensor) -> torch.Tensor:
    """Return a matrix as llama2.c stores it: it rotates neighbouring rows, transformers the two halves of a head."""
    if not kind.endswith(("q_proj", "k_proj")):
        return tensor
    heads = HEADS if kind.endswith("q_proj") else GROUPS
    first, second = tensor.view(heads, 2, -1, WIDTH).unbind(1)
    return torch.stack([first, second], 2).reshape_as(tensor)


def test_small_model_equals_transformers(tmp_path: Path) -> None:
    sizes = {"vocab_size": len(PIECES), "hidden_size": WIDTH, "intermediate_size": HIDDEN, "num_hidden_layers": LAYERS}
    heads = {"num_attention_heads": HEADS, "num_key_value_heads": GROUPS, "max_position_embeddings": LENGTH}
    config = LlamaConfig(**sizes, **heads, rms_norm_eps=1e-5, tie_word_embeddings=True)
    theirs = perturb_parameters(LlamaForCausalLM(config)).eval()
    stored = theirs.state_dict()
    tensors = [stored["model.embed_tokens.weight"]]
    for kind in KINDS:
        tensors += [pair_neighbours(kind, stored[f"model.layers.{layer}.{kind}.weight"]) for layer in range(LAYERS)]
    tensors += [stored["model.norm.weight"], torch.full((2, LENGTH, WIDTH // HEADS // 2), torch.nan)]
    content = struct.pack("<7i", WIDTH, HIDDEN, LAYERS, HEADS, GROUPS, len(PIECES), LENGTH)
    content += b"".join(tensor.numpy().astype(np.float32).tobytes() for tensor in tensors) + struct.pack("<i", 27)
    for piece, score in PIECES:
        content += struct.pack("<fi", score, len(piece.encode())) + piece.encode()
    (tmp_path / "llama2.data").write_bytes(content)

    loaded = read_llama2c_model(tmp_path)
    tokens = torch.randint(0, len(PIECES), (2, LENGTH))
    with torch.no_grad():
        assert_parity(loaded.model(tokens).logits, theirs(tokens).logits)
    tokenizer, ids = loaded.require_tokenizer(), {piece: number for number, (piece, _) in enumerate(PIECES)}
    assert tokenizer.encode("the het\n") == [1, ids[" the"], ids[" "], ids["he"], ids["t"], 3 + ord("\n")]
    assert tokenizer.decode(tokenizer.encode("the het\n"), special=False) == "the het\n"
    assert tokenizer.ends == (1,)
    assert find_converted_folder(tmp_path).is_dir()
