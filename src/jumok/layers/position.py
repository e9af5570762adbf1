"""Where a token stands, told to the model: sinusoids, a learned table, or a rotation. (Relative biases are biases.)"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from jumok.errors import ArgumentError, ShapeError

Positions = range | Tensor  # as at the door: a range, or integers [length] or [batch, length]


def _tensor(positions: Positions, device: torch.device) -> Tensor:
    if isinstance(positions, range):
        return torch.arange(positions.start, positions.stop, positions.step, device=device)
    return positions.to(device)


class Sinusoidal(nn.Module):
    """sin and cos of the position at wavelengths from 2 pi to base * 2 pi (Vaswani et al. 2017). Any width, odd too.

    >>> Sinusoidal(6)(range(3)).shape
    torch.Size([3, 6])
    """

    def __init__(self, width: int, base: float = 10_000.0) -> None:
        super().__init__()
        if width < 1:
            raise ArgumentError(f"width must be at least 1, not {width}")
        # float32 and outside the state dict: they are no parameters, and half precision loses far positions
        even = torch.arange(0, width, 2, dtype=torch.float64)
        self.width = width
        self.register_buffer("frequency", (base ** (-even / width)).float(), persistent=False)

    def forward(self, positions: Positions) -> Float[Tensor, "*batch length width"]:
        frequency = self.frequency
        assert isinstance(frequency, Tensor)
        angle = _tensor(positions, frequency.device)[..., None].double() * frequency.double()
        pairs = torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)  # sin at even places, cos at odd ones
        return pairs[..., : self.width].float()


class Learned(nn.Module):
    """A vector of its own for each of ``length`` positions (GPT-2, BERT)."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(length, width)

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


class Rotary(nn.Module):
    """Turns pairs of numbers by an angle that grows with the position (Su et al. 2021): scores then depend on
    distances alone. Made from the head's width; works on queries and keys at the door's layout.

    pairing: "halves" pairs number i with i + head_width/2 (Llama, NeoX); "neighbours" pairs 2i with 2i+1 (the paper).
    """

    def __init__(self, head_width: int, base: float = 10_000.0, pairing: str = "halves") -> None:
        super().__init__()
        if head_width % 2:
            raise ArgumentError(f"a rotation turns pairs of numbers; head_width must be even, not {head_width}")
        if pairing not in ("halves", "neighbours"):
            raise ArgumentError(f'pairing must be "halves" or "neighbours", not {pairing!r}')
        self.head_width, self.pairing = head_width, pairing
        step = torch.arange(0, head_width, 2, dtype=torch.float32) / head_width
        self.register_buffer("frequency", 1.0 / base**step, persistent=False)

    def forward(
        self, vectors: Float[Tensor, "batch head length head_width"], positions: Positions
    ) -> Float[Tensor, "batch head length head_width"]:
        if vectors.shape[-1] != self.head_width:
            raise ShapeError(f"this rotation was made for heads {self.head_width} wide, not {list(vectors.shape)}")
        cosine, sine = self._angles(positions, vectors.dtype)
        if self.pairing == "halves":
            first, second = vectors.chunk(2, -1)
            return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1)
        first, second = vectors[..., 0::2], vectors[..., 1::2]
        turned = [first * cosine - second * sine, second * cosine + first * sine]
        return torch.stack(turned, -1).flatten(-2)

    def _angles(self, positions: Positions, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        frequency = self.frequency
        assert isinstance(frequency, Tensor)
        # float32 until the end: at position 10,000 a half-precision angle is off by whole turns
        angle = _tensor(positions, frequency.device)[..., None].float() * frequency.float()
        if angle.dim() == 3:  # [batch, length, pair]: the same for all heads
            angle = angle[:, None]
        return angle.cos().to(dtype), angle.sin().to(dtype)
