"""Count how often an English-only Whisper warns that a recording may be in another language.

    python bench/audio/foreign_speech.py

speaks English and Korean sentences with espeak-ng (``apt install espeak-ng``), in two voices each, and transcribes them
with whisper-tiny-en; recordings of the catalogue are added if its cache has them: asterisk-sounds and librivox-clips
(English), korean-numbers.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import jumok
from jumok.data.catalogue import get_cache_folder
from jumok.tasks.speech import transcribe
from jumok.tasks.speech.audio_window import read_samples

SENTENCES = """
The meeting starts at three o'clock in the afternoon.|회의는 오후 세 시에 시작합니다.
I would like a cup of coffee without sugar, please.|설탕을 넣지 않은 커피 한 잔 주세요.
The train to the airport leaves every twenty minutes.|공항으로 가는 기차는 이십 분마다 출발합니다.
My grandmother planted these trees fifty years ago.|할머니께서 오십 년 전에 이 나무들을 심으셨습니다.
Please close the window before you go to bed.|자기 전에 창문을 닫아 주세요.
The children are playing football in the park.|아이들이 공원에서 축구를 하고 있습니다.
She finished writing her first novel last summer.|그녀는 지난여름에 첫 소설을 다 썼습니다.
The museum is closed on Mondays and public holidays.|박물관은 월요일과 공휴일에 문을 닫습니다.
It rained all night, and the river is very high.|밤새 비가 와서 강물이 많이 불었습니다.
Where can I buy a ticket for the evening concert?|저녁 음악회 표는 어디에서 살 수 있습니까?
The doctor told him to rest for at least a week.|의사는 그에게 적어도 일주일은 쉬라고 했습니다.
We walked along the beach and collected shells.|우리는 해변을 걸으며 조개껍데기를 주웠습니다.
The new library has more than a hundred thousand books.|새 도서관에는 책이 십만 권 넘게 있습니다.
He forgot his umbrella on the bus this morning.|그는 오늘 아침 버스에 우산을 두고 내렸습니다.
The price of bread has risen twice this year.|올해 빵값이 두 번 올랐습니다.
Turn left at the second traffic light.|두 번째 신호등에서 왼쪽으로 도세요.
The cat is sleeping on the warm roof of the car.|고양이가 따뜻한 자동차 지붕 위에서 자고 있습니다.
Our teacher explained the experiment very clearly.|선생님께서 그 실험을 아주 분명하게 설명해 주셨습니다.
They will announce the results on Friday evening.|결과는 금요일 저녁에 발표됩니다.
The old bridge was built by Korean engineers.|그 오래된 다리는 한국 기술자들이 지었습니다.
"""
VOICES = {"english": (("en-us", 150), ("en-gb+f3", 130)), "korean": (("ko", 150), ("ko+f3", 130))}
RECORDINGS = {"asterisk-sounds": ("english", 28), "librivox-clips": ("english", 1), "korean-numbers": ("korean", 1)}


def speak(folder: Path) -> list[tuple[str, str, Path]]:
    """Return the language, the voice and the file of each sentence."""
    files = []
    for number, line in enumerate(SENTENCES.strip().splitlines()):
        for language, text in zip(VOICES, line.split("|"), strict=True):
            for voice, speed in VOICES[language]:
                path = folder / f"{number}-{voice}.wav"
                subprocess.run(["espeak-ng", "-v", voice, "-s", str(speed), "-w", path, text], check=True)
                files.append((language, voice, path))
    return files


def main() -> None:
    """Transcribe and print the counts."""
    whisper = jumok.load("whisper-tiny-en")
    counts, warned = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    with TemporaryDirectory() as name:
        files = speak(Path(name))
        for entry, (language, step) in RECORDINGS.items():
            paths = sorted(path for path in (get_cache_folder() / entry).rglob("*") if path.suffix in (".wav", ".ogg"))
            files += [(language, entry, path) for path in paths[::step]]
        for language, source, path in files:
            try:
                transcript = transcribe(whisper, read_samples(str(path)))
            except jumok.errors.AudioError:  # some recordings are damaged on purpose
                continue
            counts[language, source] += 1
            warned[language, source] += transcript.warning is not None
            print(
                f"{language}  {source}  {path.name}  warned: {transcript.warning is not None}  {transcript.text[:60]}"
            )
    for key, count in counts.items():
        print(f"{'  '.join(key)}: {warned[key]} of {count} warned")


if __name__ == "__main__":
    main()
