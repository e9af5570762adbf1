"""An inspection: a model, an input, and the captures of the clean and of the edited forward pass."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from jumok import defaults
from jumok.checkpoint import Loaded
from jumok.data.tokenizers.token_labels import label_tokens
from jumok.errors import ArgumentError
from jumok.lens import Edit
from jumok.lens.huggingface.router import EDITABLE
from jumok.lens.lens_inputs import explain_failures
from jumok.lens.sites import SOURCE, TARGET, AxisSides
from jumok.reporting import StageProgress
from jumok.tasks.labelled_input import LabelledInput
from jumok.tasks.speech.listening import transcribe_with_edits

from . import messages
from .input_media import Picture, Sound, draw_picture, get_sound
from .maps import predictions
from .maps.site_maps import SiteMap, describe_sites, locate_edits_in_windows
from .model_pack import explain_missing_engine
from .opened_model import OpenedModel, Pass, ShowLayer, get_clean_pass, run_pass, watch_taps

if TYPE_CHECKING:
    from .folder_questions import AnsweredPrompt

MAX_EDIT_TEXT = 1_000  # characters of a mask expression, or of the name of a layer
MAX_SELECTED_KEYS = 4096  # the rows of longer inputs would delay the first picture


@dataclass
class Inspection:
    """What the page shows: a model, an input, edits, and the passes with and without them."""

    number: int
    opened: OpenedModel
    text: str | None  # or the question that a prompt contains; None if the input is not text
    start_text: str | None  # the input of the start: a text, or the path of an image or a recording
    labelled: LabelledInput
    generated: int  # the first generated position; equal to the number of positions if none is generated
    edits: tuple[Edit, ...]
    applied_edits: tuple[Edit, ...]  # as the lens applies them: inside windows, where a model has some
    clean: Pass
    edited: Pass | None
    picture: Picture | None
    sound: Sound | None = None
    edited_answer: str | None = None  # the transcript or translation that the model writes under the edits
    answered: AnsweredPrompt | None = None  # the prompt and answer that is the input
    notes: list[str] = field(default_factory=list)  # sentences that the user must read
    seconds: float = 0.0

    @property
    def sites(self) -> list[str]:
        """The names of the attentions, in execution order."""
        return self.clean.capture.sites.names

    def get_pass(self, show: str) -> Pass:
        """Return the clean or the edited pass."""
        if show == "clean":
            return self.clean
        if self.edited is None:
            raise ArgumentError("this run has no edits; there is only the clean pass")
        return self.edited

    def list_passes(self, show: str) -> list[Pass]:
        """Return the pass that a map shows, or for a difference both."""
        return [self.get_pass(name) for name in (("clean", "edited") if show == "difference" else (show,))]

    def count_positions(self, sequence: str) -> int:
        """Return the number of positions of the source or the target, by the attentions that read it."""
        capture = self.clean.capture
        counts = [0]
        for site, site_map in zip(self.sites, self.clean.maps, strict=True):
            sides = capture.sites.get_sides(site)
            counts += [site_map.queries] if sides.queries == sequence else []
            counts += [site_map.keys] if sides.keys == sequence else []
        return max(counts)

    def convert_position(self, site: str, position: int) -> int:
        """Return a position of an attention that contains a position of the input: later stages of Swin have larger
        patches.
        """
        if self.picture is None or site not in self.picture.layouts:
            return position
        first, layout = self.picture.layout, self.picture.layouts[site]
        patch = position - len(first.prefix)
        if patch < 0:
            return position
        row, column = divmod(patch, first.grid[1])
        row, column = row * first.patch[0] // layout.patch[0], column * first.patch[1] // layout.patch[1]
        return len(layout.prefix) + row * layout.grid[1] + column

    def describe(self) -> messages.Run:
        """Return the inspection as the page receives it."""
        clean, edited = self.clean.predictions, None if self.edited is None else self.edited.predictions
        clean_rows, edited_rows = clean.rows, None
        if edited is not None:
            clean_rows, edited_rows = predictions.share_candidates(clean, edited)
        grids = {} if self.picture is None else self.picture.describe_grids()
        return messages.Run(
            run=self.number,
            model=self._describe_model(),
            text=self.text,
            source=self.labelled.source,
            target=self.labelled.target,
            image=None if self.picture is None else self.picture.describe(),
            audio=None if self.sound is None else self.sound.describe(self.sites),
            answer=self.labelled.answer,
            edited_answer=self.edited_answer,
            answered=None if self.answered is None else self.answered.describe(),
            generated=self.generated,
            unknown=list(self.labelled.unknown_words),
            notes=self.notes,
            sites=describe_sites(self.clean.capture, self.clean.maps, grids),
            edits=[messages.Edit(edit.to_json()) for edit in self.edits],
            clean=clean_rows,
            edited=edited_rows,
            # kept: reading a row of every head takes longer than an edit of a small model
            first_selection=self.opened.remember("selection", self.clean, lambda: _suggest_selection(self)),
            change=None if edited is None else predictions.measure_change(clean.last, edited.last),
            seconds=self.seconds,
        )

    def _describe_model(self) -> messages.ShownModel:
        opened, capture = self.opened, self.clean.capture
        support = opened.lens.support
        sides = [capture.sites.get_sides(site) for site in capture.sites.names]
        has_tokenizer = opened.loaded.tokenizer is not None and opened.reads == "text"
        return messages.ShownModel(
            name=opened.name,
            family=opened.loaded.family,
            parameters=sum(parameter.numel() for parameter in opened.model.parameters()),
            layers=sum(side.queries == side.keys for side in sides),
            heads=sum(site_map.heads for site_map in self.clean.maps),
            is_editable=support is None or support.level == EDITABLE,
            reason="" if support is None else support.reason,
            predicts=self.clean.kind,
            has_tokenizer=has_tokenizer or opened.reads == "numbers",
            can_live=explain_missing_engine(opened.loaded) is None,
        )


def read_page_edits(edits: Sequence[dict[str, Any]], start_edits: Sequence[Edit] = ()) -> tuple[Edit, ...]:
    """Return edits from their JSON objects, which are not trusted. The edits of the start may hold what JSON cannot
    express, a capture or a table, so an object that equals the JSON of such an edit stands for it."""
    converted = []
    for number, edit in enumerate(edits, 1):
        for name in ("mask", "layer"):
            if isinstance(edit.get(name), str) and len(edit[name]) > MAX_EDIT_TEXT:
                raise ArgumentError(f"edit {number}: {name} has more than {MAX_EDIT_TEXT:,} characters")
        start_edit = next((candidate for candidate in start_edits if candidate.to_json() == edit), None)
        try:
            converted.append(Edit.from_json(edit) if start_edit is None else start_edit)
        except ArgumentError as error:
            raise ArgumentError(f"edit {number}: {error}") from None
    return tuple(converted)


def _suggest_selection(inspection: Inspection) -> messages.Selection | None:
    """Return the head whose last row has the largest weight on a key other than the first one and the query itself.

    Most heads put most of their weight on the first token (an attention sink) or on the token itself, so the last head
    of a model is rarely a good first picture. Of a model that answers, a cross-attention is shown; of one that reads
    audio, the head that follows it in time with the largest weight for the first word. None: the input is too long.
    """
    if inspection.sound is not None and inspection.sound.words:
        return _choose_timing_head(inspection, inspection.sound)
    sites = inspection.clean.capture.sites
    # the first position of an image is its class token
    query_index = 0 if inspection.picture is not None and not sites.has_target else -1
    best: messages.Selection | None = None
    largest = 0.0
    for index, (site, site_map) in enumerate(zip(inspection.sites, inspection.clean.maps, strict=True)):
        sides = sites.get_sides(site)
        is_shown = sides == AxisSides(TARGET, SOURCE) if sites.has_target else sides.queries == SOURCE
        if not is_shown or site_map.keys > MAX_SELECTED_KEYS:
            continue
        query = query_index % site_map.queries
        for head in range(site_map.heads):
            row = site_map.read_tile(head, slice(query, query + 1), slice(0, site_map.keys))[0].clone()
            if sides.keys == sides.queries:
                row[0] = row[query] = 0
            weight, key = row.max(0)
            if float(weight) > largest:
                largest = float(weight)
                best = messages.Selection(index, head, query, int(key))
    return best


def _choose_timing_head(inspection: Inspection, sound: Sound) -> messages.Selection:
    """Return the head that listens most sharply when the first word is written."""
    query = sound.words[0].rows.start
    rows = {}
    for site, head in sound.heads:
        index = inspection.sites.index(site)
        site_map = inspection.clean.maps[index]
        rows[index, head] = site_map.read_tile(head, slice(query, query + 1), slice(0, sound.positions))[0]
    (site_index, head), row = max(rows.items(), key=lambda item: float(item[1].max()))
    return messages.Selection(site_index, head, query, int(row.argmax()))


def inspect_model(
    opened: OpenedModel,
    number: int,
    text: str | None,
    start_text: str | None,
    edits: Sequence[Edit],
    generate: int,
    progress: StageProgress,
    *,
    begin: float = 0.0,
    answered: AnsweredPrompt | None = None,
    show_layer: ShowLayer | None = None,
) -> Inspection:
    """Run a model on an input without and with edits. The clean pass of the last input is not computed again.

    Args:
        text: The text; None is the input of the start.
        generate: How many tokens to generate under the edits before; 0 for none.
        progress: An exception that it raises stops the run.
        begin: Of a recording, the second at which the part that the model reads begins.
        answered: A prompt and its answer, which the model reads instead of the text.
        show_layer: Receives the attentions of a slow pass while it goes on.
    """
    started_at = time.perf_counter()
    progress(0, 0, "reading")
    notes = list(opened.notes)
    with explain_failures(opened.model), opened.lens:
        labelled = opened.prepare(text, start_text, begin) if answered is None else answered.labelled
        if labelled.warning:
            notes.append(labelled.warning)
        if labelled.unfinished:
            notes.append(f"the answer is cut after {labelled.answer_length} tokens")
        generated = labelled.prompt if labelled.target else len(labelled.source)
        if answered is not None:
            generated = answered.start
        if generate and answered is None and labelled.tokens and not labelled.target:
            labelled = _continue_text(opened, labelled, edits, generate, notes, progress)
        clean = get_clean_pass(opened, labelled, progress, show_layer)
        applied = locate_edits_in_windows(edits, clean.capture, clean.maps)
        edited = run_pass(opened, labelled, applied, progress, clean) if applied else None
        edited_answer = _answer_again(opened, labelled, applied, notes, progress)
        sound = get_sound(opened, labelled)
    picture = draw_picture(opened, labelled, clean.capture)
    for site_map, site in zip(clean.maps, clean.capture.sites.names, strict=True):
        if type(site_map) is SiteMap and site_map.attention.batch > 1:
            notes.append(f"{site} attends inside {site_map.attention.batch} windows; the page shows the first of them")
            break
    is_text = opened.reads in ("text", "numbers")
    shown_text = (start_text if text is None else text) if is_text else None
    if answered is not None:
        shown_text = answered.question
    return Inspection(
        number,
        opened,
        shown_text,
        start_text,
        labelled,
        generated,
        tuple(edits),
        applied,
        clean,
        edited,
        picture,
        sound,
        edited_answer,
        answered,
        notes,
        time.perf_counter() - started_at,
    )


def _answer_again(
    opened: OpenedModel, labelled: LabelledInput, edits: Sequence[Edit], notes: list[str], progress: StageProgress
) -> str | None:
    """Return the transcript or translation that a model writes under the edits; None without edits, or for others."""
    loaded = opened.loaded
    translates = isinstance(loaded, Loaded) and loaded.model.task == "translate" and labelled.answer_length > 0
    if not edits or (labelled.audio is None and not translates):
        return None
    try:
        with watch_taps(lambda: progress(0, 0, "running")):
            if labelled.audio is not None:
                return transcribe_with_edits(opened.lens, labelled.inputs[0], edits, labelled.language).text
            limit = min(defaults.ANSWER_TOKENS, opened.lens.facts.context_length or defaults.ANSWER_TOKENS)
            generation = opened.lens.generate(labelled.inputs[0], edits=edits, limit=limit)
    except ArgumentError as error:  # such as a mean over positions, where a text is written one by one
        if labelled.audio is not None:
            notes.append(f"the model cannot write a transcript under these edits: {error}")
        else:
            notes.append(f"the model cannot write an answer under these edits: {error}")
        return None
    return generation.text


def _continue_text(
    opened: OpenedModel,
    labelled: LabelledInput,
    edits: Sequence[Edit],
    count: int,
    notes: list[str],
    progress: StageProgress,
) -> LabelledInput:
    """Generate tokens greedily under the edits, and return the input with these tokens behind it."""
    longest = opened.lens.facts.context_length
    allowed = count if longest is None else min(count, longest - len(labelled.tokens))
    if allowed < count:
        notes.append(f"the model reads at most {longest:,} tokens, so that {max(0, allowed)} new tokens fit")
    if allowed < 1:
        return labelled
    generation = opened.lens.generate(
        *labelled.positional,
        edits=edits,
        limit=allowed,
        progress=lambda done, total: progress(done, total, "running"),
        **labelled.named,
    )
    tokens = [*labelled.tokens, *generation.token_ids]
    source = labelled.inputs[0]
    inputs = (torch.tensor([tokens], dtype=source.dtype, device=source.device), *labelled.inputs[1:])
    tokenizer = opened.loaded.require_tokenizer()
    return replace(labelled, inputs=inputs, tokens=tokens, source=label_tokens(tokenizer, tokens), source_words=None)
