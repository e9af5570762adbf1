"""Speak a sentence, let whisper-tiny-en find its words by attention, and hide each: ``python spoken_sentence.py``.

Writes spoken_sentence.json beside this file, for the cell "speech" of the site. It needs espeak-ng and ``jumok data get
whisper-tiny-en``; the result is committed, so that building the site needs neither.
"""

from __future__ import annotations

import base64
import json
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

import jumok
from jumok.data.audio import espeak
from jumok.data.audio.log_mel import RATE
from jumok.errors import ContextWarning
from jumok.tasks.labelled_input import prepare_input
from jumok.tasks.speech.listening import locate_words
from jumok.web.input_media import write_wav

TARGET = Path(__file__).with_suffix(".json")
SENTENCE = "My brother plays the guitar, and my sister plays the piano."
MODEL, VOICE, SPEED = "whisper-tiny-en", "en-gb", 0.85


def main() -> None:
    """Write the sentence, the times of its words, and what the model writes without each of them."""
    warnings.simplefilter("ignore", ContextWarning)  # a sentence with a hole may sound like another language
    samples = torch.as_tensor(espeak.speak(SENTENCE, voice=VOICE, speed=SPEED).samples)
    loaded = jumok.load(MODEL)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "sentence.wav"
        path.write_bytes(write_wav(samples))
        recording = base64.b64encode(path.read_bytes()).decode()
        transcript = str(jumok.run(loaded, path)).strip()
        words = []
        for word in locate_words(loaded, prepare_input(loaded, path)):
            hidden = samples.clone()
            hidden[int(word.start * RATE) : int(word.end * RATE)] = 0
            path.write_bytes(write_wav(hidden))
            without = str(jumok.run(loaded, path)).strip()
            words.append(
                {"text": word.text, "start": round(word.start, 2), "end": round(word.end, 2), "without": without}
            )
    content = {"transcript": transcript, "rate": RATE, "words": words, "recording": recording}
    TARGET.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
