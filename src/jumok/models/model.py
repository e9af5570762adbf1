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
    """The base of all families. Subclasses build their parts, then call ``finish()``."""

    family: ClassVar[str]
    config_class: ClassVar[type[Config]]
    config: Config

    #: recompute each block in the backward pass instead of keeping what is inside: less memory, same gradients
    checkpointing: bool = False

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
