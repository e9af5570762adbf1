"""Position encodings: sinusoids, a learned table, and rotations. Relative biases are in ``attention.bias``."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from jumok.attention.grid import Positions, convert_positions, find_bounds
from jumok.errors import ArgumentError, ShapeError

from .token_inputs import make_embedding

Frequencies = Float[Tensor, " pair"]


class SinusoidalPositions(nn.Module):
    """Sines and cosines of the position at wavelengths from 2 pi to base * 2 pi (Vaswani et al. 2017).

    Args:
        width: Width of the encoding; may be odd.
        base: Ratio of the longest wavelength to the shortest.
        layout: "interleaved" has sines at even and cosines at odd indices (the paper); "halves" has all sines first
            (Marian).

    >>> SinusoidalPositions(6)(range(3)).shape
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
        """Return the encodings of positions.

        Args:
            positions: A range, or integers ``[length]`` or ``[batch, length]``.
            device: Device of the encodings; by default that of the positions, or the CPU for a range.

        Returns:
            ``[length, width]`` or ``[batch, length, width]``, float32.
        """
        if device is None:
            device = torch.device("cpu") if isinstance(positions, range) else positions.device
        tensor = convert_positions(positions, device)

        # Computed, not stored as a buffer, so it is not in checkpoints; in float64, as far positions lose precision.
        even = torch.arange(0, self.width, 2, dtype=torch.float64, device=device)
        angle = tensor[..., None].double() * self.base ** (-even / self.width)
        waves = [angle.sin(), angle.cos()]
        encoding = torch.stack(waves, -1).flatten(-2) if self.layout == "interleaved" else torch.cat(waves, -1)
        return encoding[..., : self.width].float()  # an odd width has one cosine less


class LearnedPositions(nn.Module):
    """One learned vector for each position (GPT-2, BERT).

    Args:
        length: Number of positions.
        width: Width of the vectors.
    """

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.table = make_embedding(length, width)

    def forward(self, positions: Positions) -> Float[Tensor, "*batch length width"]:
        """Return the vectors of positions, ``[length, width]`` or ``[batch, length, width]``.

        Args:
            positions: A range, or integers ``[length]`` or ``[batch, length]``.

        Raises:
            ShapeError: If a position is outside the table.
        """
        length = self.table.num_embeddings
        lowest, highest = find_bounds(positions)
        if lowest < 0 or highest >= length:
            position = lowest if lowest < 0 else highest
            raise ShapeError(
                f"position {position} is outside the {length} positions this model has learned "
                f"(0 to {length - 1}); shorten the input"
            )
        embedded: Tensor = self.table(convert_positions(positions, self.table.weight.device))
        return embedded


# Scaling of rotary positions lets a model trained on short texts read longer ones. Each pair of numbers rotates by its
# frequency from one position to the next. Pairs that turn often within the training length distinguish neighbours and
# keep their frequency. Pairs that did not complete one turn would reach angles never seen in training; they are slowed
# down. The scalings differ in the pairs between.


@dataclass(frozen=True)
class RotaryScaling:
    """Linear scaling: every pair rotates ``factor`` times slower (Chen et al. 2023).

    Args:
        factor: Divisor of the frequencies, at least 1.
    """

    factor: float

    def __post_init__(self) -> None:
        if not 1 <= self.factor < math.inf:
            raise ArgumentError(f"factor must be a finite number of at least 1, not {self.factor}")

    @property
    def gain(self) -> float:
        """Factor of the rotated queries and keys."""
        return 1.0

    def scale_frequencies(self, frequencies: Frequencies, base: float) -> Frequencies:
        """Return the scaled frequencies.

        Args:
            frequencies: Angle per position of each pair.
            base: Base of the rotary positions.
        """
        return frequencies / self.factor


@dataclass(frozen=True)
class Llama3Scaling(RotaryScaling):
    """Scaling by the number of turns within the training length (Llama 3.1, Grattafiori et al. 2024).

    Args:
        length: Training length in positions.
        slow: Pairs with at most this many turns are divided by ``factor``.
        fast: Pairs with at least this many turns are not scaled; between the two, the scaling is interpolated.
    """

    length: int
    slow: float = 1.0
    fast: float = 4.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length < 1 or not 0 < self.slow < self.fast < math.inf:
            raise ArgumentError(
                f"length must be at least 1 and 0 < slow < fast; not length {self.length}, slow {self.slow}, "
                f"fast {self.fast}"
            )

    def scale_frequencies(self, frequencies: Frequencies, base: float) -> Frequencies:
        unscaled = self._compute_unscaled_share(frequencies, base)
        return frequencies * unscaled + frequencies / self.factor * (1 - unscaled)

    def _compute_unscaled_share(self, frequencies: Frequencies, base: float) -> Frequencies:
        """Return for each pair the share of its unscaled frequency: 1 is not scaled, 0 is divided by ``factor``."""
        turns = self.length * frequencies / (2 * math.pi)
        return ((turns - self.slow) / (self.fast - self.slow)).clamp(0, 1)


@dataclass(frozen=True)
class YarnScaling(Llama3Scaling):
    """Llama3Scaling interpolated over the index of the pair, with sharper scores (YaRN, Peng et al. 2023).

    Args:
        fast: Pairs with at least this many turns are not scaled.
        stretch: Factor of the rotated queries and of the rotated keys.
    """

    fast: float = 32.0
    stretch: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.stretch < math.inf:
            raise ArgumentError(f"stretch must be a finite number above 0, not {self.stretch}")

    @property
    def gain(self) -> float:
        return self.stretch

    def _compute_unscaled_share(self, frequencies: Frequencies, base: float) -> Frequencies:
        width = 2 * len(frequencies)

        def find_pair(turns: float) -> float:
            """Return the fractional index of the pair with this many turns; its frequency is base ** (-2i / width)."""
            return width / 2 * math.log(self.length / (2 * math.pi * turns)) / math.log(base)

        # Rounded outwards, and clamped to width - 1 although there are only width / 2 pairs, as in published models.
        first = max(math.floor(find_pair(self.fast)), 0)
        last = min(math.ceil(find_pair(self.slow)), width - 1)
        distance = last - first or 0.001
        indices = torch.arange(len(frequencies), device=frequencies.device)
        return 1 - ((indices - first) / distance).clamp(0, 1)


class RotaryPositions(nn.Module):
    """Rotates pairs of numbers by an angle proportional to the position (Su et al. 2021).

    Applied to queries and keys, it makes scores depend on distances alone.

    Args:
        head_width: Width of queries and keys; must be even.
        base: Ratio of the slowest rotation's wavelength to the fastest.
        pairing: "halves" pairs number i with i + head_width/2 (Llama, NeoX); "neighbours" pairs 2i with 2i + 1 (the
            paper).
        scaling: How rotations are slowed down for texts longer than those in training; None for no scaling.
    """

    def __init__(
        self, head_width: int, base: float = 10_000.0, pairing: str = "halves", scaling: RotaryScaling | None = None
    ) -> None:
        super().__init__()
        if head_width % 2:
            raise ArgumentError(f"rotary positions rotate pairs of numbers; head_width must be even, not {head_width}")
        if pairing not in ("halves", "neighbours"):
            raise ArgumentError(f'pairing must be "halves" or "neighbours", not {pairing!r}')
        if scaling is not None and base <= 1:
            raise ArgumentError(f"base must be above 1 for scaled rotary positions, not {base}")
        self.head_width, self.base, self.pairing, self.scaling = head_width, base, pairing, scaling
        # What the last cosines and sines were computed for, and these: every layer of a model uses the same ones. One
        # value, because another thread may read it at any time.
        self._last_cos_sin: tuple[object, tuple[Tensor, Tensor]] | None = None

    def forward(
        self, vectors: Float[Tensor, "batch head length head_width"], positions: Positions
    ) -> Float[Tensor, "batch head length head_width"]:
        """Rotate queries or keys.

        Args:
            vectors: Queries or keys, ``[batch, head, length, head_width]``.
            positions: Their positions, a range or integers ``[length]`` or ``[batch, length]``.
        """
        if vectors.shape[-1] != self.head_width:
            raise ShapeError(f"these rotary positions need heads of width {self.head_width}, not {list(vectors.shape)}")

        cosine, sine = self._get_cos_sin(positions, vectors)
        if self.pairing == "halves":
            first, second = vectors.chunk(2, -1)
            return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1)
        first, second = vectors[..., 0::2], vectors[..., 1::2]
        rotated = [first * cosine - second * sine, second * cosine + first * sine]
        return torch.stack(rotated, -1).flatten(-2)

    def _get_cos_sin(self, positions: Positions, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosines and sines, [length, pair] or [batch, 1, length, pair]."""
        # A tensor of another mode must not be reused: autograd refuses one of inference mode, and no mode takes a fake
        # one, which stands for a tensor while a program is traced.
        if not isinstance(positions, range) or torch.compiler.is_compiling() or type(vectors) is not Tensor:
            return self._compute_cos_sin(positions, vectors)
        requested = (positions, vectors.device, vectors.dtype, torch.is_inference_mode_enabled())
        last = self._last_cos_sin
        if last is None or last[0] != requested:
            last = self._last_cos_sin = requested, self._compute_cos_sin(positions, vectors)
        return last[1]

    @torch.no_grad()
    def _compute_cos_sin(self, positions: Positions, vectors: Tensor) -> tuple[Tensor, Tensor]:
        step = torch.arange(0, self.head_width, 2, dtype=torch.float32, device=vectors.device) / self.head_width
        frequencies, gain = 1.0 / self.base**step, 1.0
        if self.scaling is not None:
            frequencies, gain = self.scaling.scale_frequencies(frequencies, self.base), self.scaling.gain

        # float32 until the end: at position 10,000 a half-precision angle is off by full turns
        angle = convert_positions(positions, vectors.device)[..., None].float() * frequencies
        if angle.dim() == 3:  # [batch, length, pair]: the same for all heads
            angle = angle[:, None]
        return (angle.cos() * gain).to(vectors.dtype), (angle.sin() * gain).to(vectors.dtype)
