"""The special tokens of a speech model: how a transcript begins and ends, its language, and the times in it.

Whisper's decoder begins with tokens that say what to do: "<|startoftranscript|>", the language, "<|transcribe|>", and
"<|notimestamps|>" unless the text should contain times. Times are tokens as well, one for each 20 ms. Hugging Face
stores the ids in generation_config.json; our own format uses the same file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec

from jumok.errors import ArgumentError

GENERATION_FILE = "generation_config.json"
SECONDS_PER_TIME_TOKEN = 0.02
MAX_IDS = 10_000  # in one list of an untrusted file


TokenId = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
TokenIds = Annotated[tuple[TokenId, ...], msgspec.Meta(max_length=MAX_IDS)]
NamedIds = Annotated[dict[str, TokenId], msgspec.Meta(max_length=MAX_IDS)]
Heads = Annotated[tuple[tuple[TokenId, TokenId], ...], msgspec.Meta(max_length=MAX_IDS)]


class _GenerationConfig(msgspec.Struct):
    """The fields of generation_config.json that are read; None if the file does not have one."""

    decoder_start_token_id: TokenId | None = None
    eos_token_id: Any = None  # one id, or several
    lang_to_id: NamedIds | None = None
    task_to_id: NamedIds | None = None
    no_timestamps_token_id: TokenId | None = None
    prev_sot_token_id: TokenId | None = None
    suppress_tokens: TokenIds | None = None
    begin_suppress_tokens: TokenIds | None = None
    max_initial_timestamp_index: TokenId | None = None
    alignment_heads: Heads | None = None
    timing_heads: Heads | None = None


@dataclass(frozen=True)
class SpeechTokens:
    """The ids of special tokens."""

    start: int  # begins every transcript
    end: int
    # by code, such as {"en": 50259}; {} for a model of one language
    languages: Mapping[str, int] = field(default_factory=dict)
    transcribe: int | None = None  # asks for a transcript in the spoken language; None if the model does nothing else
    translate: int | None = None  # asks for an English translation; None if the model cannot translate
    # asks for a text without times; the times 0.00, 0.02, ... follow it; None for a model that writes no times
    no_timestamps: int | None = None
    previous: int | None = None  # begins the text that came before; None if the model cannot read it
    suppressed: tuple[int, ...] = ()  # never chosen, such as brackets and musical notes, which are not spoken
    suppressed_first: tuple[int, ...] = ()  # not chosen as the first token: a space, and the end
    last_first_time: int | None = None  # the largest first time, in steps of 20 ms; None for no limit
    # (decoder block, head) of the cross-attention heads that follow the audio in time, as published with the model
    alignment_heads: tuple[tuple[int, int], ...] = ()
    # the same, as chosen by smallest error of word starts on calibration audio; () if not measured
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
        """Return the tokens that the decoder reads first; ``language`` is required if the model knows several."""
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
        try:
            config = msgspec.convert(settings, _GenerationConfig)
        except msgspec.ValidationError as error:
            raise ArgumentError(f"{GENERATION_FILE} is damaged: {str(error)[:200]}") from None
        tasks = config.task_to_id or {}
        return cls(
            start=start if config.decoder_start_token_id is None else config.decoder_start_token_id,
            end=config.eos_token_id if isinstance(config.eos_token_id, int) else end,
            languages={code.strip("<|>"): token_id for code, token_id in (config.lang_to_id or {}).items()},
            transcribe=tasks.get("transcribe"),
            translate=tasks.get("translate"),
            no_timestamps=config.no_timestamps_token_id,
            previous=config.prev_sot_token_id,
            suppressed=config.suppress_tokens or (),
            suppressed_first=config.begin_suppress_tokens or (),
            last_first_time=config.max_initial_timestamp_index,
            alignment_heads=config.alignment_heads or (),
            timing_heads=config.timing_heads or (),
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
        if self.languages and self.transcribe is not None:
            content["task"] = "transcribe"  # otherwise transformers detects the language, and names no task
        return {name: entry for name, entry in content.items() if entry not in (None, [], {})}
