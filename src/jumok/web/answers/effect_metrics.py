"""Choose what effects are measured in: the metric that the page asked for, or the usual one of ``jumok effect``."""

from __future__ import annotations

from jumok.errors import ArgumentError
from jumok.lens.effects import metrics
from jumok.lens.effects.metrics import Metric
from jumok.lens.sites import SOURCE, TARGET
from jumok.tasks.labelled_input import LabelledInput
from jumok.web.asks import check_index
from jumok.web.inspection import Inspection
from jumok.web.messages import MetricChoice, TokenName


def choose_metric(inspection: Inspection, choice: MetricChoice | None) -> Metric | None:
    """Return a metric; None is the default of ``effect``, the log-probability of the model's own answer."""
    labelled = inspection.labelled
    if choice is None:
        return _choose_usual_metric(labelled)
    if choice.name == "loss":
        tokens = labelled.inputs[1][0].tolist() if labelled.target else labelled.tokens
        return metrics.Loss(tuple(tokens))
    if choice.name == "class":
        token = _find_token(inspection, choice.token, None, 0)
        return metrics.ClassScore(token if isinstance(token, int) else _find_class(inspection, token))
    position = choice.position
    if position is None:
        position = labelled.prompt - 1 if labelled.answer_length else -1
    else:
        check_index("position", position, inspection.count_positions(TARGET if labelled.target else SOURCE))
    if choice.name == "kl":
        return metrics.Divergence(position)
    token = _find_token(inspection, choice.token, position, 0)
    if choice.name == "log-probability":
        return metrics.LogProbability(token, position)
    return metrics.LogitDifference(token, _find_token(inspection, choice.other, position, 1), position)


def _choose_usual_metric(labelled: LabelledInput) -> Metric | None:
    if labelled.target and labelled.inputs[1].is_floating_point():
        return metrics.Value(-1)
    if labelled.answer_length:
        return metrics.LogProbability(int(labelled.inputs[1][0, labelled.prompt]), labelled.prompt - 1)
    return None


def _find_token(inspection: Inspection, token: TokenName | None, position: int | None, rank: int) -> TokenName:
    """Return a token that was chosen, or else the one that the model finds most (or second most) probable."""
    if token is not None:
        # as the page writes spaces
        return token.replace("␣", " ") if isinstance(token, str) else token
    rows = inspection.clean.predictions.rows
    row = rows[-1] if position in (None, -1) and rows else next((row for row in rows if row.position == position), None)
    if row is None or len(row.candidates) <= rank:
        raise ArgumentError(f"the predictions at position {position} are not known; name the token")
    return row.candidates[rank].id


def _find_class(inspection: Inspection, name: str) -> int:
    """Return the number of a class that the page lists."""
    for candidate in inspection.clean.predictions.rows[-1].candidates:
        if candidate.label == name:
            return candidate.id
    raise ArgumentError(f"there is no class {name!r} among the most probable ones; give its number")
