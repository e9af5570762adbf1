"""What every model can do: be configured, be watched, choose how it computes, save memory while it trains."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from jumok.attention import BACKENDS
from jumok.errors import ArgumentError, BackendError, ShapeError
from jumok.small_batch_linear import linear
from jumok.tap import name_sites

from .config import Config

SOURCES = ("text", "image", "regions", "numbers")
TASKS = ("continue", "translate", "caption", "fill", "classify", "score", "embed", "predict")
ANSWERS = ("text", "vector", "classes", "tokens", "numbers")

Weights = tuple[Float[Tensor, "batch head query key"], ...]  # one a layer


@dataclass(frozen=True)
class Output:
    """What a model gives. Which of these there are, the family's page says; the others are None.

    weights: for one stack a tuple, a tensor a layer; for several a dict of such tuples ("encoder", "decoder", "cross").
    """

    logits: Tensor | None = None
    hidden: Tensor | None = None
    weights: Any = None


class Model(nn.Module):
    """Base class of all families.

    A family declares what it reads, its task and what it answers as class attributes, builds its layers in
    ``__init__`` and then calls ``finish()``. Where the config decides (BERT with a masked-language-model head fills
    masks), ``__init__`` overrides the attribute on the instance.

    Attributes:
        family: The family's name in the registry and in config.json.
        config_class: The family's config class.
        config: The config this model was built from.
        reads: The (source) input: "text", "image", "regions" or "numbers".
        task: "continue", "translate", "caption", "fill", "classify", "score", "embed" or "predict".
        answers: The output of the task: "text", "vector", "classes", "tokens" or "numbers".
        is_encoder_decoder: True if the model has ``encode()`` and ``decode()``.
        independent_classes: True if each class has a probability of its own (sigmoid), False if they sum to 1.
        prefix_tokens: Labels of the special positions before the patches or tokens, such as ("[class]",).
    """

    family: ClassVar[str]
    config_class: ClassVar[type[Config]]
    config: Config

    reads: str
    task: str
    answers: str
    is_encoder_decoder: bool = False
    independent_classes: bool = False
    prefix_tokens: tuple[str, ...] = ()

    #: recompute each block in the backward pass instead of keeping what is inside: less memory, same gradients
    checkpointing: bool = False

    @property
    def context_length(self) -> int | None:
        """The longest token sequence; None = unlimited."""
        return None

    @property
    def class_count(self) -> int | None:
        """The number of classes of the classification head; None without one."""
        return None

    @property
    def start_token(self) -> int | None:
        """The token that a decoder's input begins with; None without a decoder of tokens."""
        return None

    @property
    def end_token(self) -> int | None:
        """The token that ends a decoder's output; None without a decoder of tokens."""
        return None

    @property
    def image_size(self) -> tuple[int, int] | None:
        """Rows and columns of an image in pixels; None if the model reads no images."""
        return None

    @property
    def image_channels(self) -> int | None:
        """Numbers in a pixel (3 = red, green and blue); None if the model reads no images."""
        return None

    @property
    def patch_grid(self) -> tuple[int, int] | None:
        """Rows and columns of patches in an image; None if the model reads no images."""
        return None

    def finish(self) -> None:
        """Tell every part its name, and draw the first parameters as the family's paper does."""
        name_sites(self)
        if not any(parameter.is_meta for parameter in self.parameters()):
            self.initialise()

    def initialise(self) -> None:
        """Draw the first parameters."""
        raise NotImplementedError

    def use_backend(self, backend: str) -> None:
        """Let every attention of this model be computed this way: "auto", "explicit", "sdpa", "blocked", ..."""
        if backend != "auto" and backend not in BACKENDS:
            raise BackendError(f"unknown backend {backend!r}; known are auto, {', '.join(BACKENDS)}")
        for module in self.modules():
            if hasattr(module, "backend"):  # whatever passes the door says so
                setattr(module, "backend", backend)  # noqa: B010  # modules of several kinds have one

    @property
    def parameter_count(self) -> int:
        """Each parameter once, tied ones too."""
        return sum(parameter.numel() for parameter in self.parameters())

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def through(
        self, blocks: Iterable[nn.Module], hidden: Tensor, *rest: Any, weights: bool = False, **settings: Any
    ) -> tuple[Tensor, list[Any]]:
        """Through the blocks one after another; what each saw is listed where weights are asked for."""
        found: list[Any] = []
        for block in blocks:
            if self.checkpointing and torch.is_grad_enabled():
                answer = checkpoint(block, hidden, *rest, weights=weights, use_reentrant=False, **settings)
            else:
                answer = block(hidden, *rest, weights=weights, **settings)
            if weights:
                hidden, seen = answer
                found.append(seen)
            else:
                hidden = answer
        return hidden, found


def check_tokens(tokens: Int[Tensor, "batch length"], vocabulary: int) -> None:
    """Token ids that the embedding has; a sentence otherwise."""
    if not isinstance(tokens, Tensor):
        raise ShapeError(
            f"tokens must be a tensor [batch, length], not a {type(tokens).__name__}; torch.tensor([[5, 3]])"
        )
    if tokens.dim() != 2 or tokens.is_floating_point():
        raise ShapeError(f"tokens must be whole numbers [batch, length], not {tokens.dtype}{list(tokens.shape)}")
    if not tokens.shape[1]:
        raise ArgumentError("the text is empty: a model needs at least one token")
    if torch.compiler.is_compiling():
        return  # a graph must not wait for numbers; the embedding's own check is left
    lowest, highest = int(tokens.min()), int(tokens.max())
    if lowest < 0 or highest >= vocabulary:
        wrong = lowest if lowest < 0 else highest
        raise ArgumentError(f"token {wrong} is unknown: this model has tokens 0 to {vocabulary - 1}")


def token_logits(
    hidden: Float[Tensor, "batch length width"], output: nn.Module | None, table: nn.Embedding
) -> Float[Tensor, "batch length vocabulary"]:
    """By the output map, or by the embedding's table where they are one."""
    logits: Tensor = linear(hidden, table.weight, None) if output is None else output(hidden)
    return logits


def normal_(parameter: Tensor, deviation: float) -> None:
    nn.init.normal_(parameter, std=deviation)


def initialise_linear(root: nn.Module, draw: Callable[[Tensor], object]) -> None:
    """``draw`` for every matrix of a map or a table, zeros for biases, norms at one and zero."""
    for module in root.modules():
        if isinstance(module, nn.Linear | nn.Embedding | nn.Conv2d):
            draw(module.weight)
        if isinstance(module, nn.Linear | nn.Conv2d) and module.bias is not None:
            nn.init.zeros_(module.bias)
