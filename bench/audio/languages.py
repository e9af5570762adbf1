"""Compare the Whispers of the catalogue on Korean and on English. Run: python bench/audio/languages.py

Word and character error rates, the languages that a model detects (Korean also with the language given), and how many
recordings it warns of, as they may be in another language:

    korean-numbers    ten recorded Korean numbers, one word each
    espeak-ng         the Korean sentences of foreign_speech.py in two voices, four to a recording, with pauses
    librivox-clips, praatio-clips, mfa-recordings, asterisk-sounds (every 14th): English

Korean is compared without punctuation, characters also without spaces; English with Whisper's normaliser. Digits count
as errors where the text has words. It needs espeakng-loader and the catalogue entries, also of the models.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator

import jiwer
from foreign_speech import SENTENCES
from torch import Tensor
from transformers.models.whisper.english_normalizer import EnglishTextNormalizer

import jumok
from jumok.checkpoint import Loaded
from jumok.data import catalogue
from jumok.data.audio.audio_files import read_audio
from jumok.data.audio.voices import Voice
from jumok.data.datasets.speech_recordings import list_recordings
from jumok.lab.experiments.setups.timed_speech import speak_with_pauses
from jumok.tasks.speech import TranscriptionSettings, transcribe

MODELS = ("whisper-base", "whisper-tiny-en")
VOICES = (Voice("espeak", "ko"), Voice("espeak", "ko+f3", speed=0.9))
SENTENCES_EACH = 4
#: entry of the catalogue -> which of its recordings: every n-th
RECORDINGS = {"korean-numbers": 1, "librivox-clips": 1, "praatio-clips": 1, "mfa-recordings": 1, "asterisk-sounds": 14}
SYNTHESISED = "espeak-ng"
KOREAN = ("korean-numbers", SYNTHESISED)


def read_speech(name: str) -> Iterator[tuple[Tensor, str]]:
    """Yield the recordings of a set, with their texts."""
    if name == SYNTHESISED:
        texts = [line.split("|")[1] for line in SENTENCES.strip().splitlines()]
        for voice in VOICES:
            for first in range(0, len(texts), SENTENCES_EACH):
                part = texts[first : first + SENTENCES_EACH]
                yield speak_with_pauses(part, voice, seed=first).samples, " ".join(part)
        return
    language = "ko" if name == "korean-numbers" else "en"
    for recording in list_recordings(name)[:: RECORDINGS[name]]:
        if recording.language == language:
            yield read_audio(recording.path), recording.text


def normalise_korean(text: str) -> str:
    """Return a text without punctuation."""
    return " ".join(re.sub(r"[^\w\s]", " ", text.lower()).split())


def main() -> None:
    """Transcribe all sets with all models."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ("korean-numbers", SYNTHESISED, *RECORDINGS)
    parser.add_argument("--sets", nargs="+", choices=names, default=list(dict.fromkeys(names)))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    options = parser.parse_args()

    spellings = catalogue.locate_entry("whisper-tiny-en")
    assert spellings is not None
    normalise_english = EnglishTextNormalizer(json.loads((spellings / "openai-whisper" / "spellings.json").read_text()))
    models = {name: jumok.load(name) for name in options.models}
    for name in options.sets:
        is_korean = name in KOREAN
        speech = list(read_speech(name))
        for model, loaded in models.items():
            report_errors(
                f"{name}, {model}", loaded, speech, None, normalise_korean if is_korean else normalise_english
            )
            if is_korean and loaded.speech_tokens is not None and loaded.speech_tokens.languages:
                report_errors(f"{name}, {model} --spoken ko", loaded, speech, "ko", normalise_korean)


def report_errors(
    title: str,
    loaded: Loaded,
    speech: list[tuple[Tensor, str]],
    language: str | None,
    normalise: Callable[[str], str],
) -> None:
    """Transcribe recordings, and print their texts and one line of errors."""
    transcripts = []
    for samples, text in speech:
        transcripts.append(transcribe(loaded, samples, TranscriptionSettings(language)))
        print(f"  {text} -> {transcripts[-1].text}", flush=True)
    expected = [normalise(text) for _, text in speech]
    actual = [normalise(transcript.text) for transcript in transcripts]
    words = jiwer.wer(expected, actual)
    characters = jiwer.cer(*([text.replace(" ", "") for text in texts] for texts in (expected, actual)))
    languages = dict(Counter(transcript.language for transcript in transcripts))
    warnings = sum(transcript.warning is not None for transcript in transcripts)
    print(
        f"{title}: {len(speech)} recordings, word error rate {words:.1%}, character error rate {characters:.1%}, "
        f"languages {languages}, {warnings} warnings",
        flush=True,
    )


if __name__ == "__main__":
    main()
