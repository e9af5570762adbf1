"""What a model predicts at each position, with probabilities."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.data.tokenizers.text_tokenizer import TextTokenizer
from jumok.data.tokenizers.token_labels import label_tokens
from jumok.lens.effects.metrics import Answer
from jumok.web.messages import Candidate, Prediction, Predicts

MAX_POSITIONS = 256  # of a longer input, the last ones
MAX_LOGITS = 2**26  # numbers of all logits in memory
ROWS_AT_ONCE = 32  # whose exponentials are in memory
CANDIDATES = 5

NameClass = Callable[[int], str]


class Predictions(NamedTuple):
    """The predictions of one forward pass."""

    rows: list[Prediction]  # by position
    last: Float[Tensor, " class"] | None  # log-probabilities of the last one; None if it is not a distribution
    measured_position: int = -1  # where ``last`` was predicted, counted from the end


def count_predicted_positions(length: int, vocabulary: int | None) -> int:
    """Return of how many last positions the logits are computed."""
    return min(length, MAX_POSITIONS, max(1, MAX_LOGITS // (vocabulary or 1)))


def describe_token_predictions(
    logits: Float[Tensor, "position token"],
    tokens: Sequence[int],
    tokenizer: TextTokenizer | None,
    *,
    is_masked: bool = False,
) -> Predictions:
    """Describe the predictions of tokens at the last positions; a masked model predicts the token that stands there,
    instead of the next one. Without a tokenizer, tokens have numbers."""
    logits = logits.detach()[-MAX_POSITIONS:].float().cpu()
    first = len(tokens) - len(logits)
    actual = [*tokens[first:]] if is_masked else [*tokens[first + 1 :]]

    @functools.cache
    def name(token: int) -> str:
        return str(token) if tokenizer is None else label_tokens(tokenizer, [token])[0]

    # a few rows at a time: the exponentials take as much memory as the logits
    normalizers = torch.cat([rows.logsumexp(-1) for rows in logits.split(ROWS_AT_ONCE)])
    parts = [rows.topk(min(CANDIDATES, logits.shape[-1])) for rows in logits.split(ROWS_AT_ONCE)]
    largest, ids = torch.cat([part.values for part in parts]), torch.cat([part.indices for part in parts])
    probabilities = (largest - normalizers[:, None]).exp().tolist()
    chosen = logits[range(len(actual)), actual] - normalizers[: len(actual)] if actual else normalizers[:0]
    actual_probabilities = chosen.exp().tolist()

    rows: list[Prediction] = []
    for index, (shares, row_ids) in enumerate(zip(probabilities, ids.tolist(), strict=True)):
        candidates = [Candidate(name(token), token, share) for token, share in zip(row_ids, shares, strict=True)]
        follower = None
        if index < len(actual):
            token = actual[index]
            follower = Candidate(name(token), token, actual_probabilities[index])
        rows.append(Prediction(first + index, candidates, follower))
    last = _choose_last_position(tokens, tokenizer, first) if is_masked else -1
    return Predictions(rows, logits[last] - normalizers[last], last)


def describe_class_predictions(
    logits: Float[Tensor, "position class"], name_class: NameClass, *, is_independent: bool, has_positions: bool
) -> Predictions:
    """Describe the predictions of classes, of the whole input or of each position. Independent classes have
    probabilities of their own (sigmoid)."""
    logits = logits.detach()[-MAX_POSITIONS:].float().cpu()
    shares = logits.sigmoid() if is_independent else logits.softmax(-1)
    largest, ids = shares.topk(min(CANDIDATES, logits.shape[-1]))
    rows = [
        Prediction(
            index if has_positions else -1,
            [Candidate(name_class(number), number, share) for number, share in zip(row_ids, row_shares, strict=True)],
        )
        for index, (row_shares, row_ids) in enumerate(zip(largest.tolist(), ids.tolist(), strict=True))
    ]
    return Predictions(rows, None if is_independent else logits[-1].log_softmax(-1))


def describe_number_predictions(numbers: Tensor) -> Predictions:
    """Describe predicted numbers: each is its only candidate."""
    flat = numbers.detach().flatten()[:MAX_POSITIONS].float().cpu().tolist()
    rows = [Prediction(index, [Candidate(f"{number:g}", 0, 1.0)]) for index, number in enumerate(flat)]
    return Predictions(rows, None)


def choose_kind(answer: Answer, task: str, class_name: str) -> Predicts:
    """Return what a model predicts. The task of a model of transformers is ""."""
    if answer.kind == "numbers" or task in ("predict", "score"):
        return "number"
    if answer.kind == "hidden" or task == "embed":
        return "vector"
    if task == "fill" or "MaskedLM" in class_name or class_name.endswith("ForPreTraining"):
        return "masked token"
    if answer.tensor.dim() == 2 or task == "classify" or "TokenClassification" in class_name:
        return "number" if answer.tensor.shape[-1] == 1 else "class"
    return "next token" if answer.tensor.dim() == 3 else "vector"


def measure_change(clean: Tensor | None, edited: Tensor | None) -> float | None:
    """Return the Kullback-Leibler divergence KL(clean || edited) of log-probabilities in nats, if there are any."""
    if clean is None or edited is None:
        return None
    clean, edited = clean.double(), edited.double()
    shares = clean.exp()
    terms = torch.where(shares == 0, 0.0, shares * (clean - edited))
    divergence = float(terms.sum())
    return max(divergence, 0.0) if math.isfinite(divergence) else None


def _choose_last_position(tokens: Sequence[int], tokenizer: TextTokenizer | None, first: int) -> int:
    """Return the row of the last masked token, counted from the end; -1, the last position, if none is masked."""
    mask = None if tokenizer is None else tokenizer.mask
    masked = [position for position, token in enumerate(tokens) if token == mask and position >= first]
    return masked[-1] - len(tokens) if masked else -1


def share_candidates(clean: Predictions, edited: Predictions) -> tuple[list[Prediction], list[Prediction]]:
    """Return the rows of both passes; in the last prediction, each lists the candidates of the other one too."""
    if clean.last is None or edited.last is None or not clean.rows or not edited.rows:
        return clean.rows, edited.rows
    return _add_candidates(clean, edited), _add_candidates(edited, clean)


def _add_candidates(predictions: Predictions, other: Predictions) -> list[Prediction]:
    """Return the rows with the candidates of the other pass and their probabilities in this one."""
    assert predictions.last is not None
    position = predictions.measured_position
    row, other_row = predictions.rows[position], other.rows[position]
    listed = {candidate.id for candidate in row.candidates}
    added = [
        Candidate(candidate.label, candidate.id, float(predictions.last[candidate.id].exp()))
        for candidate in other_row.candidates
        if candidate.id not in listed
    ]
    rows = list(predictions.rows)
    rows[position] = Prediction(row.position, [*row.candidates, *added], row.actual)
    return rows
