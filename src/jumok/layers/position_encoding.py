"""Where a token stands, told to the model: sinusoids, a learned table, or a rotation. (Relative biases are biases.)"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from jumok.errors import ArgumentError, ShapeError

from .embedding import make_embedding
from .rotary_scaling import RotaryScaling

Positions = range | Tensor  # as at the door: a range, or integers [length] or [batch, length]


def _tensor(positions: Positions, device: torch.device) -> Tensor:
    if isinstance(positions, range):
        return torch.arange(positions.start, positions.stop, positions.step, device=device)
    return positions.to(device)


class SinusoidalPositions(nn.Module):
    """sin and cos of the position at wavelengths from 2 pi to base * 2 pi (Vaswani et al. 2017). Any width, odd too.

    layout: "interleaved" has sines at even places, cosines at odd ones (the paper); "halves" all sines first (Marian).

    >>> Sinusoidal(6)(range(3)).shape
    torch.Size([3, 6])
    """

    def __init__(self, width: int, base: float = 10_000.0, layout: str = "interleaved") -> None:
        super().__init__()
        if width < 1:
            raise ArgumentError(f"width must be at least 1, not {width}")
        if layout not in ("interleaved", "halves"):
            raise ArgumentError(f'layout must be "interleaved" or "halves", not {layout!r}')
        self.width, self.base, self.layout = width, base, layout

    def forward(self, positions: Positions, device: torch.device | None = None) -> Float[Tensor, "*batch length width"]:
        places = _tensor(
            positions, device or (torch.device("cpu") if isinstance(positions, range) else positions.device)
        )
        # No parameters and no buffers: nothing of this belongs in a checkpoint. float64 until the end: half precision
        # loses far positions.
        even = torch.arange(0, self.width, 2, dtype=torch.float64, device=places.device)
        angle = places[..., None].double() * self.base ** (-even / self.width)
        both = [angle.sin(), angle.cos()]
        told = torch.stack(both, -1).flatten(-2) if self.layout == "interleaved" else torch.cat(both, -1)
        return told[..., : self.width].float()  # an odd width has one cosine less


class LearnedPositions(nn.Module):
    """A vector of its own for each of ``length`` positions (GPT-2, BERT)."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.table = make_embedding(length, width)

    def forward(self, positions: Positions) -> Float[Tensor, "*batch length width"]:
        length = self.table.num_embeddings
        ends: tuple[int, ...] = ()
        if isinstance(positions, Tensor) and positions.numel():
            ends = (int(positions.min()), int(positions.max()))
        elif isinstance(positions, range) and len(positions):
            ends = (positions[0], positions[-1])
        for position in ends:
            if not 0 <= position < length:
                raise ShapeError(
                    f"position {position} was asked for, but this model has learned {length}, 0 to {length - 1}; "
                    "shorten the input"
                )
        embedded: Tensor = self.table(_tensor(positions, self.table.weight.device))
        return embedded


class RotaryPositions(nn.Module):
    """Turns pairs of numbers by an angle that grows with the position (Su et al. 2021): scores then depend on
    distances alone. Made from the head's width; works on queries and keys at the door's layout.

    pairing: "halves" pairs number i with i + head_width/2 (Llama, NeoX); "neighbours" pairs 2i with 2i+1 (the paper).
    scaling: how the rotation is slowed down for texts longer than those of the training; None = not at all.
    """

    def __init__(
        self, head_width: int, base: float = 10_000.0, pairing: str = "halves", scaling: RotaryScaling | None = None
    ) -> None:
        super().__init__()
        if head_width % 2:
            raise ArgumentError(f"a rotation turns pairs of numbers; head_width must be even, not {head_width}")
        if pairing not in ("halves", "neighbours"):
            raise ArgumentError(f'pairing must be "halves" or "neighbours", not {pairing!r}')
        if scaling is not None and base <= 1:
            raise ArgumentError(f"a rotation can be scaled where its base is above 1, not at {base}")
        self.head_width, self.base, self.pairing, self.scaling = head_width, base, pairing, scaling
        self._known: tuple[tuple[range, torch.device, torch.dtype], tuple[Tensor, Tensor]] | None = None

    def forward(
        self, vectors: Float[Tensor, "batch head length head_width"], positions: Positions
    ) -> Float[Tensor, "batch head length head_width"]:
        if vectors.shape[-1] != self.head_width:
            raise ShapeError(f"this rotation was made for heads {self.head_width} wide, not {list(vectors.shape)}")
        cosine, sine = self._angles(positions, vectors)
        if self.pairing == "halves":
            first, second = vectors.chunk(2, -1)
            return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1)
        first, second = vectors[..., 0::2], vectors[..., 1::2]
        turned = [first * cosine - second * sine, second * cosine + first * sine]
        return torch.stack(turned, -1).flatten(-2)

    def _angles(self, positions: Positions, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines, [length, pair] or [batch, 1, length, pair]; those of the last range are kept, because
        every layer of a model asks for the same."""
        if not isinstance(positions, range):
            return self._computed(positions, vectors)
        asked = (positions, vectors.device, vectors.dtype)
        if self._known is None or self._known[0] != asked:
            self._known = (asked, self._computed(positions, vectors))
        return self._known[1]

    @torch.no_grad()
    def _computed(self, positions: Positions, vectors: Tensor) -> tuple[Tensor, Tensor]:
        step = torch.arange(0, self.head_width, 2, dtype=torch.float32, device=vectors.device) / self.head_width
        frequencies, gain = 1.0 / self.base**step, 1.0
        if self.scaling is not None:
            frequencies, gain = self.scaling.scale_frequencies(frequencies, self.base), self.scaling.gain
        # float32 until the end: at position 10,000 a half-precision angle is off by whole turns
        angle = _tensor(positions, vectors.device)[..., None].float() * frequencies
        if angle.dim() == 3:  # [batch, length, pair]: the same for all heads
            angle = angle[:, None]
        return (angle.cos() * gain).to(vectors.dtype), (angle.sin() * gain).to(vectors.dtype)
