"""The exercises of the page on the study note (D4), one for each section."""

from __future__ import annotations

import torch

from jumok.attention import Head
from jumok.lab.bilingual_text import Text

from .exercise import Exercise, NumberExercise, NumberMistake, Numbers


def _count_head_parameters(bias: bool) -> Numbers:
    heads = [Head(64, 16, bias=bias) for _ in range(4)]
    return [sum(tensor.numel() for head in heads for tensor in head.parameters())]


NOTE_EXERCISES: tuple[Exercise, ...] = (
    NumberExercise(
        "d4-1",
        Text(
            "The values are [10, 10], [100, 100] and [5, 5], the weights 0.1, 0.8 and 0.1. What is the output?",
            "값이 [10, 10], [100, 100], [5, 5]이고 가중치가 0.1, 0.8, 0.1입니다. 출력은 얼마입니까?",
        ),
        lambda: (torch.tensor([0.1, 0.8, 0.1]) @ torch.tensor([[10.0, 10.0], [100.0, 100.0], [5.0, 5.0]])).tolist(),
        Text(
            "[1, 1] + [80, 80] + [0.5, 0.5]: the output stays close to the value with the largest weight.",
            "[1, 1] + [80, 80] + [0.5, 0.5]입니다. 출력은 가중치가 가장 큰 값에 가깝습니다.",
        ),
        (
            NumberMistake(
                lambda: [115 / 3, 115 / 3],
                Text(
                    "This is the plain mean; multiply each value by its weight.",
                    "단순 평균입니다. 각 값에 가중치를 곱하십시오.",
                ),
            ),
        ),
        tolerance=0.05,
    ),
    NumberExercise(
        "d4-2",
        Text(
            "Four heads each have three maps Linear(64, 16) without biases. How many parameters do they have together?",
            "헤드 네 개에 편향 없는 Linear(64, 16)이 세 개씩 있습니다. 파라미터는 모두 몇 개입니까?",
        ),
        lambda: _count_head_parameters(bias=False),
        Text(
            "4 x 3 x 64 x 16 is also 3 x 64 x 64: four narrow heads have the parameters of one wide one.",
            "4 x 3 x 64 x 16은 3 x 64 x 64와 같습니다. 좁은 헤드 네 개의 파라미터는 넓은 헤드 하나와 같습니다.",
        ),
        (
            NumberMistake(
                lambda: _count_head_parameters(bias=True),
                Text("These maps have no biases.", "이 선형층에는 편향이 없습니다."),
            ),
            NumberMistake(
                lambda: [3 * 64 * 16],
                Text("This is one head; there are four.", "헤드 하나입니다. 헤드는 네 개입니다."),
            ),
            NumberMistake(
                lambda: [4 * 3 * 64 * 16 + 64 * 64],
                Text("This also counts the output projection.", "출력 투영까지 세었습니다."),
            ),
        ),
        tolerance=0.5,
    ),
)
