"""Special tokens: those of Whisper, read from OpenAI's source; prompts; and untrusted generation_config.json files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from real_audio import load_whisper
from small_whisper import save_whisper
from transformers.models.whisper.configuration_whisper import NON_SPEECH_TOKENS

import jumok
from catalogue_cache import download_or_skip
from jumok.checkpoint.openai_whisper import read_special_tokens
from jumok.data.tokenizers.speech_tokens import SpeechTokens
from jumok.errors import ArgumentError, CheckpointError

TOKENS = SpeechTokens(start=20, end=19, languages={"en": 21, "ko": 22}, transcribe=24, translate=23, no_timestamps=28)


def test_prompts_follow_the_paper() -> None:
    assert TOKENS.build_prompt("ko", timestamps=False) == [20, 22, 24, 28]
    assert TOKENS.build_prompt("en", task="translate", timestamps=True) == [20, 21, 23]
    english = SpeechTokens(start=20, end=19, transcribe=24, translate=23, no_timestamps=28)
    assert english.build_prompt(timestamps=True) == [20]
    assert english.build_prompt("en", timestamps=False) == [20, 28]
    assert SpeechTokens(start=1, end=2).build_prompt(timestamps=False) == [1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"language": "fr"}, "unknown language 'fr'; this model knows en, ko"),
        ({"language": None}, "unknown language None"),
        ({"language": "ko", "task": "sing"}, "unknown task 'sing'"),
    ],
)
def test_wrong_prompts_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(message)):
        TOKENS.build_prompt(**arguments, timestamps=True)


def test_a_model_without_times_or_tasks_says_so() -> None:
    plain = SpeechTokens(start=1, end=2)
    with pytest.raises(ArgumentError, match="this model writes no times"):
        plain.build_prompt(timestamps=True)
    with pytest.raises(ArgumentError, match="this model does not translate"):
        plain.build_prompt(task="translate", timestamps=False)
    with pytest.raises(ArgumentError, match="knows one language only"):
        plain.build_prompt("ko", timestamps=False)


def test_times_of_tokens() -> None:
    assert [TOKENS.time_of(token) for token in (28, 29, 30, 1529)] == [None, 0.0, 0.02, 30.0]
    assert TOKENS.no_speech == 27


def test_tokens_survive_a_round_trip(tmp_path: Path) -> None:
    save_whisper(tmp_path / "theirs")
    loaded = jumok.load(tmp_path / "theirs")
    tokens = loaded.speech_tokens
    assert tokens is not None and tokens.languages.keys() == {"en", "ko", "de"}
    assert tokens.alignment_heads == ((0, 1), (2, 4)) and tokens.last_first_time == 5
    for file_format in ("jumok", "huggingface"):
        jumok.save(loaded, tmp_path / file_format, format=file_format)
        assert jumok.load(tmp_path / file_format).speech_tokens == tokens


def test_whisper_tokens_are_those_of_transformers() -> None:
    loaded = load_whisper()
    tokens, tokenizer = loaded.speech_tokens, loaded.require_tokenizer()
    assert tokens is not None
    assert set(NON_SPEECH_TOKENS) | {tokens.transcribe, tokens.translate} == set(tokens.suppressed)
    assert (tokens.end, tokens.start, tokens.no_timestamps, tokens.previous) == (50256, 50257, 50362, 50360)
    assert tokens.suppressed_first == (220, 50256)
    assert tokenizer.id_to_token(50363) == "<|0.00|>" and tokenizer.id_to_token(51863) == "<|30.00|>"
    assert tokenizer.encode("<|en|>") == [50258] and tokenizer.encode("Hello world") == [15496, 995]
    assert len(tokens.alignment_heads) == 8


def test_changed_source_is_refused(tmp_path: Path) -> None:
    source = (download_or_skip("whisper-tiny-en") / "openai-whisper" / "tokenizer.py.txt").read_text()
    for removed in ("LANGUAGES = {", "specials = [", '*[f"<|{i * 0.02:.2f}|>" for i in range(1501)],'):
        changed = tmp_path / "tokenizer.py.txt"
        changed.write_text(
            source.replace(
                removed, removed.replace("specials", "tokens").replace("LANGUAGES", "X") if "*" not in removed else ""
            )
        )
        with pytest.raises(CheckpointError, match="does not have the expected form"):
            read_special_tokens(changed, 99)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"no_timestamps_token_id": "many"}, "Expected `int | null`, got `str` - at `$.no_timestamps_token_id`"),
        ({"no_timestamps_token_id": -1}, "Expected `int` >= 0 - at `$.no_timestamps_token_id`"),
        ({"no_timestamps_token_id": 10**6}, "names token 1,000,000, but the model has"),
        ({"lang_to_id": ["en"]}, "Expected `object | null`, got `array` - at `$.lang_to_id`"),
        ({"lang_to_id": {"<|en|>": None}}, "Expected `int`, got `null` - at `$.lang_to_id[...]`"),
        ({"task_to_id": {"transcribe": 1.5}}, "Expected `int`, got `float` - at `$.task_to_id[...]`"),
        ({"suppress_tokens": {"a": 1}}, "Expected `array | null`, got `object` - at `$.suppress_tokens`"),
        ({"suppress_tokens": [True]}, "Expected `int`, got `bool` - at `$.suppress_tokens[0]`"),
        ({"suppress_tokens": [1] * 10_001}, "Expected `array` of length <= 10000 - at `$.suppress_tokens`"),
        ({"alignment_heads": [[0, 1, 2]]}, "Expected `array` of length 2, got 3 - at `$.alignment_heads[0]`"),
        ({"alignment_heads": [[0, 9]]}, "names head 9 of block 0, but the decoder has 3 blocks of 5 heads"),
        ({"timing_heads": 7}, "Expected `array | null`, got `int` - at `$.timing_heads`"),
    ],
)
def test_damaged_generation_configs_are_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    save_whisper(tmp_path)
    path = tmp_path / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises((ArgumentError, CheckpointError), match=re.escape(message)):
        jumok.load(tmp_path)
