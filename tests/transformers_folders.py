"""Small folders of models that none of Jumok's families holds, written by transformers, with tokenizers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from tokenizers import Tokenizer, models, pre_tokenizers, processors

WORDS = ["the", "cat", "sat", "on", "mat", "a", "dog", "Mary", "John", "gave", "book", "to", "주목", "은"]
SIZES: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
}  # fmt: skip
PAIR: dict[str, Any] = {
    "vocab_size": 30, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 64,
    "bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2, "forced_eos_token_id": None,
}  # fmt: skip
CAUSAL: dict[str, Any] = {**SIZES, "vocab_size": 30, "max_position_embeddings": 128}
OPT: dict[str, Any] = {
    "vocab_size": 30, "hidden_size": 32, "word_embed_proj_dim": 32, "ffn_dim": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": 128,
}  # fmt: skip

BUILDERS: dict[str, Callable[[], Any]] = {
    "opt": lambda: hf.OPTForCausalLM(hf.OPTConfig(**OPT)),
    "gpt_neox": lambda: hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(**CAUSAL)),
    "phi": lambda: hf.PhiForCausalLM(hf.PhiConfig(**CAUSAL)),
    "gemma": lambda: hf.GemmaForCausalLM(hf.GemmaConfig(**CAUSAL, head_dim=8, num_key_value_heads=2)),
    "electra": lambda: hf.ElectraForPreTraining(hf.ElectraConfig(**SIZES, vocab_size=30, embedding_size=32)),
    "bert": lambda: hf.BertForQuestionAnswering(hf.BertConfig(**SIZES, vocab_size=30)),
    "bart": lambda: hf.BartForConditionalGeneration(hf.BartConfig(**PAIR)),
    "mbart": lambda: hf.MBartForConditionalGeneration(hf.MBartConfig(**PAIR)),
    "reformer": lambda: hf.ReformerModelWithLMHead(
        hf.ReformerConfig(
            vocab_size=30,
            is_decoder=True,
            hidden_size=32,
            attention_head_size=8,
            num_attention_heads=4,
            attn_layers=["local", "local"],
            axial_pos_embds=False,
            max_position_embeddings=64,
            feed_forward_size=48,
            local_attn_chunk_length=16,
            eos_token_id=2,
            pad_token_id=0,
        )
    ),
    "fnet": lambda: hf.FNetForMaskedLM(
        hf.FNetConfig(vocab_size=30, hidden_size=32, num_hidden_layers=2, intermediate_size=48)
    ),
    "bloom": lambda: hf.BloomForCausalLM(hf.BloomConfig(vocab_size=30, hidden_size=32, n_layer=2, n_head=4)),
    "dinov2": lambda: hf.Dinov2ForImageClassification(
        hf.Dinov2Config(image_size=28, patch_size=7, num_labels=3, mlp_ratio=2, **drop_size(SIZES))
    ),
    "beit": lambda: hf.BeitForImageClassification(hf.BeitConfig(image_size=32, patch_size=8, num_labels=3, **SIZES)),
    "wav2vec2": lambda: hf.Wav2Vec2Model(
        hf.Wav2Vec2Config(
            conv_dim=(16, 16),
            conv_stride=(5, 2),
            conv_kernel=(10, 3),
            num_conv_pos_embeddings=8,
            num_conv_pos_embedding_groups=4,
            **SIZES,
        )
    ),
}
#: models that read an image or sound, without a tokenizer
WITHOUT_TEXT = ("dinov2", "beit", "wav2vec2")


def drop_size(sizes: dict[str, Any]) -> dict[str, Any]:
    """Return the sizes without the width of the MLP, which DINOv2 states as a ratio."""
    return {name: size for name, size in sizes.items() if name != "intermediate_size"}


def build_tokenizer(begin: str = "<s>", end: str = "</s>") -> Any:
    """Return a tokenizer of transformers with one token per word, between a begin and an end token."""
    vocabulary = {token: index for index, token in enumerate([begin, "<pad>", end, "<unk>", *WORDS])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}", special_tokens=[(begin, 0), (end, 2)]
    )
    return hf.PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token=begin, eos_token=end, pad_token="<pad>", unk_token="<unk>"
    )


def build_model(name: str) -> Any:
    """Return a model with random parameters, large enough that heads attend to some keys more than to others."""
    torch.manual_seed(3)
    model = BUILDERS[name]().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(5)
    return model


def write_folder(folder: Path, name: str, **changes: Any) -> Path:
    """Write a model with its tokenizer, and change entries of its config.json."""
    hf.utils.logging.disable_progress_bar()
    build_model(name).save_pretrained(folder)
    if name not in WITHOUT_TEXT:
        build_tokenizer().save_pretrained(folder)
    change_config(folder, **changes)
    return folder


def change_config(folder: Path, **changes: Any) -> None:
    """Replace entries of config.json."""
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
