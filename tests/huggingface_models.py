"""Small untrained models of transformers, with inputs for each."""

from __future__ import annotations

from typing import Any

import torch
import transformers as hf
from torch import Tensor, nn

TOKENS = torch.randint(3, 90, (2, 11), generator=torch.Generator().manual_seed(0))
TARGETS = torch.randint(3, 90, (2, 7), generator=torch.Generator().manual_seed(1))
IMAGES = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(2))
SIZES: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
}  # fmt: skip
SPECIAL_TOKENS: dict[str, Any] = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
TEXT: dict[str, Any] = {"vocab_size": 100, **SPECIAL_TOKENS}
TEXT_INPUTS = {"input_ids": TOKENS}
PAIR_INPUTS = {"input_ids": TOKENS, "decoder_input_ids": TARGETS}

#: by name: the model's class, its config, and its inputs
MODELS: dict[str, tuple[Any, Any, dict[str, Tensor]]] = {
    "gpt2": (
        hf.GPT2LMHeadModel,
        hf.GPT2Config(n_embd=32, n_layer=3, n_head=4, n_positions=32, **TEXT),
        TEXT_INPUTS,
    ),
    "llama": (hf.LlamaForCausalLM, hf.LlamaConfig(num_key_value_heads=2, **SIZES, **TEXT), TEXT_INPUTS),
    "opt": (
        hf.OPTForCausalLM,
        hf.OPTConfig(
            hidden_size=32, ffn_dim=48, num_hidden_layers=3, num_attention_heads=4, max_position_embeddings=32, **TEXT
        ),
        TEXT_INPUTS,
    ),
    "gpt_neox": (hf.GPTNeoXForCausalLM, hf.GPTNeoXConfig(**SIZES, **TEXT), TEXT_INPUTS),
    "bert": (hf.BertForMaskedLM, hf.BertConfig(vocab_size=100, **SIZES), TEXT_INPUTS),
    "t5": (
        hf.T5ForConditionalGeneration,
        hf.T5Config(
            vocab_size=100, d_model=32, d_kv=8, d_ff=48, num_layers=3, num_heads=4, decoder_start_token_id=0
        ),
        PAIR_INPUTS,
    ),
    "bart": (
        hf.BartForConditionalGeneration,
        hf.BartConfig(
            vocab_size=100,
            d_model=32,
            encoder_layers=3,
            decoder_layers=3,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=48,
            decoder_ffn_dim=48,
            max_position_embeddings=32,
        ),
        PAIR_INPUTS,
    ),
    "vit": (hf.ViTForImageClassification, hf.ViTConfig(image_size=16, patch_size=4, **SIZES), {"pixel_values": IMAGES}),
    "swin": (
        hf.SwinForImageClassification,
        hf.SwinConfig(image_size=16, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4),
        {"pixel_values": IMAGES},
    ),
}  # fmt: skip


def build_model(name: str) -> Any:
    """A model with larger parameters than a new one, so that its heads attend to some keys more than to others.

    Embeddings stay as they are: if they are also the output layer, a model with large ones repeats its last token."""
    torch.manual_seed(5)
    model_class, config, _ = MODELS[name]
    model = model_class(config).eval()
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2 and id(parameter) not in embeddings:
                parameter.mul_(4)
    return model
