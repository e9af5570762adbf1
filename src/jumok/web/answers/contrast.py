"""Two inputs side by side, or one in two models: aligned positions, maps of both, and patches of one into the other."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from jumok.data.tokenizers.token_labels import label_tokens
from jumok.errors import ArgumentError
from jumok.lens import Capture
from jumok.lens.effects.alignment import align_tokens
from jumok.lens.effects.metrics import (
    LogitDifference,
    Metric,
    Value,
    encode_single_token,
    extract_answer,
    select_position,
)
from jumok.lens.huggingface.router import MAPS_ONLY
from jumok.lens.lens_inputs import explain_failures
from jumok.lens.restart import read_versions
from jumok.lens.sites import SOURCE, TARGET
from jumok.tasks.labelled_input import LabelledInput
from jumok.web import messages
from jumok.web.asks import TwoInputsAsk, check_index
from jumok.web.inspection import Inspection
from jumok.web.maps.aligned_map import AlignedMap, pair_positions
from jumok.web.maps.predictions import CANDIDATES, measure_change
from jumok.web.maps.site_maps import SiteMap
from jumok.web.messages import Candidate, Reply
from jumok.web.opened_model import OpenedModel, Pass, name_label_class, run_pass
from jumok.web.work_queue import Job

MAX_COMPARED_POSITIONS = 512  # whose maps are compared completely
NO_SPACE, SPACE = "␣", " "  # of labels, and of texts

Pairs = list[tuple[int | None, int | None]]


@dataclass
class Contrast:
    """A second input beside the one of a run: its pass, and what was computed from both."""

    key: tuple[Any, ...]
    opened: OpenedModel  # the model that reads the second input
    labelled: LabelledInput
    second: Pass
    partners: dict[str, list[int | None]]  # by sequence and position of the second input: that of the first one
    pairs: dict[str, Pairs]
    maps: dict[str, list[tuple[SiteMap, ...]]]  # by what is shown, for each site
    position: int | None  # where the predictions are measured, counted from the end; None: of the whole input
    scores: tuple[Tensor, Tensor] | None  # of each token or class for both inputs; None: the model predicts neither
    note: str | None
    changes: bytes = b""
    sources: dict[str, Capture] = field(default_factory=dict)  # of the first input, with what a part of it needs

    @property
    def number(self) -> int:
        """The number by which tiles name the contrast."""
        return self.second.serial

    def list_maps(self, show: str, site: int) -> list[SiteMap]:
        """Return the aligned maps that are shown: two for a difference."""
        return list(self.maps[show][site])


def answer_contrast(inspection: Inspection, ask: TwoInputsAsk, job: Job, other: OpenedModel) -> Reply:
    """Compare two inputs; the second one is read once."""
    started_at = time.perf_counter()
    contrast = open_contrast(inspection, ask, job, other)
    if not contrast.changes:
        contrast.changes = _compare_heads(inspection, contrast, job)
    candidates = list_candidates(inspection, contrast)
    metric = None
    if contrast.note is None:
        metric = _describe_metric(inspection, contrast, ask, job)
    scores = contrast.scores
    supports = [opened.lens.support for opened in (inspection.opened, other)]
    length = len(contrast.labelled.target or contrast.labelled.source)
    body = messages.Contrast(
        contrast=contrast.number,
        model=other.name,
        source=contrast.labelled.source,
        target=contrast.labelled.target,
        pairs={SOURCE: contrast.pairs[SOURCE], TARGET: contrast.pairs[TARGET]},  # type: ignore[dict-item]
        position=None if contrast.position is None else contrast.position % length,
        candidates=candidates,
        metric=metric,
        change=None if scores is None else measure_change(*(score.log_softmax(-1) for score in scores)),
        can_patch=metric is not None and not any(support and support.level == MAPS_ONLY for support in supports),
        note=contrast.note,
        seconds=time.perf_counter() - started_at,
    )
    return body, (contrast.changes,)


def open_contrast(inspection: Inspection, ask: TwoInputsAsk, job: Job, other: OpenedModel) -> Contrast:
    """Return the contrast of an ask; the last one of the same pass is kept."""
    if inspection.answered is not None:
        raise ArgumentError("the input is a prompt with passages; a second text cannot be compared with it")
    if ask.text is None and other is inspection.opened:
        raise ArgumentError("there is nothing to compare; give a second text or a second model")
    key = ask.text, other.name, read_versions(other.model)
    last = inspection.clean.contrast
    if isinstance(last, Contrast) and last.key == key:
        return last
    job.report(0, 0, "reading")
    with explain_failures(other.model), other.lens:
        labelled = _prepare_second(inspection, ask.text, other)
        second = run_pass(other, labelled, (), job.report, None)
    contrast = _align(inspection, key, other, labelled, second)
    contrast.position, contrast.note = _choose_position(inspection, contrast)
    if contrast.note is None and second.kind != "number":
        contrast.scores = (
            _read_scores(inspection.opened, inspection.labelled, inspection.clean, contrast.position, job),
            _read_scores(other, labelled, second, contrast.position, job),
        )
        if len({len(score) for score in contrast.scores}) > 1:
            contrast.scores, contrast.note = None, "the two models predict from different vocabularies"
    inspection.clean.contrast = contrast
    return contrast


def _prepare_second(inspection: Inspection, text: str | None, other: OpenedModel) -> LabelledInput:
    """Return the second input; one that another model reads is the same as the first one where it can be."""
    if text is not None:
        return other.prepare(text, None)
    begin = 0.0 if inspection.sound is None else inspection.sound.begin
    prepared = other.prepare(inspection.text, inspection.start_text, begin)
    first = inspection.labelled
    # generated tokens are behind those of the text, and the answer of the first model is read by both
    length = prepared.inputs[0].shape[1]
    is_same = prepared.names == first.names and torch.equal(prepared.inputs[0], first.inputs[0][:, :length])
    return first if is_same else prepared


def _align(
    inspection: Inspection, key: tuple[Any, ...], other: OpenedModel, labelled: LabelledInput, second: Pass
) -> Contrast:
    first = inspection.labelled
    captures = inspection.clean.capture, second.capture
    shapes = [[(site, capture.heads(site)) for site in capture.sites.names] for capture in captures]
    if shapes[0] != shapes[1]:
        counts = [(len(shape), sum(heads for _, heads in shape)) for shape in shapes]
        raise ArgumentError(
            f"{inspection.opened.name} has {counts[0][0]} attentions with {counts[0][1]} heads in all and {other.name} "
            f"{counts[1][0]} with {counts[1][1]}, or they have other names; compare two models of the same shape"
        )
    partners = {
        side: align_tokens(*(_list_tokens(part, side, other is inspection.opened) for part in (first, labelled)))
        for side in (SOURCE, TARGET)
    }
    pairs = {side: pair_positions(len(first.get_labels(side)), partners[side]) for side in (SOURCE, TARGET)}
    lengths = {side: (len(first.get_labels(side)), len(labelled.get_labels(side))) for side in (SOURCE, TARGET)}
    maps: dict[str, list[tuple[SiteMap, ...]]] = {"clean": [], "edited": [], "difference": []}
    for site, first_map, second_map in zip(inspection.sites, inspection.clean.maps, second.maps, strict=True):
        sides = captures[0].sites.get_sides(site)
        rows = _choose_axis(site, pairs[sides.queries], lengths[sides.queries], (first_map.queries, second_map.queries))
        columns = _choose_axis(site, pairs[sides.keys], lengths[sides.keys], (first_map.keys, second_map.keys))
        maps["clean"].append((_align_map(first_map, rows, columns, 0),))
        maps["edited"].append((_align_map(second_map, rows, columns, 1),))
        rows, columns = _keep_shared(rows), _keep_shared(columns)
        maps["difference"].append((_align_map(first_map, rows, columns, 0), _align_map(second_map, rows, columns, 1)))
    return Contrast(key, other, labelled, second, partners, pairs, maps, None, None, None)


def _list_tokens(labelled: LabelledInput, side: str, has_ids: bool) -> Sequence[object]:
    """Return what is aligned: token ids of one tokenizer, else labels."""
    labels = labelled.get_labels(side)
    ids: Sequence[object] = labelled.tokens
    if side == TARGET and labels and not labelled.inputs[1].is_floating_point():
        ids = labelled.inputs[1][0].tolist()
    return ids if has_ids and len(ids) == len(labels) else labels


def _choose_axis(site: str, pairs: Pairs, lengths: tuple[int, int], counts: tuple[int, int]) -> Pairs:
    """Return the aligned positions of one axis of a map."""
    if counts == lengths:
        return pairs
    if counts[0] == counts[1]:  # such as the patches of an image
        return [(position, position) for position in range(counts[0])]
    raise ArgumentError(f"{site} has {counts[0]} positions for one input and {counts[1]} for the other")


def _keep_shared(pairs: Pairs) -> Pairs:
    """Empty the pairs in which one input has no token: there is nothing to compare."""
    return [(None, None) if None in pair else pair for pair in pairs]


def _align_map(site_map: SiteMap, rows: Pairs, columns: Pairs, side: int) -> SiteMap:
    positions = [[pair[side] for pair in axis] for axis in (rows, columns)]
    if positions == [list(range(site_map.queries)), list(range(site_map.keys))]:
        return site_map
    return AlignedMap(site_map, *positions)


def _choose_position(inspection: Inspection, contrast: Contrast) -> tuple[int | None, str | None]:
    """Return where the predictions of both inputs are compared, counted from the end, and why they cannot be."""
    passes = inspection.clean, contrast.second
    kind = passes[1].kind
    if kind == "vector":
        return None, "this model predicts vectors, so there is no logit difference; the maps are compared"
    if kind in ("class", "number"):
        return None, None
    if not contrast.labelled.target:
        positions = [shown.predictions.measured_position for shown in passes]
        if positions[0] != positions[1]:
            return None, "the masked tokens stand at different places, so there is no logit difference"
        return positions[1], None
    # of two answers, the first token that differs, after decoders that read the same tokens before it
    first, second = (part.inputs[1][0].tolist() for part in (inspection.labelled, contrast.labelled))
    shortest = min(len(first), len(second))
    common = next((index for index in range(shortest) if first[index] != second[index]), shortest)
    likeliest = [{row.position: row.candidates[0].id for row in shown.predictions.rows} for shown in passes]
    prompt = contrast.labelled.prompt
    differing = (row for row in range(prompt - 1, common) if likeliest[0].get(row) != likeliest[1].get(row))
    position = next(differing, prompt - 1) - len(second)
    if len(first) != len(second):
        return position + len(second), None  # counted from the begin, as the ends differ
    return position, None


def _read_scores(opened: OpenedModel, labelled: LabelledInput, shown: Pass, position: int | None, job: Job) -> Tensor:
    """Return the logits of a position, or log-probabilities, which have the same differences."""
    if shown.predictions.last is not None and position in (None, shown.predictions.measured_position):
        return shown.predictions.last
    output = run_input(opened, labelled, job, logits=True).output
    return select_scores(extract_answer(output).tensor, position)


def select_scores(tensor: Tensor, position: int | None) -> Tensor:
    """Return the scores of one position on the CPU; None: of the whole input, or its last position."""
    return select_position(tensor, -1 if position is None else position)[0].float().cpu()


def run_input(opened: OpenedModel, labelled: LabelledInput, job: Job, **arguments: Any) -> Capture:
    """Run a model on an input; the arguments are those of ``Lens.run``."""
    settings = {**opened.lens.facts.build_no_cache_arguments(), **labelled.named}
    with explain_failures(opened.model), opened.lens:
        return opened.lens.run(
            *labelled.positional,
            progress=lambda done, total: job.report(done, total, "running"),
            **arguments,
            **settings,
        )


def compute_shares(opened: OpenedModel, scores: Tensor) -> Tensor:
    """Return the probabilities of scores; independent classes have one each."""
    is_independent = getattr(opened.model, "independent_classes", False)
    return scores.sigmoid() if is_independent else scores.softmax(-1)


def list_candidates(inspection: Inspection, contrast: Contrast) -> list[messages.SharedCandidate]:
    """Return the most probable tokens or classes of each input, with their probabilities for both."""
    if contrast.scores is None:
        return []
    shares = [
        compute_shares(opened, scores)
        for opened, scores in zip((inspection.opened, contrast.opened), contrast.scores, strict=True)
    ]
    count = min(CANDIDATES, len(shares[0]))
    ids = dict.fromkeys(number for share in shares for number in share.topk(count).indices.tolist())
    candidates = [
        messages.SharedCandidate(_name(contrast, number), number, float(shares[0][number]), float(shares[1][number]))
        for number in ids
    ]
    return sorted(candidates, key=lambda candidate: -max(candidate.clean, candidate.corrupted))


def _name(contrast: Contrast, number: int) -> str:
    """Return the label of a token or class."""
    if contrast.second.kind == "class":
        return name_label_class(contrast.opened, number)
    tokenizer = contrast.opened.loaded.tokenizer
    return str(number) if tokenizer is None else label_tokens(tokenizer, [number])[0]


def _describe_metric(
    inspection: Inspection, contrast: Contrast, ask: TwoInputsAsk, job: Job
) -> messages.ContrastMetric:
    """Return what an ask compares the inputs by, with its value for both."""
    if contrast.scores is None:
        values = []
        for opened, labelled in (
            (inspection.opened, inspection.labelled),
            (contrast.opened, contrast.labelled),
        ):
            numbers = extract_answer(run_input(opened, labelled, job, logits=True).output).tensor
            values.append(float(Value()(numbers, numbers)[0]))
        return messages.ContrastMetric(None, None, *values)
    candidates = list_candidates(inspection, contrast)
    right, wrong = (_find_token(contrast, typed, candidates) for typed in (ask.right, ask.wrong))
    if right is None:
        right = int(contrast.scores[0].argmax())
    if wrong is None:
        # the token that the second input makes most probable, against the first one
        gains = {
            candidate.id: candidate.corrupted - candidate.clean for candidate in candidates if candidate.id != right
        }
        wrong = max(gains, key=lambda number: gains[number])
    if right == wrong:
        raise ArgumentError("the two tokens of the logit difference are the same; choose two")
    shares = compute_shares(inspection.opened, contrast.scores[0])
    named = [Candidate(_name(contrast, number), number, float(shares[number])) for number in (right, wrong)]
    clean, corrupted = (float(scores[right] - scores[wrong]) for scores in contrast.scores)
    return messages.ContrastMetric(named[0], named[1], clean, corrupted)


def _find_token(contrast: Contrast, typed: int | str | None, candidates: list[messages.SharedCandidate]) -> int | None:
    """Return the token or class that the page names by its number, its label or its text."""
    assert contrast.scores is not None
    if isinstance(typed, int):
        return check_index("token", typed, len(contrast.scores[1]))
    if typed is None:
        return None
    listed = next((candidate.id for candidate in candidates if candidate.label == typed), None)
    if listed is not None:
        return listed
    if contrast.second.kind == "class":
        raise ArgumentError(f"there is no class {typed!r} among the candidates")
    return encode_single_token(typed.replace(NO_SPACE, SPACE), contrast.opened.loaded.tokenizer)


def require_metric(
    inspection: Inspection, contrast: Contrast, ask: TwoInputsAsk, job: Job
) -> tuple[messages.ContrastMetric, Metric]:
    """Return the metric of an ask, described and for the lens; raise the sentence that says why there is none."""
    if contrast.note is not None:
        raise ArgumentError(contrast.note)
    described = _describe_metric(inspection, contrast, ask, job)
    if described.right is None or described.wrong is None:
        return described, Value()
    position = -1 if contrast.position is None else contrast.position
    return described, LogitDifference(described.right.id, described.wrong.id, position)


def _compare_heads(inspection: Inspection, contrast: Contrast, job: Job) -> bytes:
    """Return how far the rows of each head of the two inputs are apart; nothing for long inputs."""
    longest = max(max(maps[0].queries, maps[0].keys) for maps in contrast.maps["difference"])
    if longest > MAX_COMPARED_POSITIONS:
        return b""
    distances = []
    for first, second in contrast.maps["difference"]:
        job.check()
        rows, columns = slice(0, first.queries), slice(0, first.keys)
        for head in range(first.heads):
            difference = second.read_tile(head, rows, columns) - first.read_tile(head, rows, columns)
            distances.append(difference.abs().sum(-1).mean() / 2)
    return torch.stack(distances).numpy().astype("<f4").tobytes()
