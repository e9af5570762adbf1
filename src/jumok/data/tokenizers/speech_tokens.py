"""The special tokens of a speech model: how a transcript begins and ends, its language, and the times in it.

Whisper's decoder begins with tokens that say what to do: "<|startoftranscript|>", the language, "<|transcribe|>", and
"<|notimestamps|>" unless the text should contain times. Times are tokens as well, one for each 20 ms. Hugging Face
stores the ids in generation_config.json; our own format uses the same file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jumok.errors import ArgumentError, describe_type

GENERATION_FILE = "generation_config.json"
SECONDS_PER_TIME_TOKEN = 0.02
MAX_IDS = 10_000  # in one list of an untrusted file


@dataclass(frozen=True)
class SpeechTokens:
    """The ids of special tokens.

    Args:
        start: Begins every transcript.
        languages: The token of each language by its code, such as {"en": 50259}; {} for a model of one language.
        transcribe: Asks for a transcript in the spoken language; None if the model does nothing else.
        translate: Asks for an English translation; None if the model cannot translate.
        no_timestamps: Asks for a text without times. The times 0.00, 0.02, ... follow it; None for a model that
            writes no times.
        previous: Begins the text that came before; None if the model cannot read it.
        suppressed: Never chosen, such as brackets and musical notes, which are not spoken.
        suppressed_first: Not chosen as the first token: a space, and the end.
        last_first_time: The largest first time, in steps of 20 ms; None for no limit.
        alignment_heads: (decoder block, head) of the cross-attention heads that follow the audio in time, as published
            with the model.
        timing_heads: The same, as chosen by smallest error of word starts on calibration audio; () if not measured.
    """

    start: int
    end: int
    languages: Mapping[str, int] = field(default_factory=dict)
    transcribe: int | None = None
    translate: int | None = None
    no_timestamps: int | None = None
    previous: int | None = None
    suppressed: tuple[int, ...] = ()
    suppressed_first: tuple[int, ...] = ()
    last_first_time: int | None = None
    alignment_heads: tuple[tuple[int, int], ...] = ()
    timing_heads: tuple[tuple[int, int], ...] = ()

    @property
    def first_time(self) -> int | None:
        """The token of the time 0.00; None for a model that writes no times."""
        return None if self.no_timestamps is None else self.no_timestamps + 1

    @property
    def no_speech(self) -> int | None:
        """The token whose probability says that there is no speech; it comes before ``no_timestamps``."""
        return None if self.no_timestamps is None else self.no_timestamps - 1

    def build_prompt(self, language: str | None = None, *, task: str = "transcribe", timestamps: bool) -> list[int]:
        """Return the tokens that the decoder reads first.

        Args:
            language: The code of the spoken language; required if the model knows several.
        """
        prompt = [self.start]
        if self.languages:
            if language is None or language not in self.languages:
                codes = ", ".join(sorted(self.languages))
                raise ArgumentError(f"unknown language {language!r}; this model knows {codes}")
            prompt.append(self.languages[language])
        elif language not in (None, "en"):
            raise ArgumentError(f"this model knows one language only; leave the language out instead of {language!r}")
        if task not in ("transcribe", "translate"):
            raise ArgumentError(f'unknown task {task!r}; choose "transcribe" or "translate"')
        # an English-only model has the tokens of the tasks, but was trained without them
        task_token = self.transcribe if task == "transcribe" else self.translate
        if self.languages and task_token is not None:
            prompt.append(task_token)
        elif task == "translate":
            raise ArgumentError("this model does not translate")
        if timestamps and self.no_timestamps is None:
            raise ArgumentError("this model writes no times; use timestamps=False")
        if not timestamps and self.no_timestamps is not None:
            prompt.append(self.no_timestamps)
        return prompt

    def time_of(self, token_id: int) -> float | None:
        """Return the time in seconds that a token stands for; None if it is not a time."""
        if self.first_time is None or token_id < self.first_time:
            return None
        return round((token_id - self.first_time) * SECONDS_PER_TIME_TOKEN, 2)

    @classmethod
    def from_json(cls, settings: Mapping[str, Any], start: int, end: int) -> SpeechTokens:
        """Read the ids from the content of generation_config.json."""
        languages = _read_object(settings, "lang_to_id")
        tasks = _read_object(settings, "task_to_id")
        ends = settings.get("eos_token_id", end)
        return cls(
            start=_read_id(settings, "decoder_start_token_id", start),
            end=ends if isinstance(ends, int) else end,
            languages={code.strip("<|>"): _read_id(languages, code) for code in languages},
            transcribe=_read_id(tasks, "transcribe", None),
            translate=_read_id(tasks, "translate", None),
            no_timestamps=_read_id(settings, "no_timestamps_token_id", None),
            previous=_read_id(settings, "prev_sot_token_id", None),
            suppressed=_read_ids(settings, "suppress_tokens"),
            suppressed_first=_read_ids(settings, "begin_suppress_tokens"),
            last_first_time=_read_id(settings, "max_initial_timestamp_index", None),
            alignment_heads=_read_heads(settings, "alignment_heads"),
            timing_heads=_read_heads(settings, "timing_heads"),
        )

    def to_json(self, length: int) -> dict[str, Any]:
        """Return the content of generation_config.json, from which transformers' ``generate`` reads the ids too."""
        content: dict[str, Any] = {
            "max_length": length,
            "bos_token_id": self.end,
            "eos_token_id": self.end,
            "pad_token_id": self.end,
            "decoder_start_token_id": self.start,
            "is_multilingual": bool(self.languages),
            "no_timestamps_token_id": self.no_timestamps,
            "prev_sot_token_id": self.previous,
            "suppress_tokens": list(self.suppressed),
            "begin_suppress_tokens": list(self.suppressed_first),
            "max_initial_timestamp_index": self.last_first_time,
            "alignment_heads": [list(head) for head in self.alignment_heads],
            "timing_heads": [list(head) for head in self.timing_heads],
            "return_timestamps": False,
        }
        tasks = {"transcribe": self.transcribe, "translate": self.translate}
        content["lang_to_id"] = {f"<|{code}|>": token for code, token in self.languages.items()}
        content["task_to_id"] = {name: token for name, token in tasks.items() if token is not None}
        return {name: entry for name, entry in content.items() if entry not in (None, [], {})}


def _read_object(settings: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    content = settings.get(name) or {}
    if not isinstance(content, dict) or len(content) > MAX_IDS:
        raise ArgumentError(f"{name} in {GENERATION_FILE} must be an object, not {describe_type(content)}")
    return content


def _read_id(settings: Mapping[str, Any], name: str, default: Any = ...) -> Any:
    token_id = settings.get(name)
    if token_id is None and default is not ...:
        return default
    if type(token_id) is not int or not 0 <= token_id < 2**31:
        raise ArgumentError(f"{name} in {GENERATION_FILE} must be a token id, not {str(token_id)[:40]}")
    return token_id


def _read_ids(settings: Mapping[str, Any], name: str) -> tuple[int, ...]:
    ids = settings.get(name) or []
    if not isinstance(ids, list) or len(ids) > MAX_IDS:
        raise ArgumentError(f"{name} in {GENERATION_FILE} must be a list of token ids, not {describe_type(ids)}")
    return tuple(_read_id({name: token_id}, name) for token_id in ids)


def _read_heads(settings: Mapping[str, Any], name: str) -> tuple[tuple[int, int], ...]:
    pairs = settings.get(name) or []
    is_list = isinstance(pairs, list) and len(pairs) <= MAX_IDS
    if not is_list or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise ArgumentError(f"{name} in {GENERATION_FILE} must be a list of [block, head], not {str(pairs)[:40]}")
    return tuple((_read_id({name: block}, name), _read_id({name: head}, name)) for block, head in pairs)
