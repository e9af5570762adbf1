"""The exercises of the page on attention for vision (D1), one for each section."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from jumok.attention import MultiHead, attend, mask
from jumok.attention.projection import split_heads
from jumok.checkpoint import load
from jumok.lab.bilingual_text import Text
from jumok.lens import Lens, effect
from jumok.tasks.labelled_input import prepare_input

from .exercise import Exercise, NumberExercise, NumberMistake, Numbers, WordExercise
from .program_exercise import ProgramExercise, ProgramMistake

SOURCE_SENTENCE = "나는 오늘 책을 읽는다"
PRODUCTS = (32.0, 16.0, 0.0)  # dot products of a query with three keys of width 64
REPEATING_TEXT = "Mary gave John a book; Mary"


def _find_highlighted_token() -> Sequence[str]:
    """Return the Korean token that the translator's head attends to most when the next word is "today"."""
    translator = load("translator")
    labelled = prepare_input(translator, SOURCE_SENTENCE)
    with Lens(translator) as lens:
        capture = lens.run(*labelled.inputs)
    row = labelled.target.index("today") - 1
    position = int(capture.weights("decoder.1.cross", 2)[row].argmax())
    return (labelled.source[position], f"{labelled.source[position]}[{position}]")


def _measure_cross_attention_shape() -> Numbers:
    attention = MultiHead(64, 4)
    patches, words = torch.zeros(1, 16, 64), torch.zeros(1, 5, 64)
    _, weights = attention(words, patches, weights=True)
    return list(weights.shape)


def _weight_products(divisor: float) -> Numbers:
    return (torch.tensor(PRODUCTS) / divisor).softmax(-1).tolist()


def _attend_to_inverted_patch(inverted: bool, scaled: bool = True) -> Numbers:
    """Return the weights of the first patch of the page's image."""
    across = (torch.arange(8) % 2 - 0.5)[:, None].expand(8, 8)
    last = -across if inverted else across
    patches = torch.stack([across, across.T, torch.zeros(8, 8), last]).reshape(1, 1, 4, 64)
    queries = patches if scaled else patches * 64**0.5
    _, weights = attend(queries, patches, patches, weights=True)
    return weights[0, 0, 0].tolist()


def _compute_swin_ratio() -> Numbers:
    side, window = 56, 7
    first_patch = mask.blocks((window, window), grid=(side, side)).dense([0], side**2)
    return [side**2 / int(first_patch.sum())]


def _find_most_important_head() -> Numbers:
    first = effect(load("tiny"), REPEATING_TEXT)[0]
    return [int(first.layer), first.head]


def _attend_in_heads(q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
    output = attend(*(split_heads(tensor, heads) for tensor in (q, k, v)))
    return output.transpose(1, 2).flatten(2)


def _attend_in_one_head(q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
    return _attend_in_heads(q, k, v, 1)


def _scale_by_full_width(q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
    return _attend_in_heads(q / heads**0.5, k, v, heads)


def _split_length(q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
    batch, length, width = q.shape
    parts = (tensor.reshape(batch, heads, length, width // heads) for tensor in (q, k, v))
    return attend(*parts).reshape(batch, length, width)


def _join_without_transpose(q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
    output = attend(*(split_heads(tensor, heads) for tensor in (q, k, v)))
    return output.reshape(q.shape)


def _compare_heads_of_a_patch(q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
    batch, length, width = q.shape
    parts = (tensor.view(batch, length, heads, width // heads) for tensor in (q, k, v))
    return attend(*parts).flatten(2)


def _create_head_calls() -> list[tuple[Tensor, Tensor, Tensor, int]]:
    generator = torch.Generator().manual_seed(0)
    calls = []
    for batch, length, width, heads in ((1, 4, 6, 2), (2, 5, 21, 3)):
        q, k, v = torch.randn(3, batch, length, width, generator=generator)
        calls.append((q, k, v, heads))
    return calls


VISION_EXERCISES: tuple[Exercise, ...] = (
    WordExercise(
        "d1-1",
        Text(
            'The model translator turns "나는 오늘 책을 읽는다" into "I read a book today". Which Korean token does '
            'head 2 of decoder.1.cross highlight when the next word to write is "today"? Use jumok look; one word.',
            '모델 translator는 "나는 오늘 책을 읽는다"를 "I read a book today"로 옮깁니다. 다음에 쓸 단어가 '
            '"today"일 때 decoder.1.cross의 헤드 2는 한국어 토큰 가운데 무엇을 강조합니까? jumok look을 쓰고, 단어 '
            "하나로 답하십시오.",
        ),
        _find_highlighted_token,
        Text(
            'A row is the last word that was read, so "today" is written from the row "book", and that row attends '
            "to 오늘 (today).",
            '행은 마지막으로 읽은 단어입니다. "today"는 행 "book"에서 쓰이고, 그 행은 오늘을 봅니다.',
        ),
        (
            (
                "책",
                Text(
                    '책 (book) is highlighted in the row "a", when the next word is "book". The row "book" comes one '
                    "later.",
                    '책은 다음 단어가 "book"인 행 "a"에서 강조됩니다. 그다음 행인 "book"을 보십시오.',
                ),
            ),
            (
                "나",
                Text(
                    'The row "today" shows where the model looks after it has written "today". Look one row earlier.',
                    '행 "today"는 "today"를 쓴 다음에 보는 곳입니다. 한 행 앞을 보십시오.',
                ),
            ),
            (
                "##는",
                Text(
                    'The row "today" is the one in which the sentence ends: "today" has been written already. Look '
                    "one row earlier.",
                    '행 "today"는 이미 "today"를 쓰고 문장을 끝내는 행입니다. 한 행 앞을 보십시오.',
                ),
            ),
        ),
    ),
    NumberExercise(
        "d1-2",
        Text(
            "An attention with 4 heads reads 16 patches. Now 5 words of a caption attend to these 16 patches: the "
            "queries come from the words, keys and values from the patches. What is the shape of the weights, with "
            "a batch of 1? Four numbers.",
            "헤드가 4개인 어텐션이 패치 16개를 읽습니다. 이번에는 캡션의 단어 5개가 이 패치 16개를 봅니다. 쿼리는 "
            "단어에서, 키와 값은 패치에서 옵니다. 배치가 1일 때 가중치의 모양은 무엇입니까? 수 네 개를 쓰십시오.",
        ),
        _measure_cross_attention_shape,
        Text(
            "batch, head, query, key: each of the 5 words has a row of 16 weights. In self-attention both sides are "
            "the patches, and the table is 16 x 16.",
            "배치, 헤드, 쿼리, 키입니다. 단어마다 가중치 16개인 행이 하나씩 있습니다. 셀프 어텐션에서는 양쪽이 모두 "
            "패치이므로 표가 16 x 16입니다.",
        ),
        (
            NumberMistake(
                lambda: [1, 4, 16, 16],
                Text(
                    "This is self-attention of the patches; here the words ask.",
                    "패치끼리의 셀프 어텐션입니다. 여기서는 단어가 묻습니다.",
                ),
            ),
            NumberMistake(
                lambda: [1, 4, 16, 5],
                Text(
                    "Rows are queries and columns are keys; here the words are the queries.",
                    "행이 쿼리이고 열이 키입니다. 여기서는 단어가 쿼리입니다.",
                ),
            ),
            NumberMistake(
                lambda: [1, 4, 5, 5],
                Text(
                    "This is self-attention of the words; the keys come from the patches.",
                    "단어끼리의 셀프 어텐션입니다. 키는 패치에서 옵니다.",
                ),
            ),
        ),
        tolerance=0.0,
    ),
    NumberExercise(
        "d1-3",
        Text(
            "The dot products of a query with three keys of width 64 are 32, 16 and 0. What are the three weights? "
            "At least two decimals.",
            "너비가 64인 키 세 개와 쿼리의 내적이 32, 16, 0입니다. 세 가중치는 얼마입니까? 소수 둘째 자리까지 "
            "쓰십시오.",
        ),
        lambda: _weight_products(64**0.5),
        Text(
            "32, 16 and 0 become 4, 2 and 0 when they are divided by 8, and the second and third key keep some weight.",
            "8로 나누면 4, 2, 0이 되고, 둘째와 셋째 키에도 가중치가 남습니다.",
        ),
        (
            NumberMistake(
                lambda: _weight_products(1.0),
                Text(
                    "This is the softmax of the plain products: one key takes everything. Divide by sqrt(64) first.",
                    "내적에 그대로 소프트맥스를 적용했습니다. 키 하나가 전부 가져갑니다. 먼저 sqrt(64)로 나누십시오.",
                ),
            ),
            NumberMistake(
                lambda: _weight_products(64.0),
                Text(
                    "You divided by 64; the volume knob is its square root, 8.",
                    "64로 나누었습니다. 제곱근인 8로 나누어야 합니다.",
                ),
            ),
            NumberMistake(
                lambda: [32 / 48, 16 / 48, 0],
                Text(
                    "These are shares of the sum; the softmax takes the exponentials first.",
                    "합에 대한 비율입니다. 소프트맥스는 먼저 지수를 취합니다.",
                ),
            ),
        ),
    ),
    ProgramExercise(
        "d1-4",
        Text(
            "Write a file with a function multi_head_attention(query, key, value, heads) for tensors [batch, length, "
            "width] that are projected already. It splits the width into heads, attends in every head, and returns "
            "the outputs of the heads side by side, [batch, length, width].",
            "함수 multi_head_attention(query, key, value, heads)가 있는 파일을 작성하십시오. 이미 투영한 텐서 [배치, "
            "길이, 너비]를 받아 너비를 헤드로 나누고, 헤드마다 어텐션을 계산하고, 헤드의 출력을 나란히 이은 [배치, "
            "길이, 너비]를 돌려줍니다.",
        ),
        "multi_head_attention",
        _attend_in_heads,
        _create_head_calls,
        Text(
            "The output equals that of split, attend() and concatenate; only the output projection is missing.",
            "나누고, attend()를 부르고, 이어 붙인 결과와 같습니다. 출력 투영만 더하면 멀티 헤드 어텐션입니다.",
        ),
        (
            ProgramMistake(
                _attend_in_one_head,
                Text(
                    "This is one head over the full width; split the width first.",
                    "너비 전체를 쓰는 헤드 하나입니다. 먼저 너비를 나누십시오.",
                ),
            ),
            ProgramMistake(
                _scale_by_full_width,
                Text(
                    "The scores are divided by the square root of the full width; a head is only width / heads wide.",
                    "점수를 전체 너비의 제곱근으로 나누었습니다. 헤드의 너비는 너비 / 헤드 수입니다.",
                ),
            ),
            ProgramMistake(
                _split_length,
                Text(
                    "view(batch, heads, length, ...) cuts across the positions: a head gets parts of other "
                    "positions. Use view(batch, length, heads, ...) and transpose(1, 2).",
                    "view(배치, 헤드, 길이, ...)는 위치를 가로질러 자르므로 헤드에 다른 위치의 조각이 섞입니다. "
                    "view(배치, 길이, 헤드, ...) 다음에 transpose(1, 2)를 쓰십시오.",
                ),
            ),
            ProgramMistake(
                _join_without_transpose,
                Text(
                    "Each head attends correctly, but the heads are joined in the wrong order: transpose(1, 2) "
                    "before the reshape.",
                    "헤드별 계산은 맞지만 이어 붙이는 순서가 틀렸습니다. reshape 전에 transpose(1, 2)가 필요합니다.",
                ),
            ),
            ProgramMistake(
                _compare_heads_of_a_patch,
                Text(
                    "The transpose is missing: the heads of one position attend to each other instead of the "
                    "positions of one head.",
                    "전치가 빠졌습니다. 한 헤드의 위치들이 아니라 한 위치의 헤드들이 서로를 봅니다.",
                ),
            ),
        ),
    ),
    NumberExercise(
        "d1-5",
        Text(
            "Invert the fourth patch of the image, so that black and white change places (all its numbers times -1). "
            "What are the four weights of the first patch now? At least two decimals.",
            "이미지의 넷째 패치에서 흑백을 뒤집습니다(모든 수에 -1을 곱합니다). 이제 첫째 패치의 네 가중치는 "
            "얼마입니까? 소수 둘째 자리까지 쓰십시오.",
        ),
        lambda: _attend_to_inverted_patch(inverted=True),
        Text(
            "The scores are 2, 0, 0 and -2. A plain dot product finds equal patches, not similar ones: the inverted "
            "stripes now get less than the blank patch. The projections of a trained layer can learn that both are "
            "stripes.",
            "점수는 2, 0, 0, -2입니다. 단순한 내적은 비슷한 패치가 아니라 같은 패치를 찾으므로, 뒤집힌 줄무늬의 "
            "가중치는 빈 패치보다도 작습니다. 학습한 층의 투영은 둘 다 줄무늬라는 것을 배울 수 있습니다.",
        ),
        (
            NumberMistake(
                lambda: _attend_to_inverted_patch(inverted=False),
                Text(
                    "These are the weights before the inversion; the sign of a dot product matters.",
                    "뒤집기 전의 가중치입니다. 내적의 부호가 바뀝니다.",
                ),
            ),
            NumberMistake(
                lambda: _attend_to_inverted_patch(inverted=True, scaled=False),
                Text(
                    "The division by sqrt(64) = 8 is missing.",
                    "sqrt(64) = 8로 나누지 않았습니다.",
                ),
            ),
        ),
    ),
    NumberExercise(
        "d1-6",
        Text(
            "Swin's first layers read 56 x 56 patches in windows of 7 x 7. How many times fewer cells does this "
            "allow than full attention over all patches?",
            "Swin의 첫 층들은 패치 56 x 56개를 7 x 7 창으로 나누어 읽습니다. 모든 패치를 보는 전체 어텐션이 허용하는 "
            "칸은 이 창들이 허용하는 칸의 몇 배입니까?",
        ),
        _compute_swin_ratio,
        Text(
            "Each of the 3,136 patches attends to the 49 of its window instead of all 3,136: there are 64 windows. "
            "With twice the patches, full attention has four times the cells, the windows twice.",
            "패치 3,136개는 각각 3,136개 전부가 아니라 창 안의 49개만 봅니다. 창은 64개입니다. 패치가 두 배가 되면 "
            "전체 "
            "어텐션의 칸은 네 배, 창의 칸은 두 배가 됩니다.",
        ),
        (
            NumberMistake(
                lambda: [56 / 7],
                Text(
                    "56 / 7 counts the windows of one side; an image has two sides.",
                    "56 / 7은 한 변에 있는 창의 수입니다. 이미지에는 변이 둘입니다.",
                ),
            ),
            NumberMistake(
                lambda: [7 * 7],
                Text(
                    "This is the number of patches that each patch attends to; divide 56 x 56 by it.",
                    "각 패치가 보는 패치의 수입니다. 56 x 56을 이 수로 나누십시오.",
                ),
            ),
            NumberMistake(
                lambda: [(56 / 7) ** 4],
                Text(
                    "Only the keys become fewer: every one of the 3,136 patches is still a query.",
                    "줄어드는 것은 키뿐입니다. 패치 3,136개는 모두 여전히 쿼리입니다.",
                ),
            ),
        ),
        tolerance=0.0,
    ),
    NumberExercise(
        "d1-7",
        Text(
            'The model tiny reads "Mary gave John a book; Mary". At the last letter, head 1.0 has the largest '
            "weight, 0.98. Which head matters most for the prediction? Use jumok effect; its layer and its head, two "
            "numbers.",
            '모델 tiny가 "Mary gave John a book; Mary"를 읽습니다. 마지막 글자에서 가중치가 가장 큰 것은 헤드 1.0의 '
            "0.98입니다. 예측에 가장 중요한 헤드는 어느 것입니까? jumok effect를 쓰고, 층과 헤드를 수 두 개로 "
            "쓰십시오.",
        ),
        _find_most_important_head,
        Text(
            "Without head 0.0 the log-probability falls by 3.32, without head 1.0 by 2.62. Head 0.0 reads the letter "
            "before each letter; without it, the weight 0.98 of head 1.0 falls to 0.15.",
            "헤드 0.0이 없으면 로그 확률이 3.32, 헤드 1.0이 없으면 2.62 떨어집니다. 헤드 0.0은 글자마다 바로 앞 "
            "글자를 읽으며, 그것이 없으면 헤드 1.0의 가중치 0.98이 0.15로 떨어집니다.",
        ),
        (
            NumberMistake(
                lambda: [1, 0],
                Text(
                    "This head has the largest weight, but not the largest effect.",
                    "가중치가 가장 큰 헤드이지만, 효과가 가장 큰 헤드는 아닙니다.",
                ),
            ),
            NumberMistake(
                lambda: [1, 1],
                Text(
                    "Without this head nothing changes: its effect is 0.",
                    "이 헤드를 없애도 아무것도 달라지지 않습니다. 효과가 0입니다.",
                ),
            ),
            NumberMistake(
                lambda: [0.0],
                Text(
                    "Head 0.0 is the one; write its layer and its head as two numbers: 0 0.",
                    "헤드 0.0이 맞습니다. 층과 헤드를 수 두 개로 쓰십시오: 0 0.",
                ),
            ),
        ),
        tolerance=0.0,
    ),
)
