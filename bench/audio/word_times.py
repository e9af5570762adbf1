"""Choose the heads of Whisper that listen in time, and measure the error of word starts.

    python bench/audio/word_times.py
    python bench/audio/word_times.py --json

Heads are chosen by the smallest median error on calibration audio, among all combinations of the six best single heads:
espeak-ng in three voices, sentences with pauses.
They are scored on other sentences in other voices of espeak-ng, on flite, and on recordings with word times: those of
the Montreal Forced Aligner and of pocketsphinx (LibriVox) were computed by forced aligners, those of praatio come with
its package. Only words that Whisper recognised count. About four minutes of one core; it needs espeak-ng, flite,
transformers and the catalogue entries whisper-tiny-en, mfa-recordings, praatio-clips and librivox-clips.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from head_choice import CALIBRATION_VOICES, SCORING_TEXTS, SCORING_VOICES, choose_heads, compute_interval
from torch import Tensor

import jumok
from jumok.checkpoint import Loaded
from jumok.data.audio.audio_files import read_audio
from jumok.data.audio.utterance import SpokenWord
from jumok.data.datasets.speech_recordings import list_recordings
from jumok.lab.experiments.setups.timed_speech import (
    CALIBRATION_TEXTS,
    HeardSpeech,
    TimedSpeech,
    compute_errors,
    compute_median,
    list_heads,
    match_words,
    speak_pairs,
)
from jumok.tasks.speech import word_times
from jumok.tasks.speech.audio_window import compute_features
from jumok.tasks.speech.word_times import group_spoken_words

FILTER = 7  # positions of OpenAI's median filter
MONOTONE = 6  # heads
PAUSE_WEIGHTS = (0.005, 0.01, 0.015, 0.02, 0.03, 0.04)
RECORDINGS = {"mfa": "mfa-recordings", "praatio": "praatio-clips", "librivox": "librivox-clips"}
REAL = ("mfa", "praatio", "librivox")

Errors = list[float]


def collect_speech() -> dict[str, list[TimedSpeech]]:
    """Return the calibration audio and the audio of all scores, by name."""
    speech = {"calibration": speak_pairs(CALIBRATION_TEXTS, CALIBRATION_VOICES, seed=1)}
    for name, voices in SCORING_VOICES.items():
        jobs = [(text, voices[number % len(voices)]) for number, text in enumerate(SCORING_TEXTS)]
        utterances = [voice.speak(text) for text, voice in jobs]
        speech[name] = [TimedSpeech(utterance.samples, utterance.words) for utterance in utterances]
    for name, entry in RECORDINGS.items():
        records = [record for record in list_recordings(entry) if record.words and record.language == "en"]
        speech[name] = [
            TimedSpeech(
                read_audio(record.path), tuple(SpokenWord(word.text, word.start, word.end) for word in record.words)
            )
            for record in records
        ]
    return speech


def normalise(weights: Tensor) -> Tensor:
    """Return the weights of each head and position with mean 0 and deviation 1 over the tokens, as OpenAI does."""
    return (weights - weights.mean(-2, keepdim=True)) / (weights.std(-2, keepdim=True, correction=0) + 1e-9)


def filter_median(weights: Tensor) -> Tensor:
    """Return the median over neighbouring positions, as OpenAI does."""
    padded = torch.nn.functional.pad(weights, (FILTER // 2, FILTER // 2), mode="replicate")
    return padded.unfold(-1, FILTER, 1).median(-1).values


def change_weights(recordings: Sequence[HeardSpeech], change: Callable[[Tensor], Tensor]) -> list[HeardSpeech]:
    """Return the recordings with other weights."""
    return [
        replace(speech, windows=tuple(replace(window, weights=change(window.weights)) for window in speech.windows))
        for speech in recordings
    ]


def measure_transformers(loaded: Loaded, speech: Sequence[TimedSpeech]) -> tuple[Errors, Errors]:
    """Return the errors of transformers' token times, taken as starts of words, and of those of the token before.

    The first are what ``generate(return_token_timestamps=True)`` gives for the first token of a word, the second what
    transformers' pipeline calls the start of the word.
    """
    from transformers import WhisperForConditionalGeneration

    model, tokens = loaded.model, loaded.speech_tokens
    assert tokens is not None
    with tempfile.TemporaryDirectory() as folder:
        jumok.save(loaded, f"{folder}/whisper", format="huggingface")
        theirs = WhisperForConditionalGeneration.from_pretrained(f"{folder}/whisper", dtype=torch.float32).eval()
    token_errors: Errors = []
    before: Errors = []
    for recording in speech:
        if len(recording.samples) > 30 * 16_000:
            continue
        features = compute_features(recording.samples, model)[None]
        is_audio = (torch.arange(features.shape[-1]) < len(recording.samples) // 160)[None].long()
        with torch.no_grad():
            answer = theirs.generate(features, attention_mask=is_audio, return_token_timestamps=True)
        ids, times = answer["sequences"][0].tolist(), answer["token_timestamps"][0].tolist()
        first = next(index for index, token in enumerate(ids) if token < tokens.end)
        ids, times = ids[first:], [0.0, *times[first:]]  # the time of the token before the first one is 0
        ids = [token for token in ids if token < tokens.end]
        words = group_spoken_words(loaded.require_tokenizer(), ids, None)
        for word, spoken in match_words([word.text for word in words], [word.text for word in recording.words]):
            start = recording.words[spoken].start
            if start is not None:
                before.append(times[words[word].start] - start)
                token_errors.append(times[words[word].start + 1] - start)
    return token_errors, before


def summarise(errors: Errors) -> dict[str, Any]:
    """Return the median absolute error with its interval, the median error and the share above 200 ms."""
    if not errors:
        return {"words": 0}
    low, high = compute_interval(errors)
    return {
        "words": len(errors),
        "median_ms": round(1000 * compute_median(errors)),
        "interval_ms": [round(1000 * low), round(1000 * high)],
        "late_ms": round(1000 * sorted(errors)[len(errors) // 2]),
        "above_200_ms": round(sum(abs(error) > 0.2 for error in errors) / len(errors), 3),
    }


def measure_ways(recordings: list[HeardSpeech], chosen: list[int], every: list[int]) -> dict[str, dict[str, Any]]:
    """Compare normalisation, filters, pauses and the weight of a pause on the calibration audio."""
    ways: dict[str, dict[str, Any]] = {}
    variants = {
        "plain weights": recordings,
        "normalised over tokens": change_weights(recordings, normalise),
        "median filter": change_weights(recordings, filter_median),
        "both": change_weights(recordings, lambda weights: filter_median(normalise(weights))),
    }
    for name, changed in variants.items():
        for rows, heads in ((chosen, "chosen"), (every, "all")):
            for pauses in (True, False) if name in ("plain weights", "median filter") else (False,):
                label = f"{name}, {heads} heads, {'with' if pauses else 'no'} pauses"
                ways[label] = summarise(compute_errors(changed, rows, pauses=pauses))
    usual = word_times.PAUSE_WEIGHT
    for weight in PAUSE_WEIGHTS:
        word_times.PAUSE_WEIGHT = weight
        ways[f"pause weight {weight}, chosen heads"] = summarise(compute_errors(recordings, chosen))
    word_times.PAUSE_WEIGHT = usual
    return ways


def main() -> None:
    """Choose heads, score them, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()

    loaded = jumok.load("whisper-tiny-en")
    assert loaded.speech_tokens is not None
    speech = collect_speech()
    listened = {name: [HeardSpeech.listen(loaded, entry) for entry in entries] for name, entries in speech.items()}
    calibration = listened.pop("calibration")
    del speech["calibration"]

    heads = list(list_heads(loaded))
    every = list(range(len(heads)))
    single = {head: summarise(compute_errors(calibration, [row])) for row, head in enumerate(heads)}
    monotony = {
        head: sum(recording.measure_monotony(row) for recording in calibration) / len(calibration)
        for row, head in enumerate(heads)
    }
    ranked = sorted(every, key=lambda row: single[heads[row]]["median_ms"])
    chosen = choose_heads(calibration, len(heads))
    combined = {"the choice": chosen, **{f"the best {count}": ranked[:count] for count in range(1, 7)}}
    steps = {
        f"{name}: {[heads[row] for row in rows]}": summarise(compute_errors(calibration, rows))
        for name, rows in combined.items()
    }
    stored = [heads.index(head) for head in loaded.speech_tokens.timing_heads]
    published = [heads.index(head) for head in loaded.speech_tokens.alignment_heads]
    monotone = sorted(every, key=lambda row: -monotony[heads[row]])[:MONOTONE]

    choices: dict[str, tuple[list[int], bool]] = {
        "timing heads (find_word_times)": (stored, True),
        "timing heads, no pauses": (stored, False),
        "all heads": (every, True),
        "all heads, no pauses": (every, False),
        "published heads": (published, True),
        "published heads, no pauses": (published, False),
        "most monotone heads, no pauses": (monotone, False),
    }
    scores: dict[str, dict[str, dict[str, Any]]] = {}
    for name, (rows, pauses) in choices.items():
        errors = {source: compute_errors(recordings, rows, pauses=pauses) for source, recordings in listened.items()}
        scores[name] = _add_real(errors)
    theirs = {source: measure_transformers(loaded, recordings) for source, recordings in speech.items()}
    scores["transformers, token times"] = _add_real({source: pair[0] for source, pair in theirs.items()})
    scores["transformers, time of the token before"] = _add_real({source: pair[1] for source, pair in theirs.items()})

    report = {
        "stored": list(loaded.speech_tokens.timing_heads),
        "chosen": [heads[row] for row in chosen],
        "single": {str(head): {**single[head], "monotony": round(monotony[head], 3)} for head in heads},
        "steps": steps,
        "ways": measure_ways(calibration, stored, every),
        "scores": scores,
    }
    print(json.dumps(report)) if arguments.json else print_report(report)


def _add_real(errors: dict[str, Errors]) -> dict[str, dict[str, Any]]:
    """Summarise the errors of each source, and of all recordings together."""
    real = [error for source in REAL for error in errors[source]]
    return {source: summarise(entry) for source, entry in {**errors, "recordings": real}.items()}


def print_report(report: dict[str, Any]) -> None:
    """Print the tables."""
    print(f"chosen by this run: {report['chosen']}; in the model's folder: {report['stored']}\n")
    print("head      median  late  >200 ms  monotone   (calibration, one head)")
    for head, entry in report["single"].items():
        print(
            f"{head:<8} {entry['median_ms']:>5} ms {entry['late_ms']:>+5} {entry['above_200_ms']:>7.1%}  "
            f"{entry['monotony']:>7.2f}"
        )
    print("\ncombined heads (calibration)")
    for name, entry in report["steps"].items():
        print(f"  {entry['median_ms']:>4} ms {entry['above_200_ms']:>6.1%}  {name}")
    print("\nways (calibration)")
    for name, entry in report["ways"].items():
        print(f"  {entry['median_ms']:>4} ms {entry['above_200_ms']:>6.1%}  {name}")
    print("\nmedian error of word starts in ms [95% interval], words, share above 200 ms, median late(+)/early(-)")
    for name, entries in report["scores"].items():
        print(name)
        for source, entry in entries.items():
            low, high = entry["interval_ms"]
            print(
                f"  {source:<16} {entry['median_ms']:>4} [{low}, {high}]  {entry['words']} words  "
                f"{entry['above_200_ms']:.1%}  {entry['late_ms']:+}"
            )


if __name__ == "__main__":
    main()
