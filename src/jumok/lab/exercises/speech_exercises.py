"""The exercises of the handbook's page on speech."""

from __future__ import annotations

import torch

from jumok.data.audio.log_mel import RATE, compute_log_mel
from jumok.lab.bilingual_text import Text
from jumok.models.speech import FRAMES_PER_POSITION

from .exercise import Exercise, NumberExercise, NumberMistake, Numbers

SECONDS = 12.5
POSITION = 43


def _count_frames() -> int:
    return compute_log_mel(torch.zeros(int(SECONDS * RATE))).shape[1]


def _count_positions() -> Numbers:
    return [_count_frames() // FRAMES_PER_POSITION]


SPEECH_EXERCISES: tuple[Exercise, ...] = (
    NumberExercise(
        "speech-1",
        Text(
            "A recording lasts 12.5 seconds. Whisper's spectrogram has a frame each 10 ms, and its second convolution "
            "has stride 2. How many positions of the encoder belong to the recording?",
            "녹음의 길이는 12.5초입니다. Whisper의 스펙트로그램은 10 ms마다 프레임이 하나이고, 두 번째 합성곱의 "
            "스트라이드는 2입니다. 인코더 위치 가운데 이 녹음에 해당하는 것은 몇 개입니까?",
        ),
        _count_positions,
        Text(
            "1,250 frames, two for each position. The other 875 of the 1,500 positions are silence.",
            "프레임이 1,250개이고 위치 하나에 두 개씩입니다. 1,500개 위치 가운데 나머지 875개는 무음입니다.",
        ),
        (
            NumberMistake(
                lambda: [_count_frames()],
                Text(
                    "These are the frames; the second convolution keeps every second one.",
                    "프레임의 개수입니다. 두 번째 합성곱은 둘 가운데 하나만 남깁니다.",
                ),
            ),
            NumberMistake(
                lambda: [1500.0],
                Text(
                    "This is the whole window of 30 seconds, with the silence after the recording.",
                    "녹음 뒤의 무음까지 포함한 30초 창 전체입니다.",
                ),
            ),
        ),
        tolerance=0.5,
    ),
    NumberExercise(
        "speech-2",
        Text(
            'A head that listens in time has its largest weight for the token " fox" at key 43. Which second of the '
            "audio is this?",
            '시간을 따라 듣는 헤드에서 토큰 " fox"의 가중치는 43번 키에서 가장 큽니다. 이 키는 소리의 몇 초입니까?',
        ),
        lambda: [POSITION * FRAMES_PER_POSITION / 100],
        Text(
            "Keys are positions of 20 ms, counted from 0: 43 x 0.02 s.",
            "키는 0부터 센 20 ms 단위의 위치입니다. 43 x 0.02초입니다.",
        ),
        (
            NumberMistake(
                lambda: [POSITION / 100],
                Text(
                    "A frame of the spectrogram lasts 10 ms, but a position of the encoder 20 ms.",
                    "스펙트로그램의 프레임은 10 ms이지만 인코더의 위치는 20 ms입니다.",
                ),
            ),
        ),
        tolerance=0.005,
    ),
)
