"""Generate text under edits, and record the attentions of every token that the model reads."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from jumok.checkpoint import Loaded
from jumok.data.tokenizers.token_labels import label_tokens
from jumok.errors import ArgumentError, ContextWarning, JumokError
from jumok.generate.decoding import create_single_decoder, find_end_tokens
from jumok.generate.loop import decode_steps
from jumok.generate.sampling import RANDOM_SETTINGS, SAMPLING_SETTINGS, Sampling, parse_sampling
from jumok.models import Model
from jumok.reporting import Progress
from jumok.tap import listen

from .capture.model_capture import Capture, Labels
from .capture.recorder import Recorder, StepRecorder
from .edits.apply_edits import EditListener
from .edits.edit_base import Edit
from .lens_inputs import convert_input
from .model_facts import DECODER_INPUT, find_start_token, is_encoder_decoder
from .running.progress_listener import TokenProgressListener
from .sites import Sites

if TYPE_CHECKING:
    from .lens import Lens

#: settings of transformers with which a model reads several candidates, or reads a token again
REFUSED_SETTINGS = ("assistant_model", "prompt_lookup_num_tokens", "custom_generate")
LENGTH_SETTINGS = ("max_new_tokens", "max_length")


@dataclass(frozen=True)
class Generation:
    """What ``Lens.generate`` returns.

    Attributes:
        token_ids: The new tokens, with the end token if there is one.
        text: The new tokens as text, without the end token; None where the lens has no tokenizer.
        capture: The attentions, with one row for every token that was read: those of the prompt and all new tokens but
            the last.
    """

    token_ids: list[int]
    text: str | None
    capture: Capture


class _Prompt(NamedTuple):
    """The input of a generation."""

    inputs: tuple[Any, ...]  # token ids [1, length], an image or regions
    settings: dict[str, Any]  # keyword arguments of transformers' generate
    tokens: list[int]  # of the prompt or source; empty for other inputs
    targets: list[int]  # what the decoder reads before the first new token


def generate_with_edits(
    lens: Lens,
    inputs: tuple[Any, ...],
    settings: Mapping[str, Any],
    *,
    edits: Sequence[Edit],
    limit: int,
    keep: tuple[str, ...],
    name: str,
    progress: Progress | None = None,
) -> Generation:
    """Generate text with a model's own decoding while edits apply; see ``Lens.generate``."""
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise ArgumentError(f"limit must be at least 1 new token, not {limit!r}")
    prompt = _read_prompt(lens, tuple(convert_input(lens, model_input) for model_input in inputs), dict(settings))
    allowed = _limit_to_context(lens, prompt, limit)
    ends = _find_ends(lens, prompt.settings)
    decode: Callable[[int], list[int]]  # takes the number of new tokens
    if isinstance(lens.model, Model):
        unknown = next((name for name in prompt.settings if name not in SAMPLING_SETTINGS), None)
        if unknown is not None:
            raise ArgumentError(f"unknown setting {unknown!r}; choose from {', '.join(SAMPLING_SETTINGS)}")
        decode = partial(_decode, lens.model, prompt, parse_sampling(prompt.settings), ends)
    else:
        decode = partial(_decode_with_transformers, lens.model, prompt)

    recorder, token_progress = StepRecorder(keep), TokenProgressListener(progress, allowed)
    with contextlib.ExitStack() as stack:
        stack.enter_context(token_progress.keep_error())
        if not isinstance(lens.model, Model):
            lens.prepare_route(token_progress, **_build_forward_arguments(lens.model, prompt))
        stack.enter_context(lens.prepare_model())
        stack.enter_context(listen(token_progress))
        edit_listener = None
        if edits:
            edit_listener = EditListener(edits, _find_sites(decode), lens.model)
            token_progress.begin_generation()
            stack.enter_context(listen(edit_listener))
        stack.enter_context(listen(recorder))
        token_ids = decode(allowed)
    if edit_listener is not None:
        edit_listener.check_applied()

    capture = _build_capture(lens, recorder, prompt, token_ids, tuple(edits), name)
    for edit in edits:
        edit.check_capture(capture)
        if edit.selects_queries:
            _check_positions_advance(edit, capture)
    if len(token_ids) == allowed < limit and token_ids[-1] not in ends:
        warnings.warn(
            f"the text stops after {allowed:,} new tokens: this model reads at most {lens.facts.context_length:,} "
            "tokens, and reading on through a window would compute all rows again",
            ContextWarning,
            stacklevel=3,
        )
    tokenizer = lens.tokenizer
    text = None if tokenizer is None else tokenizer.decode([token for token in token_ids if token not in ends])
    return Generation(token_ids, text, capture)


def _read_prompt(lens: Lens, inputs: tuple[Any, ...], settings: dict[str, Any]) -> _Prompt:
    source = inputs[0] if inputs else settings.get("input_ids", next(iter(settings.values()), None))
    if len(inputs) > 1 or not isinstance(source, Tensor):
        raise ArgumentError("lens.generate needs one input: a text, token ids or a tensor; the model writes the rest")
    if source.shape[0] != 1:
        raise ArgumentError(f"lens.generate reads one text at a time, not {source.shape[0]}")
    is_text = source.dim() == 2 and not source.is_floating_point()
    tokens = source[0].tolist() if is_text else []
    if not is_encoder_decoder(lens.model):
        return _Prompt(inputs, settings, tokens, tokens)
    start = lens.model.start_token if isinstance(lens.model, Model) else find_start_token(lens.model)
    targets = [] if start is None else [start]
    if not isinstance(lens.model, Model):
        decoder_input = settings.get(DECODER_INPUT)
        targets = decoder_input[0].tolist() if isinstance(decoder_input, Tensor) else targets or [0]
    return _Prompt(inputs, settings, tokens, targets)


def _build_forward_arguments(model: Any, prompt: _Prompt) -> dict[str, Any]:
    """Return arguments of ``forward`` with which a model of transformers reads the prompt."""
    arguments = {name: setting for name, setting in prompt.settings.items() if isinstance(setting, Tensor)}
    if prompt.inputs:
        arguments[model.main_input_name] = prompt.inputs[0]
    if is_encoder_decoder(model):
        device = next(iter(arguments.values())).device
        arguments[DECODER_INPUT] = torch.tensor([prompt.targets], device=device)
    return arguments


def _limit_to_context(lens: Lens, prompt: _Prompt, limit: int) -> int:
    """Return the number of new tokens after which the text reaches the context length; the last one is not read."""
    context_length = lens.facts.context_length
    if context_length is None or (isinstance(lens.model, Model) and lens.model.is_encoder_decoder):
        return limit  # Jumok's encoder-decoders stop by themselves, with a warning
    if len(prompt.targets) > context_length:
        raise ArgumentError(
            f"the prompt has {len(prompt.targets):,} tokens, but this model reads at most {context_length:,}; "
            "shorten the prompt"
        )
    return min(limit, context_length - len(prompt.targets) + 1)


def _find_ends(lens: Lens, settings: Mapping[str, Any]) -> frozenset[int]:
    """Return the tokens that end a text, as ``jumok.run`` uses them; for transformers, those of its settings."""
    if not isinstance(lens.model, Model):
        config = getattr(lens.model, "generation_config", None)
        ends = settings.get("eos_token_id", getattr(config, "eos_token_id", None))
        return frozenset([ends] if isinstance(ends, int) else ends or ())
    tokenizer = lens.loaded.tokenizer if isinstance(lens.loaded, Loaded) else None
    return find_end_tokens(lens.model, tokenizer)


def _decode(model: Model, prompt: _Prompt, sampling: Sampling, ends: frozenset[int], limit: int) -> list[int]:
    decoder = create_single_decoder(model, prompt.tokens, prompt.inputs[0], limit)
    penalized = [] if model.is_encoder_decoder else prompt.tokens
    steps = decode_steps(decoder, [penalized], limit, sampling, ends)
    return [token for (token,) in steps if token is not None]


def _decode_with_transformers(model: Any, prompt: _Prompt, limit: int) -> list[int]:
    if not hasattr(model, "generate"):
        raise ArgumentError(f"{type(model).__name__} generates no text")
    settings = dict(prompt.settings)
    for name in settings:
        if name in LENGTH_SETTINGS:
            raise ArgumentError(f"set the number of new tokens by limit, not by {name}")
        if name in REFUSED_SETTINGS or (name in ("num_beams", "num_return_sequences") and settings[name] != 1):
            raise ArgumentError(
                f"{name} reads more than one text, or tokens again; lens.generate reads each token once"
            )
    is_random = any(name in settings for name in RANDOM_SETTINGS)
    seed = settings.pop("seed", 0)
    if settings.get("temperature") == 0:  # transformers refuses it
        is_random = bool(settings.pop("temperature"))
    settings = {"do_sample": is_random, "num_beams": 1, "num_return_sequences": 1, **settings}
    device = next(model.parameters()).device
    with torch.random.fork_rng([] if device.type == "cpu" else [device]):
        torch.manual_seed(seed)
        try:
            output = model.generate(*prompt.inputs, max_new_tokens=limit, **settings)
        except JumokError:  # of an edit, which names its cause
            raise
        except (IndexError, ValueError) as error:
            raise ArgumentError(f"{type(model).__name__}.generate: {error}") from error
    sequence: Tensor = getattr(output, "sequences", output)
    return list(sequence[0, len(prompt.targets) :].tolist())


def _find_sites(decode: Callable[[int], list[int]]) -> Sites:
    """Return the attention sites that run when one token is generated."""
    recorder = Recorder()
    with listen(recorder):
        decode(1)
    return Sites(list(recorder.attentions))


def _check_positions_advance(edit: Edit, capture: Capture) -> None:
    """Raise an ArgumentError if an attention that an edit changes has several rows at one position."""
    for site in capture.sites.find_all(edit.layer):
        positions = capture.attentions[site].query_positions
        repeated = next((position for position in positions if positions.count(position) > 1), None)
        if repeated is not None:
            raise ArgumentError(
                f"{site} has several rows at query position {repeated}, because it passes no positions when it "
                "generates; an edit cannot select one of them"
            )


def _build_capture(
    lens: Lens, recorder: Recorder, prompt: _Prompt, token_ids: list[int], edits: tuple[Edit, ...], name: str
) -> Capture:
    """Return the capture of a generation, with a label for every token that was read."""
    if not recorder.attentions:
        raise ArgumentError(f"{type(lens.model).__name__} computes no attention through attend() when it generates")
    read_tokens = [*prompt.targets, *token_ids[:-1]]
    if all(attention.queries != len(read_tokens) for attention in recorder.attentions.values()):
        raise ArgumentError(
            f"{type(lens.model).__name__} did not read each of the {len(read_tokens)} tokens once, so the capture "
            "would not have one row for each"
        )
    tokenizer = lens.tokenizer
    labels: Labels = None
    if tokenizer is not None:
        labels = label_tokens(tokenizer, read_tokens)
        if is_encoder_decoder(lens.model):
            labels = (label_tokens(tokenizer, prompt.tokens) if prompt.tokens else None, labels)
    return Capture(recorder.attentions, recorder.activations, None, edits, labels, name)
