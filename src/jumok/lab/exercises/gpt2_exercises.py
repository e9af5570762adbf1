"""The exercises of the page on GPT-2's attention (D3), one for each section."""

from __future__ import annotations

import torch
from torch import Tensor

from jumok.attention import attend, mask
from jumok.checkpoint import load
from jumok.lab.bilingual_text import Text
from jumok.lens import Lens
from jumok.models.gpt import GPT, GPTConfig

from .exercise import Exercise, NumberExercise, NumberMistake, Numbers
from .program_exercise import ProgramExercise, ProgramMistake

THIRD_ROW = (1.0, 0.0, 2.0, 3.0)  # other scores than the article's
REPEATING_TEXT = "Mary gave John a book; Mary"


def _mix_school_values() -> Numbers:
    values = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    return (torch.tensor([0.1, 0.7, 0.2]) @ values).tolist()


def _count_joined_parameters() -> Numbers:
    """Build one block of GPT-2 without memory, and count the parameters of its joined projection."""
    with torch.device("meta"):
        model = GPT(GPTConfig(layers=1))
    return [sum(tensor.numel() for name, tensor in model.named_parameters() if ".projection." in name)]


def _softmax_third_row(allowed: int) -> Numbers:
    return torch.tensor(THIRD_ROW[:allowed]).softmax(-1).tolist()


def _compute_window_ratio() -> Numbers:
    tokens, window = 4096, 256
    positions = torch.arange(tokens)
    distance = positions[:, None] - positions
    causal = int((distance >= 0).sum())
    return [causal / int(((distance >= 0) & (distance < window)).sum())]


def _find_induction_key() -> Numbers:
    """Return the position that head 0 of layer 1 of tiny attends to most from the last letter."""
    tiny = load("tiny")
    assert tiny.tokenizer is not None
    with Lens(tiny) as lens:
        capture = lens.run(tiny.tokenizer.encode(REPEATING_TEXT))
    weights = capture.weights(layer=1, head=0)
    return [float(weights[-1].argmax())]


def _attend_causally(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    heads = (tensor[:, None] for tensor in (q, k, v))
    output, weights = attend(*heads, mask=mask.causal, weights=True)
    return output[:, 0], weights[:, 0]


def _attend_everywhere(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
    return weights @ v, weights


def _attend_unscaled(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    scores = q @ k.mT
    weights = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), float("-inf")).softmax(-1)
    return weights @ v, weights


def _mask_after_softmax(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1).tril()
    return weights @ v, weights


def _fill_with_zero(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    weights = (q @ k.mT / q.shape[-1] ** 0.5).tril().softmax(-1)
    return weights @ v, weights


def _create_attention_calls() -> list[tuple[Tensor, Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((1, 4, 8), (2, 5, 3))
    return [tuple(torch.randn(3, *shape, generator=generator)) for shape in shapes]


GPT2_EXERCISES: tuple[Exercise, ...] = (
    NumberExercise(
        "d3-1",
        Text(
            'The values of "나는", "학교에" and "간다" are [1, 0], [0, 1] and [1, 1], and the weights of "간다" are '
            "0.1, 0.7 and 0.2. What is its output? Two numbers.",
            '"나는", "학교에", "간다"의 값이 [1, 0], [0, 1], [1, 1]이고 "간다"의 가중치가 0.1, 0.7, 0.2입니다. '
            "출력은 얼마입니까? 수 두 개를 쓰십시오.",
        ),
        _mix_school_values,
        Text(
            "The output is the sum of the values, each multiplied by its weight; most of it comes from 학교에.",
            "출력은 각 값에 가중치를 곱해 더한 것이고, 대부분이 '학교에'의 값입니다.",
        ),
        (
            NumberMistake(
                lambda: [2 / 3, 2 / 3],
                Text(
                    "This is the plain mean; multiply each value by its weight.",
                    "단순 평균입니다. 각 값에 가중치를 곱하십시오.",
                ),
            ),
            NumberMistake(
                lambda: [0.311, 0.897],
                Text(
                    "This is the output for the scores 0.2, 2.1, 0.9; use the weights 0.1, 0.7, 0.2 themselves.",
                    "점수 0.2, 2.1, 0.9에서 나온 출력입니다. 가중치 0.1, 0.7, 0.2를 그대로 쓰십시오.",
                ),
            ),
        ),
    ),
    NumberExercise(
        "d3-2",
        Text(
            "GPT-2 computes queries, keys and values by one linear layer from 768 to 2,304, with biases. How many "
            "parameters does it have?",
            "GPT-2는 쿼리, 키, 값을 768에서 2,304로 가는 선형층 하나(편향 포함)로 계산합니다. 이 층의 파라미터는 몇 "
            "개입니까?",
        ),
        _count_joined_parameters,
        Text(
            "768 x 2,304 weights and 2,304 biases: the same as three layers from 768 to 768.",
            "행렬 768 x 2,304와 편향 2,304개입니다. 768에서 768로 가는 층 세 개와 같습니다.",
        ),
        (
            NumberMistake(
                lambda: [768 * 2304],
                Text(
                    "The matrix is right; add one bias for each output.",
                    "행렬은 맞습니다. 출력마다 하나씩 있는 편향을 더하십시오.",
                ),
            ),
            NumberMistake(
                lambda: [768 * 768 + 768],
                Text(
                    "This is one of the three projections; the joined layer has all three.",
                    "투영 세 개 중 하나입니다. 합친 층에는 셋이 모두 있습니다.",
                ),
            ),
            NumberMistake(
                lambda: [768 * 768 * 4 + 768 * 4],
                Text(
                    "This also counts the output projection, which is another layer.",
                    "다른 층인 출력 투영까지 세었습니다.",
                ),
            ),
        ),
        tolerance=0.5,
    ),
    NumberExercise(
        "d3-3",
        Text(
            "Hidden vectors have the shape [2, 7, 512] and there are 8 heads. What is the shape of the queries after "
            "the split into heads, as attention needs it? Four numbers.",
            "은닉 벡터의 모양이 [2, 7, 512]이고 헤드가 8개입니다. 헤드로 나눈 뒤 어텐션에 들어가는 쿼리의 모양은 "
            "무엇입니까? 수 네 개를 쓰십시오.",
        ),
        lambda: list(torch.zeros(2, 7, 512).view(2, 7, 8, 64).transpose(1, 2).shape),
        Text(
            "batch, head, query, head width: every head is a table of its own, so the heads come before the length.",
            "배치, 헤드, 쿼리, 헤드 너비입니다. 헤드마다 표가 따로 있으므로 헤드 축이 길이 축보다 앞에 옵니다.",
        ),
        (
            NumberMistake(
                lambda: [2, 7, 8, 64],
                Text(
                    "This is after the reshape; the transpose is missing. In this order a matrix product would compare "
                    "heads of one token instead of tokens of one head.",
                    "reshape까지만 한 모양입니다. 전치가 빠졌습니다. 이 순서에서 행렬곱을 하면 한 헤드의 토큰들이 "
                    "아니라 한 토큰의 헤드들을 비교하게 됩니다.",
                ),
            ),
            NumberMistake(
                lambda: [2, 8, 7, 512],
                Text("The heads share the width: 512 / 8.", "헤드는 너비를 나누어 씁니다: 512 / 8."),
            ),
        ),
        tolerance=0.0,
    ),
    NumberExercise(
        "d3-4",
        Text(
            "The third row of other scores is 1, 0, 2, 3. Under a causal mask, what are the four weights? At least two "
            "decimals.",
            "다른 점수의 셋째 행이 1, 0, 2, 3입니다. 인과 마스크가 있을 때 네 가중치는 얼마입니까? 소수 둘째 자리까지 "
            "쓰십시오.",
        ),
        lambda: [*_softmax_third_row(3), 0.0],
        Text(
            "The softmax runs over the three allowed scores; the weight of the future is exactly 0.",
            "소프트맥스는 허용된 점수 세 개에만 적용되고, 미래의 가중치는 정확히 0입니다.",
        ),
        (
            NumberMistake(
                lambda: [1 / 3, 0.0, 2 / 3, 0.0],
                Text(
                    "These are the scores divided by their sum; the softmax divides exp(score) by the sum of exp.",
                    "점수를 그 합으로 나눈 값입니다. 소프트맥스는 exp(점수)를 exp의 합으로 나눕니다.",
                ),
            ),
            NumberMistake(
                lambda: _softmax_third_row(4),
                Text(
                    "This is the softmax over all four scores; the fourth key is in the future of the third query.",
                    "점수 네 개 모두의 소프트맥스입니다. 넷째 키는 셋째 쿼리의 미래입니다.",
                ),
            ),
            NumberMistake(
                lambda: [*_softmax_third_row(4)[:3], 0.0],
                Text(
                    "The future was set to 0 after the softmax, so the row does not sum to 1; mask the scores first.",
                    "소프트맥스 뒤에 미래를 0으로 바꾸어 행의 합이 1이 아닙니다. 점수를 먼저 가리십시오.",
                ),
            ),
        ),
    ),
    NumberExercise(
        "d3-5",
        Text(
            "How many megabytes (1 MB = 1,024 x 1,024 bytes) do the weights of one head take at 8,192 tokens in "
            "float32?",
            "토큰이 8,192개일 때 헤드 하나의 가중치는 float32로 몇 메가바이트(1 MB = 1,024 x 1,024바이트)입니까?",
        ),
        lambda: [8192**2 * torch.float32.itemsize / 2**20],
        Text(
            "8,192 x 8,192 weights of 4 bytes: twice the tokens of 4,096 take four times its 64 MB.",
            "4바이트인 가중치가 8,192 x 8,192개입니다. 토큰 수가 4,096의 두 배이므로 64 MB의 네 배입니다.",
        ),
        (
            NumberMistake(
                lambda: [128],
                Text(
                    "Twice the tokens take four times the memory, because queries and keys both double; or this is "
                    "for 2-byte numbers.",
                    "토큰이 두 배면 쿼리와 키가 모두 두 배이므로 메모리는 네 배입니다. 아니면 2바이트 수로 계산한 "
                    "값입니다.",
                ),
            ),
            NumberMistake(
                lambda: [64],
                Text(
                    "This counts 1 byte for each weight; float32 has 4.",
                    "가중치당 1바이트로 계산했습니다. float32는 4바이트입니다.",
                ),
            ),
        ),
        tolerance=0.5,
    ),
    NumberExercise(
        "d3-6",
        Text(
            f'The model tiny reads "{REPEATING_TEXT}". Which position does the last letter, y[26], attend to most in '
            "layer 1, head 0? Use jumok look; one number.",
            f'모델 tiny가 "{REPEATING_TEXT}"를 읽습니다. 층 1, 헤드 0에서 마지막 글자 y[26]이 가장 많이 보는 위치는 '
            f"몇 번입니까? "
            "jumok look을 쓰고, 수 하나로 답하십시오.",
        ),
        _find_induction_key,
        Text(
            "The head looks at the letter after the earlier y, at position 4: this is what came next the last time, "
            "so it is a good guess of what comes next now. Such a head is called an induction head.",
            "이 헤드는 앞서 나온 y의 다음 글자, 곧 위치 4를 봅니다. 지난번에 y 다음에 온 것이므로 이번에도 올 "
            "것이라고 짐작할 수 있습니다. "
            "이런 헤드를 인덕션 헤드(induction head)라고 합니다.",
        ),
        (
            NumberMistake(
                lambda: [3],
                Text(
                    "This is the earlier y itself; the head looks one letter further.",
                    "앞서 나온 y 자체입니다. 이 헤드는 그다음 글자를 봅니다.",
                ),
            ),
            NumberMistake(
                lambda: [26],
                Text(
                    "Most letters attend to themselves here, but not this one.",
                    "여기서 많은 글자가 자기 자신을 보지만, 이 글자는 아닙니다.",
                ),
            ),
        ),
        tolerance=0.0,
    ),
    NumberExercise(
        "d3-7",
        Text(
            "With 4,096 tokens, how many times fewer cells does the mask causal & window(256) allow than causal "
            "alone? One decimal is enough.",
            "토큰이 4,096개일 때 causal이 허용하는 칸은 causal & window(256)이 허용하는 칸의 몇 배입니까? 소수 첫째 "
            "자리면 충분합니다.",
        ),
        _compute_window_ratio,
        Text(
            "causal allows 8,390,656 cells and the window 1,015,936 of them; with twice the tokens the first number "
            "becomes four times as large, the second about twice.",
            "causal은 8,390,656칸, 창은 그중 1,015,936칸을 허용합니다. 토큰이 두 배가 되면 앞의 수는 네 배, 뒤의 "
            "수는 두 배쯤 됩니다.",
        ),
        (
            NumberMistake(
                lambda: [4096 / 256],
                Text(
                    "4,096 / 256 compares full rows; under a causal mask the rows have half that length on average.",
                    "4,096 / 256은 꽉 찬 행끼리 비교한 것입니다. 인과 마스크에서는 행의 길이가 평균 절반입니다.",
                ),
            ),
        ),
        tolerance=0.06,
    ),
    ProgramExercise(
        "d3-8",
        Text(
            "Write a file with a function causal_attention(query, key, value) for tensors [batch, length, width]. "
            "It returns the output and the weights of scaled dot-product attention under a causal mask.",
            "함수 causal_attention(query, key, value)이 있는 파일을 작성하십시오. 텐서의 모양은 [배치, 길이, "
            "너비]이고, 인과 마스크를 "
            "쓴 스케일드 닷프로덕트 어텐션의 출력과 가중치를 돌려줍니다.",
        ),
        "causal_attention",
        _attend_causally,
        _create_attention_calls,
        Text(
            "Output and weights equal those of attend(); the weight on every future token is exactly 0.",
            "출력과 가중치가 attend()와 같고, 모든 미래 토큰의 가중치가 정확히 0입니다.",
        ),
        (
            ProgramMistake(
                _attend_everywhere,
                Text(
                    "The causal mask is missing: tokens attend to their future.",
                    "인과 마스크가 없어서 토큰이 미래를 봅니다.",
                ),
            ),
            ProgramMistake(
                _attend_unscaled,
                Text("The division by sqrt(width) is missing.", "sqrt(너비)로 나누지 않았습니다."),
            ),
            ProgramMistake(
                _mask_after_softmax,
                Text(
                    "The mask comes after the softmax, so the rows do not sum to 1; set the scores to -inf before it.",
                    "소프트맥스 뒤에 가려서 행의 합이 1이 아닙니다. 그 전에 점수를 -inf로 바꾸십시오.",
                ),
            ),
            ProgramMistake(
                _fill_with_zero,
                Text(
                    "A score of 0 is not forbidden: exp(0) = 1. Fill with -inf instead.",
                    "점수 0은 금지가 아닙니다. exp(0) = 1입니다. -inf로 채우십시오.",
                ),
            ),
        ),
    ),
)
