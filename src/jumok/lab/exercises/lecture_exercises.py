"""The exercises of the page on the lecture (D0), one for each section."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from jumok.attention import attend
from jumok.lab.bilingual_text import Text
from jumok.lab.document_examples import build_example
from jumok.layers import RecurrentEncoder, SinusoidalPositions

from .exercise import Exercise, NumberExercise, NumberMistake, Numbers, WordExercise
from .program_exercise import ProgramExercise, ProgramMistake

SOURCE = (10, 20, 30, 40, 50)  # the lecture's example of "+2"
PRINTED_WEIGHTS = (0.01, 0.88, 0.03)  # by the lecture, for the scores 5, 95 and 12


def _count_encoder_numbers() -> Numbers:
    """Return how many numbers the last state and all states of an LSTM encoder are."""
    states, last = RecurrentEncoder(8, 512, bidirectional=False)(torch.zeros(1, 100, 8))
    return [last.numel(), states.numel()]


def _count_scores(words: int) -> Numbers:
    vectors = torch.zeros(1, 1, words, 8)
    _, weights = attend(vectors, vectors, vectors, weights=True)
    return [weights.numel()]


def _find_key_of_it() -> list[str]:
    """Return the word with the largest weight in the row of "it", with the random parameters of the example."""
    (weights,) = (step for step in build_example("sentence").steps if step.is_weights)
    row = weights.matrix[weights.rows.index("it")]
    return [weights.columns[int(row.argmax())]]


def _encode_position_one(layout: str = "interleaved", base: float = 10_000.0) -> Numbers:
    encoding: list[float] = SinusoidalPositions(4, base, layout)(range(1, 2))[0].tolist()
    return encoding


def _shift_answer() -> Numbers:
    answer = [number + 2 for number in SOURCE]
    return answer[:-1]


def _find_parts_without_influence() -> Sequence[str]:
    """Change query, key and value in turn, and return the names of those that leave the weights as they are."""
    generator = torch.Generator().manual_seed(0)
    query, key, value, other = torch.randn(4, 1, 1, 3, 8, generator=generator)
    _, weights = attend(query, key, value, weights=True)
    variants = {
        "query 쿼리 Q": (other, key, value),
        "key 키 K": (query, other, value),
        "value 값 V": (query, key, other),
    }
    return [
        spelling
        for names, tensors in variants.items()
        if torch.equal(attend(*tensors, weights=True)[1], weights)
        for spelling in (*names.split(), f"{names.split()[0]}s")
    ]


def _compute_score_difference() -> Numbers:
    return [float(torch.tensor(PRINTED_WEIGHTS[1] / PRINTED_WEIGHTS[2]).log())]


def _attend_with_heads(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor) -> Tensor:
    query, key, value = (x[:, None] @ matrices for matrices in (wq, wk, wv))
    output = attend(query, key, value)
    assert isinstance(output, Tensor)
    return output.transpose(1, 2).flatten(2) @ wo


def _attend_by_formula(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, divisor: float) -> Tensor:
    query, key, value = (x[:, None] @ matrices for matrices in (wq, wk, wv))
    return (query @ key.mT / divisor).softmax(-1) @ value


def _divide_by_width(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor) -> Tensor:
    return _attend_by_formula(x, wq, wk, wv, x.shape[-1] ** 0.5).transpose(1, 2).flatten(2) @ wo


def _do_not_divide(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor) -> Tensor:
    return _attend_by_formula(x, wq, wk, wv, 1.0).transpose(1, 2).flatten(2) @ wo


def _leave_out_output_matrix(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor) -> Tensor:
    return _attend_by_formula(x, wq, wk, wv, wq.shape[-1] ** 0.5).transpose(1, 2).flatten(2)


def _reshape_without_transpose(x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, wo: Tensor) -> Tensor:
    output = _attend_by_formula(x, wq, wk, wv, wq.shape[-1] ** 0.5)
    return output.reshape(*x.shape[:2], -1) @ wo


def _create_head_calls() -> list[tuple[Tensor, ...]]:
    """Return the lecture's sizes (width 8, 2 heads of 4), and others with two rows in the batch."""
    generator = torch.Generator().manual_seed(0)
    sizes = ((1, 3, 8, 2, 4), (2, 5, 6, 3, 2))
    return [
        (
            torch.randn(batch, length, width, generator=generator),
            *torch.randn(3, heads, width, head_width, generator=generator),
            torch.randn(heads * head_width, width, generator=generator),
        )
        for batch, length, width, heads, head_width in sizes
    ]


LECTURE_EXERCISES: tuple[Exercise, ...] = (
    NumberExercise(
        "d0-1",
        Text(
            "An LSTM encoder of width 512 reads 100 words. How many numbers does a decoder receive if it gets only "
            "the last hidden state, and how many if it can attend to the hidden states of all words? Two numbers.",
            "너비 512인 LSTM 인코더가 단어 100개를 읽습니다. 디코더가 마지막 은닉 상태만 받으면 수를 몇 개 받고, "
            "모든 단어의 은닉 상태를 볼 수 있으면 몇 개를 받습니까? 수 두 개를 쓰십시오.",
        ),
        _count_encoder_numbers,
        Text(
            "One state has 512 numbers, however long the sentence is; with attention, what the decoder can read "
            "grows with the sentence.",
            "상태 하나는 문장이 아무리 길어도 수 512개입니다. 어텐션이 있으면 디코더가 읽을 수 있는 것이 문장과 함께 "
            "늘어납니다.",
        ),
        (
            NumberMistake(
                lambda: [512, 512],
                Text(
                    "With attention the decoder can read the state of every word, not only one of them.",
                    "어텐션이 있으면 디코더는 상태 하나가 아니라 모든 단어의 상태를 읽을 수 있습니다.",
                ),
            ),
            NumberMistake(
                lambda: [512, 100],
                Text(
                    "There are 100 states, and each of them has 512 numbers.",
                    "상태가 100개이고, 상태마다 수가 512개입니다.",
                ),
            ),
            NumberMistake(
                lambda: [1024, 51200],
                Text(
                    "This counts the cell state too; the question is about the hidden state alone.",
                    "셀 상태까지 세었습니다. 은닉 상태만 물었습니다.",
                ),
            ),
        ),
        tolerance=0.0,
    ),
    NumberExercise(
        "d0-2",
        Text(
            "A sentence has 100 words, and each word looks at all words, itself included. How many scores does one "
            "head compute?",
            "문장에 단어가 100개 있고, 단어마다 자신을 포함한 모든 단어를 봅니다. 헤드 하나는 점수를 몇 개 계산합니까?",
        ),
        lambda: _count_scores(100),
        Text(
            "100 queries times 100 keys. All of them can be computed at the same time.",
            "쿼리 100개와 키 100개의 쌍입니다. 모두 동시에 계산할 수 있습니다.",
        ),
        (
            NumberMistake(
                lambda: [100 * 99 / 2],
                Text(
                    "This counts each pair once; but how A looks at B is another score than how B looks at A.",
                    "쌍을 한 번씩만 세었습니다. A가 B를 보는 점수와 B가 A를 보는 점수는 다릅니다.",
                ),
            ),
            NumberMistake(
                lambda: [100 * 99],
                Text("Each word also looks at itself.", "단어는 자기 자신도 봅니다."),
            ),
            NumberMistake(
                lambda: [100 * 101 / 2],
                Text(
                    "This is the number under a causal mask; here each word also sees the words after it.",
                    "인과 마스크가 있을 때의 수입니다. 여기서는 뒤에 오는 단어도 봅니다.",
                ),
            ),
        ),
        tolerance=0.0,
    ),
    WordExercise(
        "d0-3",
        Text(
            'Run jumok steps sentence. On which word does "it" put its largest weight there? One word.',
            'jumok steps sentence를 실행하십시오. 거기서 "it"의 가중치가 가장 큰 단어는 무엇입니까? 단어 하나로 '
            "답하십시오.",
        ),
        _find_key_of_it,
        Text(
            "The parameters are random, so this says nothing about the sentence; only training makes weights "
            "meaningful.",
            "파라미터가 난수이므로 이 결과는 문장에 대해 아무것도 말해 주지 않습니다. 가중치는 학습해야 의미가 "
            "생깁니다.",
        ),
        (
            (
                "animal",
                Text(
                    "This is what a trained head may do; the parameters here are random. Read the row of it.",
                    "학습된 헤드라면 그럴 수 있지만, 여기서는 파라미터가 난수입니다. it의 행을 읽으십시오.",
                ),
            ),
            (
                "tired",
                Text(
                    "tired comes after it, and the example has a causal mask: its weight is 0.",
                    "tired는 it보다 뒤에 있고, 이 예제에는 인과 마스크가 있습니다. 가중치가 0입니다.",
                ),
            ),
            (
                "it",
                Text(
                    "Its weight on itself is the second largest.",
                    "자기 자신의 가중치는 두 번째로 큽니다.",
                ),
            ),
        ),
    ),
    NumberExercise(
        "d0-4",
        Text(
            "What is the sinusoidal encoding of position 1 at width 4, in the order sine, cosine, sine, cosine? Four "
            "numbers with two decimals.",
            "너비가 4일 때 위치 1의 사인파 위치 인코딩을 사인, 코사인, 사인, 코사인 순서로 쓰십시오. 소수 둘째 "
            "자리까지 수 네 개를 쓰십시오.",
        ),
        _encode_position_one,
        Text(
            "sin(1), cos(1), sin(1/100) and cos(1/100): the second pair turns 100 times more slowly than the first.",
            "sin(1), cos(1), sin(1/100), cos(1/100)입니다. 둘째 쌍은 첫째 쌍보다 100배 느리게 변합니다.",
        ),
        (
            NumberMistake(
                lambda: _encode_position_one(base=100.0),
                Text(
                    "The exponent is 2i / width: for i = 1 and width 4 the divisor is the square root of 10,000.",
                    "지수는 2i / 너비입니다. i = 1이고 너비가 4이면 10,000의 제곱근으로 나눕니다.",
                ),
            ),
            NumberMistake(
                lambda: _encode_position_one(layout="halves"),
                Text(
                    "These are the right numbers in another order: both sines first.",
                    "수는 맞지만 순서가 다릅니다. 사인을 먼저 모두 썼습니다.",
                ),
            ),
            NumberMistake(
                lambda: [f(math.radians(angle)) for angle in (1, 0.01) for f in (math.sin, math.cos)],
                Text("Angles are in radians, not in degrees.", "각도의 단위는 도가 아니라 라디안입니다."),
            ),
            NumberMistake(
                lambda: [0, 1, 0, 1],
                Text("This is position 0, the first one.", "첫 위치인 위치 0의 인코딩입니다."),
            ),
        ),
    ),
    NumberExercise(
        "d0-5",
        Text(
            "The answer is 12, 22, 32, 42, 52. Which four numbers does the decoder read after its start vector in "
            "training, so that it predicts these five and never reads the number that it has to predict?",
            "정답이 12, 22, 32, 42, 52입니다. 이 다섯 수를 예측하면서 예측할 수를 미리 읽지 않으려면, 학습할 때 "
            "디코더는 시작 벡터 다음에 어떤 수 네 개를 읽어야 합니까?",
        ),
        _shift_answer,
        Text(
            "The answer, shifted by one position: 12 is the input when 22 is predicted. The last number is only "
            "predicted, never read.",
            "정답을 한 칸 민 것입니다. 22를 예측할 때 12를 읽습니다. 마지막 수는 예측만 하고 읽지 않습니다.",
        ),
        (
            NumberMistake(
                lambda: [number + 2 for number in SOURCE[1:]],
                Text(
                    "Then the decoder would read 22 when it has to predict 22. Leave out the last number, not the "
                    "first.",
                    "그러면 22를 예측할 때 22를 읽게 됩니다. 첫 수가 아니라 마지막 수를 빼야 합니다.",
                ),
            ),
            NumberMistake(
                lambda: SOURCE[:-1],
                Text(
                    "These are numbers of the source; the encoder reads them. The decoder reads what it has answered "
                    "so far.",
                    "인코더가 읽는 입력의 수입니다. 디코더는 지금까지 답한 수를 읽습니다.",
                ),
            ),
        ),
        tolerance=0.0,
    ),
    WordExercise(
        "d0-6",
        Text(
            "Query, key or value: which of the three can you change without changing the weights? One word.",
            "쿼리, 키, 값 가운데 바꾸어도 가중치가 변하지 않는 것은 무엇입니까? 단어 하나로 답하십시오.",
        ),
        _find_parts_without_influence,
        Text(
            "Weights come from queries and keys; values are only mixed by them, as the content of a book does not "
            "decide whether its label matches.",
            "가중치는 쿼리와 키에서 나오고, 값은 그 가중치로 섞일 뿐입니다. 책의 내용이 꼬리표가 맞는지를 정하지 "
            "않는 것과 같습니다.",
        ),
        tuple(
            (word, reason)
            for words, reason in (
                (
                    ("query", "쿼리"),
                    Text(
                        "Another question matches other labels, so the weights change.",
                        "질문이 바뀌면 맞는 꼬리표도 바뀌므로 가중치가 변합니다.",
                    ),
                ),
                (
                    ("key", "키"),
                    Text(
                        "The query is compared with the labels, so other labels give other weights.",
                        "질문은 꼬리표와 비교되므로, 꼬리표가 바뀌면 가중치도 변합니다.",
                    ),
                ),
            )
            for word in words
        ),
    ),
    NumberExercise(
        "d0-7",
        Text(
            "The lecture gives the second word the weight 0.88 and the third the weight 0.03. By how much would the "
            "score of the second word have to be larger than that of the third? Two decimals.",
            "강의는 둘째 단어에 가중치 0.88을, 셋째 단어에 0.03을 주었습니다. 그러려면 둘째 단어의 점수가 셋째 "
            "단어의 점수보다 얼마나 커야 합니까? 소수 둘째 자리까지 쓰십시오.",
        ),
        _compute_score_difference,
        Text(
            "The quotient of two weights is exp(difference of the scores), so the difference is ln(0.88 / 0.03); the "
            "lecture's scores differ by 83.",
            "두 가중치의 비는 exp(점수의 차)이므로 차는 ln(0.88 / 0.03)입니다. 강의의 점수는 83만큼 차이가 납니다.",
        ),
        (
            NumberMistake(
                lambda: [95 - 12],
                Text(
                    "This is the difference of the lecture's scores; it gives the quotient exp(83) of the weights.",
                    "강의에 나온 점수의 차입니다. 그러면 가중치의 비가 exp(83)이 됩니다.",
                ),
            ),
            NumberMistake(
                lambda: [0.88 - 0.03],
                Text(
                    "This is the difference of the weights. Differences of scores are quotients of weights.",
                    "가중치의 차입니다. 점수의 차는 가중치의 비가 됩니다.",
                ),
            ),
            NumberMistake(
                lambda: [0.88 / 0.03],
                Text(
                    "This is the quotient of the weights, exp(difference); take its logarithm.",
                    "가중치의 비, 곧 exp(점수의 차)입니다. 여기에 로그를 취하십시오.",
                ),
            ),
            NumberMistake(
                lambda: [math.log10(0.88 / 0.03)],
                Text("Take the natural logarithm, not that to base 10.", "상용로그가 아니라 자연로그를 취하십시오."),
            ),
        ),
    ),
    ProgramExercise(
        "d0-8",
        Text(
            "Write a file with a function multi_head(x, wq, wk, wv, wo): x is [batch, length, width], wq, wk and wv "
            "are [heads, width, head_width], one matrix for each head, and wo is [heads * head_width, width]. It "
            "returns multi-head attention without a mask and without biases, [batch, length, width].",
            "함수 multi_head(x, wq, wk, wv, wo)가 있는 파일을 작성하십시오. x는 [배치, 길이, 너비], wq, wk, wv는 "
            "헤드마다 행렬이 하나씩 있는 [헤드 수, 너비, 헤드 너비], wo는 [헤드 수 * 헤드 너비, 너비]입니다. "
            "마스크와 편향이 없는 멀티헤드 어텐션의 출력 [배치, 길이, 너비]를 돌려줍니다.",
        ),
        "multi_head",
        _attend_with_heads,
        _create_head_calls,
        Text(
            "The output equals that of attend() with several heads.",
            "출력이 여러 헤드를 쓴 attend()와 같습니다.",
        ),
        (
            ProgramMistake(
                _divide_by_width,
                Text(
                    "The scores are divided by sqrt(width); each head compares vectors of head_width numbers, so "
                    "divide by sqrt(head_width).",
                    "점수를 sqrt(너비)로 나누었습니다. 헤드가 비교하는 벡터의 너비는 헤드 너비이므로 sqrt(헤드 "
                    "너비)로 나누십시오.",
                ),
            ),
            ProgramMistake(
                _do_not_divide,
                Text("The division by sqrt(head_width) is missing.", "sqrt(헤드 너비)로 나누지 않았습니다."),
            ),
            ProgramMistake(
                _leave_out_output_matrix,
                Text(
                    "The heads are joined, but the product with wo is missing.",
                    "헤드는 이어 붙였지만 wo를 곱하지 않았습니다.",
                ),
            ),
            ProgramMistake(
                _reshape_without_transpose,
                Text(
                    "The heads of different words are mixed: join the outputs of one word, with transpose(1, 2) "
                    "before the reshape.",
                    "서로 다른 단어의 헤드가 섞였습니다. reshape 전에 transpose(1, 2)를 해서 같은 단어의 출력을 이어 "
                    "붙이십시오.",
                ),
            ),
        ),
    ),
)
