"""Add a model family: a language model whose only position information is a linear bias (Press et al. 2022, ALiBi).

You learn: a family is a config and a model that declares what it reads and its task."""

import tempfile
from dataclasses import dataclass

import torch

import jumok
from jumok.attention import MultiHead, bias
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.fields import integer
from jumok.layers import EncoderBlock, FeedForward, LayerNorm
from jumok.layers.token_inputs import build_causal_mask, check_tokens, compute_token_logits
from jumok.models import Config, Model, Output
from jumok.models.model import initialise_linear_layers, initialise_normal
from jumok.models.registry import register_family


@dataclass(frozen=True)
class AlibiConfig(Config):
    family = "alibi"
    vocabulary: int = integer(256, "number of tokens")
    width: int = integer(32, "width of the model")
    layers: int = integer(2, "number of blocks")
    heads: int = integer(4, "number of attention heads")


@register_family
class Alibi(Model):
    family, config_class = "alibi", AlibiConfig
    reads, task = "text", "continue"

    def __init__(self, config):
        super().__init__()
        self.config, width = config, config.width
        self.embedding = torch.nn.Embedding(config.vocabulary, width)
        parts = [(MultiHead(width, config.heads), FeedForward(width, 4 * width)) for _ in range(config.layers)]
        self.blocks = torch.nn.ModuleList(EncoderBlock(*part, norm=lambda: LayerNorm(width)) for part in parts)
        self.finish_construction()

    def initialise(self):
        initialise_linear_layers(self, lambda parameter: initialise_normal(parameter, 0.02))

    def forward(self, tokens, *, token_mask=None, positions=None, cache=None, last=None):
        check_tokens(tokens, self.config.vocabulary)
        causal = build_causal_mask(token_mask, tokens.shape[1] + (0 if cache is None else cache.length))
        settings = {"mask": causal, "bias": bias.alibi(self.config.heads), "cache": cache}
        hidden = self.run_blocks(self.blocks, self.embedding(tokens), **settings)
        hidden = hidden[:, -(last or hidden.shape[1]) :]
        return Output(compute_token_logits(hidden, None, self.embedding), hidden)


model, tokens = Alibi(AlibiConfig()).eval(), torch.tensor([[5, 3, 7]])
folder = jumok.save(model, tempfile.mkdtemp() + "/alibi", tokenizer=Tokenizer.for_bytes())
print("same logits:", torch.equal(model(tokens).logits, jumok.load(folder).model(tokens).logits))
print("run answers with a text:", isinstance(jumok.run(folder, "Once upon", limit=4), str))
with jumok.Lens(model) as lens:
    print("weights of one head:", list(lens.run(tokens).weights(1, 0).shape))
