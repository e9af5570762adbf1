"""Which tokens may come next in a transcript: nothing that is not spoken, and times in pairs that never go back."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.data.tokenizers.speech_tokens import SpeechTokens

Scores = Float[Tensor, "batch vocab"]


class TokenRules:
    """The rules of Whisper (Radford et al. 2022): a text with times is segments, <|start|> text <|end|>."""

    def __init__(self, speech_tokens: SpeechTokens, timestamps: bool, vocabulary: int, device: torch.device) -> None:
        self.tokens = speech_tokens
        self.first_time = speech_tokens.first_time if timestamps else None
        never = [*speech_tokens.suppressed]
        if self.first_time is not None and speech_tokens.no_timestamps is not None:
            never.append(speech_tokens.no_timestamps)
        self.never = _build_flags(never, vocabulary, device)
        self.never_first = _build_flags(speech_tokens.suppressed_first, vocabulary, device)

    def restrict(self, scores: Scores, texts: list[list[int]]) -> Scores:
        """Return the scores with forbidden tokens at minus infinity.

        Args:
            scores: Logits or log-probabilities of the next token of each text.
            texts: The new tokens of each text so far.
        """
        forbidden = self.never.repeat(len(texts), 1)
        for row, text in enumerate(texts):
            if not text:
                forbidden[row] |= self.never_first
            if self.first_time is not None:
                self._forbid_times(forbidden[row], text)
        restricted = scores.masked_fill(forbidden, -torch.inf)  # a copy
        return restricted if self.first_time is None else self._prefer_times(restricted)

    def _forbid_times(self, forbidden: Tensor, text: list[int]) -> None:
        """Mark the tokens that would make the times invalid."""
        first = self.first_time
        assert first is not None
        if not text:  # a text begins with a time
            forbidden[:first] = True
            if self.tokens.last_first_time is not None:
                forbidden[first + self.tokens.last_first_time + 1 :] = True
            return

        ends_with_time = text[-1] >= first
        has_start = len(text) < 2 or text[-2] >= first  # the time at the end begins a segment
        if ends_with_time and has_start:
            forbidden[first:] = True  # a segment is not empty
        elif ends_with_time:
            forbidden[: self.tokens.end] = True  # after a segment comes another one, or the end

        times = [token for token in text if token >= first]
        if times:
            # The end of a segment may be the start of the next, but its start is not its end.
            earliest = times[-1] if ends_with_time and not has_start else times[-1] + 1
            forbidden[first:earliest] = True

    def _prefer_times(self, scores: Scores) -> Scores:
        """Forbid text, in place, where the times together are more probable than the most probable token of text."""
        first = self.first_time
        assert first is not None
        time = scores[:, first:].float().logsumexp(-1)  # softmax would subtract the same number from both sides
        text = scores[:, :first].amax(-1)
        scores[:, :first].masked_fill_((time > text)[:, None], -torch.inf)
        return scores


def _build_flags(token_ids: list[int] | tuple[int, ...], vocabulary: int, device: torch.device) -> Tensor:
    flags = torch.zeros(vocabulary, dtype=torch.bool, device=device)
    flags[[token_id for token_id in token_ids if token_id < vocabulary]] = True
    return flags
