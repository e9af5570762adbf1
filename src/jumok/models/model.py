"""The base class of all model families: what a model declares, and what every model can do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from jumok.attention.attend import check_backend
from jumok.attention.multihead import AttentionLayer
from jumok.attention.weights import AttentionModule
from jumok.errors import ArgumentError
from jumok.layers.patches import PatchLayout
from jumok.tap import has_listeners, name_sites

from .config import Config

SOURCES = ("text", "image", "regions", "audio", "numbers")
# what a model is for, and what it answers
TASKS = {
    "continue": "text", "translate": "text", "caption": "text", "transcribe": "text", "fill": "tokens",
    "classify": "classes", "score": "numbers", "embed": "vector", "predict": "numbers",
}  # fmt: skip


@dataclass(frozen=True)
class Output:
    """The output of a model. Each family documents which fields it sets; the others are None.

    Attributes:
        logits: Scores of tokens, [batch, length, vocabulary], or of classes, [batch, classes].
        hidden: Vectors of the last layer, [batch, length, width].
        weights: Attention weights, if requested: one tensor [batch, head, query, key] per layer, or for an
            encoder-decoder a dict of such tuples under "encoder", "decoder" and "cross".
    """

    logits: Tensor | None = None
    hidden: Tensor | None = None
    weights: Any = None


torch.export.register_dataclass(Output, serialized_type_name="jumok.Output")


class Model(AttentionModule):
    """Base class of all families. ``model(..., weights=True)`` also returns the weights of every attention.

    A family declares its input and its task as class attributes, builds its layers in
    ``__init__`` and then calls ``finish_construction()``. Where the config decides (BERT with a masked-language-model
    head fills masks), ``__init__`` overrides the attribute on the instance.

    Attributes:
        family: The family's name in the registry and in config.json.
        config_class: The family's config class.
        config: The config this model was built from.
        reads: The (source) input: "text", "image", "regions", "audio" or "numbers".
        task: "continue", "translate", "caption", "transcribe", "fill", "classify", "score", "embed" or "predict".
        is_encoder_decoder: True if the model has ``encode()`` and ``decode()``.
        is_recurrent: True if the past of the decoder is one state, not the keys and values of every token.
        independent_classes: True if each class has a probability of its own (sigmoid), False if they sum to 1.
        prefix_tokens: Labels of the special positions before the patches or tokens, such as ("[class]",).
        checkpointing: Recompute each block in the backward pass instead of storing its activations: less memory,
            same gradients.
    """

    family: ClassVar[str]
    config_class: ClassVar[type[Config]]
    config: Config

    reads: str
    task: str
    is_encoder_decoder: bool = False
    is_recurrent: bool = False
    independent_classes: bool = False
    prefix_tokens: tuple[str, ...] = ()

    checkpointing: bool = False

    @property
    def answers(self) -> str:
        """The output of the task: "text", "vector", "classes", "tokens" or "numbers"."""
        return TASKS[self.task]

    @property
    def context_length(self) -> int | None:
        """The longest token sequence; None = unlimited."""
        length: int | None = self._read_setting("length")
        return length

    @property
    def ends_at_context(self) -> bool:
        """Whether a text is complete at the context length; False = generation continues with a sliding window."""
        return False

    @property
    def class_count(self) -> int | None:
        """The number of classes of the classification head; None without one."""
        # a family with classes but without a choice of heads always has that one
        has_classes = self._read_setting("head") in (None, "classes", "teacher")
        return self._read_setting("classes") if has_classes else None

    @property
    def start_token(self) -> int | None:
        """The token that a decoder's input begins with; None without a decoder of tokens."""
        token: int | None = self._read_setting("start")
        return token

    @property
    def end_token(self) -> int | None:
        """The token that ends a decoder's output; None without a decoder of tokens."""
        token: int | None = self._read_setting("end")
        return token

    @property
    def image_size(self) -> tuple[int, int] | None:
        """Rows and columns of an image in pixels; None if the model reads no images."""
        return tuple(self._read_setting("image")) if self.reads == "image" else None

    @property
    def source_shape(self) -> tuple[int, ...] | None:
        """The shape of the largest source without the batch: (channels, rows, columns) of an image, (regions, features)
        or (mel bins, frames); None if the model reads tokens or numbers, of which there may be any number."""
        return None if self.image_size is None else (self._read_setting("channels"), *self.image_size)

    @property
    def image_channels(self) -> int | None:
        """Number of channels (3 for RGB, 1 for grey); None if the model reads no images."""
        return self._read_setting("channels") if self.reads == "image" else None

    @property
    def patch_grid(self) -> tuple[int, int] | None:
        """Rows and columns of patches in an image of the config's size; None if the model reads no images."""
        if self.image_size is None:
            return None
        (rows, columns), (patch_rows, patch_columns) = self.image_size, self._read_setting("patch")
        return rows // patch_rows, columns // patch_columns

    def _read_setting(self, name: str) -> Any:
        """Return a field of the config; None where the family has no such field."""
        return getattr(self.config, name, None)

    def locate_patches(self, site: str, image: tuple[int, int]) -> PatchLayout | None:
        """Return where the positions of an attention lie in an image; None if the model reads no images.

        Args:
            site: The name of the attention.
            image: Rows and columns of the image, in pixels.
        """
        if self.patch_grid is None:
            return None
        rows, columns = self.patch_grid
        return PatchLayout((rows, columns), (image[0] // rows, image[1] // columns), self.prefix_tokens)

    def describe_unlearned(self, source: Tensor) -> str:
        """Return one sentence if a source is unlike those of the training, so that the answer may be wrong; else "".

        Args:
            source: The model's input.
        """
        return ""

    def predict(self, source: Tensor, length: int) -> Tensor:
        """Return ``length`` predicted numbers for each sequence, [batch, length]: the task "predict".

        Args:
            source: The numbers of each sequence, [batch, source].
            length: How many numbers to predict.
        """
        raise ArgumentError(f"this {self.family} model predicts no numbers")

    def compute_logits(self, stream: Tensor) -> Tensor | None:
        """Return the token logits of vectors behind the last block, [..., width]: the last norm, then the output layer.
        Of vectors behind an earlier block this is the logit lens (nostalgebraist 2020). None: no tokens are predicted.

        Args:
            stream: Vectors of the residual stream; of an encoder-decoder, of its decoder.
        """
        return None

    def list_many_row_modules(self) -> list[nn.Module]:
        """Return the parts that read thousands of rows at every call, for which ``quantize`` has another kernel."""
        return []

    @property
    def parameter_count(self) -> int:
        """The number of parameters; tied ones count once."""
        return sum(parameter.numel() for parameter in self.parameters())

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return next(self.parameters()).device

    def finish_construction(self) -> None:
        """Name every layer for the lens and initialise the parameters. Call it at the end of ``__init__``.

        Raises:
            ArgumentError: If the family declares an unknown source or task.
        """
        for declared, valid in ((self.reads, SOURCES), (self.task, TASKS)):
            if declared not in valid:
                raise ArgumentError(f"the family {self.family} declares {declared!r}; choose one of {', '.join(valid)}")
        name_sites(self)
        if not any(parameter.is_meta for parameter in self.parameters()):
            self.initialise()

    def initialise(self) -> None:
        """Initialise the parameters as the family's paper describes."""
        raise NotImplementedError

    def use_backend(self, backend: str) -> None:
        """Compute every attention of this model with one backend.

        Args:
            backend: "auto", "explicit", "sdpa", "blocked", "flex" or "linear".

        Raises:
            BackendError: If there is no such backend.
        """
        check_backend(backend)
        for module in self.modules():
            if isinstance(module, AttentionLayer):
                module.backend = backend

    def run_blocks(self, blocks: Iterable[nn.Module], hidden: Tensor, *inputs: Tensor, **settings: Any) -> Tensor:
        """Apply blocks one after another, with gradient checkpointing if it is on.

        Args:
            blocks: The blocks of a stack.
            hidden: The first block's input, [batch, length, width].
            *inputs: Further inputs of every block, such as the encoder's output.
            **settings: Keyword arguments of every block: mask, bias, positions, cache.

        Returns:
            The last block's output.
        """
        # An open listener may change what a block computes, and the backward pass recomputes without it.
        recomputes = self.checkpointing and torch.is_grad_enabled() and not has_listeners()
        for block in blocks:
            if recomputes:
                hidden = checkpoint(block, hidden, *inputs, use_reentrant=False, **settings)
            else:
                hidden = block(hidden, *inputs, **settings)
        return hidden

    def add_weights(self, output: Output, calls: list[tuple[str, Tensor]]) -> Output:
        return replace(output, weights=self.arrange_weights(calls))

    def arrange_weights(self, calls: list[tuple[str, Tensor]]) -> Any:
        """Return the weights of a forward pass as ``Output.weights``: a tensor for each attention.

        Args:
            calls: The name of each attention and its weights, in the order of the calls.
        """
        return tuple(weights for _, weights in calls)


def initialise_normal(parameter: Tensor, deviation: float) -> None:
    """Fill a parameter from a normal distribution with mean 0."""
    nn.init.normal_(parameter, std=deviation)


def initialise_truncated(parameter: Tensor) -> None:
    """Fill a parameter from a normal distribution with standard deviation 0.02, cut off at -2 and 2."""
    nn.init.trunc_normal_(parameter, std=0.02)


def initialise_linear_layers(model: nn.Module, draw: Callable[[Tensor], object]) -> None:
    """Initialise the parameters of all linear, embedding and convolution layers; set biases to 0."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding | nn.Conv1d | nn.Conv2d):
            draw(module.weight)
        if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d) and module.bias is not None:
            nn.init.zeros_(module.bias)
