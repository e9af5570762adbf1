"""The exercises of the handbook's page on retrieval."""

from __future__ import annotations

import math

from jumok.lab.bilingual_text import Text

from .exercise import Exercise, NumberExercise, NumberMistake

TOKENS, PASSAGE, QUESTION = 16_384, 64, 16
WITH_PASSAGE, WITHOUT_PASSAGE = -2.0, -7.0  # nats


def _count_fusion_cells(question: int) -> int:
    return TOKENS // PASSAGE * (PASSAGE + question) ** 2


RETRIEVAL_EXERCISES: tuple[Exercise, ...] = (
    NumberExercise(
        "retrieval-1",
        Text(
            "A text of 16,384 tokens is cut into passages of 64. Fusion-in-Decoder reads each passage with the 16 "
            "tokens of the question before it. How many times fewer cells (query, key) does a layer of its encoder "
            "have than full attention over the text?",
            "토큰 16,384개인 텍스트를 64개씩 구절로 나눕니다. Fusion-in-Decoder는 구절마다 앞에 질문의 토큰 16개를 "
            "붙여 읽습니다. 인코더 한 층의 칸(쿼리, 키)은 텍스트 전체에 대한 전체 어텐션의 몇 분의 1입니까?",
        ),
        lambda: [TOKENS**2 / _count_fusion_cells(QUESTION)],
        Text(
            "16,384 x 16,384 cells, against 256 passages of 80 x 80.",
            "16,384 x 16,384칸과, 80 x 80칸인 구절 256개의 비입니다.",
        ),
        (
            NumberMistake(
                lambda: [TOKENS**2 / _count_fusion_cells(0)],
                Text(
                    "The question stands before each passage: a passage has 80 tokens.",
                    "질문이 구절마다 앞에 있으므로 구절 하나는 토큰 80개입니다.",
                ),
            ),
            NumberMistake(
                lambda: [TOKENS**2 / (PASSAGE + QUESTION) ** 2],
                Text(
                    "These are the cells of one passage; there are 256 passages.",
                    "구절 하나의 칸입니다. 구절은 256개입니다.",
                ),
            ),
        ),
        tolerance=0.5,
    ),
    NumberExercise(
        "retrieval-2",
        Text(
            "The log-probability of an answer is -2 nats, and -7 nats when a passage is cut. How many times less "
            "probable is the answer without the passage?",
            "답의 로그 확률은 -2 nats이고, 구절 하나를 빼면 -7 nats입니다. 그 구절이 없으면 답의 확률은 몇 분의 1이 "
            "됩니까?",
        ),
        lambda: [math.exp(WITH_PASSAGE - WITHOUT_PASSAGE)],
        Text("e^(7 - 2) = e^5.", "e^(7 - 2) = e^5입니다."),
        (
            NumberMistake(
                lambda: [WITH_PASSAGE - WITHOUT_PASSAGE],
                Text(
                    "This is the change in nats, a natural logarithm.",
                    "nats로 나타낸 변화, 곧 자연로그입니다.",
                ),
            ),
            NumberMistake(
                lambda: [WITHOUT_PASSAGE / WITH_PASSAGE],
                Text(
                    "Logarithms of probabilities are subtracted, not divided.",
                    "확률의 로그는 나누지 않고 뺍니다.",
                ),
            ),
            NumberMistake(
                lambda: [2 ** (WITH_PASSAGE - WITHOUT_PASSAGE)],
                Text(
                    "Nats are natural logarithms: the base is e, not 2.",
                    "nats는 자연로그이므로 밑은 2가 아니라 e입니다.",
                ),
            ),
        ),
        tolerance=0.5,
    ),
)
