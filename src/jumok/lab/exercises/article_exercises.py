"""The exercises of the page on the article "Transformer in Python" (D2), one for each section."""

from __future__ import annotations

import torch
from torch import Tensor

from jumok.attention import MultiHead, attend, score
from jumok.checkpoint import load
from jumok.lab.bilingual_text import Text
from jumok.layers import EncoderBlock, FeedForward, LayerNorm
from jumok.layers.token_inputs import average_tokens
from jumok.lens import Lens
from jumok.tasks.labelled_input import prepare_input

from .exercise import Exercise, NumberExercise, NumberMistake, Numbers, WordExercise
from .program_exercise import ProgramExercise, ProgramMistake

KOREAN_SENTENCE = "그녀는 공원에서 커피를 마신다"
SMALL_GRADIENT = 1e-8


def _attend_to_three_states(decoder_part: float) -> Numbers:
    """Return the softmax of scores that are sums of a decoder's part and the encoder's parts 0, 1 and 2."""
    scores = torch.tensor([0.0, 1.0, 2.0]) + decoder_part
    return scores.softmax(-1).tolist()


def _attend_among_one_hot_words(words: int, formula: score.Score) -> Numbers:
    """Return the weight that a one-hot word puts on itself, among as many words as the vectors are wide."""
    vectors = torch.eye(words)[None, None]
    _, weights = attend(vectors, vectors, vectors, score=formula, weights=True)
    return [float(weights[0, 0, 0, 0])]


def _attend_with_one_head(inputs: Tensor, w_query: Tensor, w_key: Tensor, w_value: Tensor) -> tuple[Tensor, Tensor]:
    projected = ((inputs @ matrix)[:, None] for matrix in (w_query, w_key, w_value))
    output, weights = attend(*projected, weights=True)
    return output[:, 0], weights[:, 0]


def _attend_unscaled(inputs: Tensor, w_query: Tensor, w_key: Tensor, w_value: Tensor) -> tuple[Tensor, Tensor]:
    weights = ((inputs @ w_query) @ (inputs @ w_key).mT).softmax(-1)
    return weights @ inputs @ w_value, weights


def _scale_by_input_width(inputs: Tensor, w_query: Tensor, w_key: Tensor, w_value: Tensor) -> tuple[Tensor, Tensor]:
    weights = ((inputs @ w_query) @ (inputs @ w_key).mT / inputs.shape[-1] ** 0.5).softmax(-1)
    return weights @ inputs @ w_value, weights


def _normalize_columns(inputs: Tensor, w_query: Tensor, w_key: Tensor, w_value: Tensor) -> tuple[Tensor, Tensor]:
    weights = ((inputs @ w_query) @ (inputs @ w_key).mT / w_key.shape[-1] ** 0.5).softmax(-2)
    return weights @ inputs @ w_value, weights


def _create_head_calls() -> list[tuple[Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    calls = []
    for batch, length, width, head_width, value_width in ((1, 3, 8, 4, 4), (2, 5, 7, 3, 2)):
        inputs = torch.randn(batch, length, width, generator=generator)
        widths = (head_width, head_width, value_width)
        calls.append((inputs, *(torch.randn(width, size, generator=generator) for size in widths)))
    return calls


def _sum_weights_of_heads() -> Numbers:
    _, weights = MultiHead(512, 8)(torch.zeros(1, 20, 512), weights=True)
    return [round(float(weights.detach().sum()), 3)]


def _count_block_parameters() -> Numbers:
    with torch.device("meta"):
        block = EncoderBlock(MultiHead(512, 8), FeedForward(512, 2048), norm=lambda: LayerNorm(512))
    return [sum(parameter.numel() for parameter in block.parameters())]


def _find_attended_token() -> list[str]:
    """Return the Korean token that head 2 of decoder.1.cross attends to most from the input "drinks"."""
    translator = load("translator")
    labelled = prepare_input(translator, KOREAN_SENTENCE)
    with Lens(translator) as lens:
        capture = lens.run(*labelled.positional)
    row = capture.row("decoder.1.cross", 2, labelled.target.index("drinks"))
    return [labelled.source[int(row.argmax())]]


def _average_all_tokens(hidden: Tensor, token_mask: Tensor) -> Tensor:
    return hidden.mean(1)


def _divide_by_length(hidden: Tensor, token_mask: Tensor) -> Tensor:
    return (hidden * token_mask[..., None]).sum(1) / hidden.shape[1]


def _create_padded_batches() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    lengths = torch.tensor([[4], [2]])
    token_mask = torch.arange(4) < lengths
    right_padded = (torch.randn(2, 4, 3, generator=generator), token_mask)
    left_padded = (torch.randn(2, 4, 5, generator=generator), token_mask.flip(1))
    return [right_padded, left_padded]


def _find_smallest_scale() -> Numbers:
    """Return the smallest power of two by which a small gradient must be multiplied to be above 0 in float16."""
    scale = 1
    while not float(torch.tensor(SMALL_GRADIENT * scale).half()):
        scale *= 2
    return [scale]


ARTICLE_EXERCISES: tuple[Exercise, ...] = (
    NumberExercise(
        "d2-1",
        Text(
            "A score without tanh is a sum of two parts. The decoder's part is 5 in one step and -3 in the next; "
            "the encoder's parts are 0, 1 and 2 for its three states. What are the three weights in the second step? "
            "Two decimals.",
            "tanh가 없는 점수는 두 부분의 합입니다. 디코더의 부분은 한 단계에서 5, 다음 단계에서 -3이고, 인코더의 "
            "부분은 "
            "상태 세 개에 대해 0, 1, 2입니다. 둘째 단계의 가중치 세 개는 얼마입니까? 소수 둘째 자리까지 쓰십시오.",
        ),
        lambda: _attend_to_three_states(-3.0),
        Text(
            "The softmax of -3, -2, -1 is the softmax of 0, 1, 2: the decoder's part cancels, and both steps have the "
            "same weights.",
            "-3, -2, -1의 소프트맥스는 0, 1, 2의 소프트맥스와 같습니다. 디코더의 부분은 상쇄되고, 두 단계의 가중치가 "
            "같습니다.",
        ),
        (
            NumberMistake(
                lambda: [-3.0, -2.0, -1.0],
                Text(
                    "These are the scores; the weights are their softmax.",
                    "점수입니다. 가중치는 점수의 소프트맥스입니다.",
                ),
            ),
            NumberMistake(
                lambda: [0.5, 1 / 3, 1 / 6],
                Text(
                    "This divides the scores by their sum; the softmax divides their exponentials.",
                    "점수를 그 합으로 나누었습니다. 소프트맥스는 점수의 지수를 나눕니다.",
                ),
            ),
        ),
    ),
    NumberExercise(
        "d2-2",
        Text(
            "Four words have one-hot vectors of width 4, which are queries, keys and values at once. With the scale, "
            "which weight does a word put on itself? Three decimals.",
            "단어 네 개를 너비 4의 원-핫 벡터로 나타내고, 이것을 쿼리, 키, 값으로 씁니다. 스케일이 있을 때 단어가 "
            "자신에게 두는 가중치는 얼마입니까? 소수 셋째 자리까지 쓰십시오.",
        ),
        lambda: _attend_among_one_hot_words(4, score.ScaledDot()),
        Text(
            "The scores are 1 / sqrt(4) = 0.5 on the diagonal and 0 elsewhere: e^0.5 / (e^0.5 + 3).",
            "점수는 대각선에서 1 / sqrt(4) = 0.5, 나머지에서 0입니다: e^0.5 / (e^0.5 + 3).",
        ),
        (
            NumberMistake(
                lambda: _attend_among_one_hot_words(4, score.Dot()),
                Text(
                    "This is e / (e + 3), without the scale; divide the scores by sqrt(4).",
                    "스케일이 없는 e / (e + 3)입니다. 점수를 sqrt(4)로 나누십시오.",
                ),
            ),
            NumberMistake(
                lambda: _attend_among_one_hot_words(4, score.ScaledDot(scale=1 / 4)),
                Text(
                    "The scores were divided by the width; divide by its square root.",
                    "점수를 너비로 나누었습니다. 너비의 제곱근으로 나누십시오.",
                ),
            ),
            NumberMistake(
                lambda: _attend_among_one_hot_words(3, score.ScaledDot()),
                Text(
                    "This is the answer for three words of width 3.",
                    "너비 3인 단어 세 개일 때의 답입니다.",
                ),
            ),
        ),
        tolerance=0.001,
    ),
    ProgramExercise(
        "d2-3",
        Text(
            "Write a file with a function single_head(inputs, w_query, w_key, w_value). inputs are [batch, length, "
            "width]; the other arguments are matrices [width, head width], and w_value may have a different "
            "head width. The function returns the output and the weights.",
            "함수 single_head(inputs, w_query, w_key, w_value)가 있는 파일을 작성하십시오. inputs의 모양은 [배치, "
            "길이, 너비]이고, 나머지는 행렬 [너비, 헤드 너비]이며, w_value의 헤드 너비는 다를 수 있습니다. 함수는 "
            "출력과 가중치를 돌려줍니다.",
        ),
        "single_head",
        _attend_with_one_head,
        _create_head_calls,
        Text(
            "Output and weights equal those of attend(); the scale is the square root of the width of the keys.",
            "출력과 가중치가 attend()와 같습니다. 스케일은 키 너비의 제곱근입니다.",
        ),
        (
            ProgramMistake(
                _attend_unscaled,
                Text(
                    "The division by the square root of the head width is missing.",
                    "헤드 너비의 제곱근으로 나누지 않았습니다.",
                ),
            ),
            ProgramMistake(
                _scale_by_input_width,
                Text(
                    "The scale is the square root of the width of the keys, not of the inputs.",
                    "스케일은 입력 너비가 아니라 키 너비의 제곱근입니다.",
                ),
            ),
            ProgramMistake(
                _normalize_columns,
                Text(
                    "The softmax runs over the queries, so the columns sum to 1; use softmax(-1), over the keys.",
                    "소프트맥스가 쿼리 방향이어서 열의 합이 1입니다. 키 방향인 softmax(-1)을 쓰십시오.",
                ),
            ),
        ),
    ),
    NumberExercise(
        "d2-4",
        Text(
            "The weights of eight heads on 20 tokens are [1, 8, 20, 20]. What is the sum of all these numbers?",
            "토큰 20개에 대한 헤드 여덟 개의 가중치는 [1, 8, 20, 20]입니다. 이 수를 모두 더하면 얼마입니까?",
        ),
        _sum_weights_of_heads,
        Text(
            "Each of the 8 x 20 rows sums to 1.",
            "8 x 20개의 행이 각각 합해서 1입니다.",
        ),
        (
            NumberMistake(
                lambda: [3200],
                Text(
                    "This is how many weights there are; most of them are far below 1.",
                    "가중치의 개수입니다. 대부분 1보다 훨씬 작습니다.",
                ),
            ),
            NumberMistake(
                lambda: [20],
                Text("This is the sum of one head; there are eight.", "헤드 하나의 합입니다. 헤드는 여덟 개입니다."),
            ),
            NumberMistake(
                lambda: [8],
                Text(
                    "It is not each map that sums to 1, but each row of it.",
                    "합이 1인 것은 표 하나가 아니라 표의 각 행입니다.",
                ),
            ),
        ),
        tolerance=0.01,
    ),
    NumberExercise(
        "d2-5",
        Text(
            "How many parameters does one block have? Its width is 512, it has 8 heads, a feed-forward network with "
            "inner width 2,048 and two LayerNorms, all with biases.",
            "블록 하나의 파라미터는 몇 개입니까? 너비 512, 헤드 8개, 안쪽 너비 2,048인 피드포워드, LayerNorm 두 "
            "개이고 "
            "모두 편향이 있습니다.",
        ),
        _count_block_parameters,
        Text(
            "1,050,624 of the attention, 2,099,712 of the feed-forward network and 2 x 1,024 of the norms: two thirds "
            "are in the feed-forward network.",
            "어텐션 1,050,624개, 피드포워드 2,099,712개, 정규화층 2 x 1,024개입니다. 3분의 2가 피드포워드에 있습니다.",
        ),
        (
            NumberMistake(
                lambda: [1050624 + 2099712],
                Text(
                    "The two norms are missing: each has 512 factors and 512 biases.",
                    "정규화층 두 개가 빠졌습니다. 각각 배율 512개와 편향 512개가 있습니다.",
                ),
            ),
            NumberMistake(
                lambda: [4 * 512 * 512 + 2 * 512 * 2048 + 2 * 1024],
                Text("The biases of the linear layers are missing.", "선형층의 편향이 빠졌습니다."),
            ),
            NumberMistake(
                lambda: [3 * (512 * 512 + 512) + 2099712 + 2 * 1024],
                Text(
                    "The attention has four maps: query, key, value and output.",
                    "어텐션에는 선형층이 네 개 있습니다: 쿼리, 키, 값, 출력.",
                ),
            ),
            NumberMistake(
                lambda: [1050624],
                Text(
                    "This is the attention alone; add the feed-forward network and the norms.",
                    "어텐션만 센 것입니다. 피드포워드와 정규화층을 더하십시오.",
                ),
            ),
        ),
        tolerance=0.5,
    ),
    WordExercise(
        "d2-6",
        Text(
            f'The translator reads "{KOREAN_SENTENCE}" and writes "She drinks coffee in the park". Which Korean token '
            "does the input drinks[2] attend to most in head 2 of decoder.1.cross?",
            f'번역기가 "{KOREAN_SENTENCE}"를 읽고 "She drinks coffee in the park"를 씁니다. decoder.1.cross의 헤드 '
            f"2에서 "
            "입력 drinks[2]가 가장 많이 보는 한국어 토큰은 무엇입니까?",
        ),
        _find_attended_token,
        Text(
            'At the input "drinks" the decoder has to predict the next word, "coffee", so it looks at 커피.',
            '디코더는 입력 "drinks"에서 다음 단어 "coffee"를 예측해야 하므로 커피를 봅니다.',
        ),
        (
            (
                "마신",
                Text(
                    '마신 is the translation of "drinks", but "drinks" is already written; which word comes next?',
                    '마신은 "drinks"의 번역이지만 "drinks"는 이미 썼습니다. 다음에 올 단어는 무엇입니까?',
                ),
            ),
            (
                "공원",
                Text(
                    'The input "coffee" looks at 공원; read the row of "drinks".',
                    '공원을 보는 것은 입력 "coffee"입니다. "drinks"의 행을 읽으십시오.',
                ),
            ),
            (
                "커피를",
                Text(
                    "The tokenizer splits 커피를 into the tokens 커피 and ##를; which of the two?",
                    "토크나이저는 커피를을 토큰 커피와 ##를로 나눕니다. 둘 중 어느 것입니까?",
                ),
            ),
        ),
    ),
    ProgramExercise(
        "d2-7",
        Text(
            "Write a file with a function average_tokens(hidden, token_mask) that returns the mean vector of the real "
            "tokens of each text, [batch, width]. hidden is [batch, length, width]; token_mask is [batch, length], "
            "True for a real token and False for padding.",
            "텍스트마다 실제 토큰의 평균 벡터 [배치, 너비]를 돌려주는 함수 average_tokens(hidden, token_mask)가 있는 "
            "파일을 "
            "작성하십시오. hidden의 모양은 [배치, 길이, 너비]이고, token_mask는 [배치, 길이]이며 실제 토큰이면 True, "
            "패딩이면 False입니다.",
        ),
        "average_tokens",
        average_tokens,
        _create_padded_batches,
        Text(
            "The sum of the real tokens, divided by how many there are in each text.",
            "실제 토큰의 합을 텍스트마다 실제 토큰의 수로 나누었습니다.",
        ),
        (
            ProgramMistake(
                _average_all_tokens,
                Text(
                    "The mean counts padding, as in the article: a text has another mean when a longer one is next to "
                    "it in the batch.",
                    "글에서처럼 패딩까지 평균에 넣었습니다. 배치에 더 긴 텍스트가 있으면 같은 텍스트의 평균이 "
                    "달라집니다.",
                ),
            ),
            ProgramMistake(
                _divide_by_length,
                Text(
                    "The padding is set to 0, but the sum is still divided by the length with padding.",
                    "패딩을 0으로 만들었지만, 합을 여전히 패딩을 포함한 길이로 나누었습니다.",
                ),
            ),
        ),
    ),
    NumberExercise(
        "d2-8",
        Text(
            "A gradient of 1e-8 becomes 0 in float16. What is the smallest power of two to multiply it by so that it "
            "does not become 0?",
            "기울기 1e-8은 float16에서 0이 됩니다. 0이 되지 않으려면 적어도 어떤 2의 거듭제곱을 곱해야 합니까?",
        ),
        _find_smallest_scale,
        Text(
            "4e-8 is rounded to 6e-8, the smallest number of float16, and 2e-8 to 0. A scaler starts at 65,536 to "
            "keep "
            "far smaller gradients too.",
            "4e-8은 float16의 가장 작은 수 6e-8로, 2e-8은 0으로 반올림됩니다. 스케일러는 훨씬 더 작은 기울기도 "
            "지키려고 "
            "65,536에서 시작합니다.",
        ),
        (
            NumberMistake(
                lambda: [8],
                Text(
                    "8 keeps it, but a smaller power does too: float16 rounds to the nearest number.",
                    "8도 되지만 더 작은 수로도 됩니다. float16은 가장 가까운 수로 반올림합니다.",
                ),
            ),
            NumberMistake(
                lambda: [65536],
                Text(
                    "This is where PyTorch's scaler starts; a much smaller power is enough here.",
                    "PyTorch 스케일러의 시작값입니다. 여기서는 훨씬 작은 수로도 됩니다.",
                ),
            ),
            NumberMistake(
                lambda: [2],
                Text(
                    "2e-8 is less than half of the smallest number, 6e-8, and is rounded to 0.",
                    "2e-8은 가장 작은 수 6e-8의 절반보다 작아서 0으로 반올림됩니다.",
                ),
            ),
        ),
        tolerance=0.0,
    ),
)
