"""What each step of the attention formula does, in one sentence, in English and in Korean."""

from __future__ import annotations

from .bilingual_text import Text

EMPTY = Text("", "")

WORD_VECTORS = Text(
    "Each row is the vector of one word: random numbers from a seed, plus the sinusoid of its position.",
    "각 행은 한 단어의 벡터이며, 시드로 뽑은 난수에 위치의 사인파를 더한 값입니다.",
)
PROJECTIONS = Text(
    "A random, untrained projection: it turns word vectors into queries, keys or values.",
    "학습하지 않은 무작위 투영 행렬로, 단어 벡터를 쿼리나 키, 값으로 바꿉니다.",
)
QUERY = Text(
    "Each row is a query: what this position searches for.",
    "각 행은 쿼리로, 그 위치가 무엇을 찾는지 나타냅니다.",
)
KEY = Text(
    "Each row is a key: what this position offers to be found by.",
    "각 행은 키로, 그 위치가 어떤 쿼리에 응답하는지 나타냅니다.",
)
VALUE = Text(
    "Each row is a value: what this position contributes when it is attended to.",
    "각 행은 값으로, 그 위치가 주목받을 때 전달하는 내용입니다.",
)
PRODUCTS = Text(
    "The dot product of each query with each key: the larger it is, the better they match.",
    "쿼리와 키의 내적을 모두 구합니다. 값이 클수록 서로 잘 맞습니다.",
)
SCORES = Text(
    "One score for each query (row) and each key (column).",
    "쿼리(행)와 키(열)의 쌍마다 점수가 하나씩 있습니다.",
)
SCALED = Text(
    "Dividing by the square root of the width keeps the softmax from saturating when vectors are wide.",
    "너비의 제곱근으로 나누어, 벡터의 너비가 클 때 소프트맥스가 한쪽으로 쏠리는 것을 막습니다.",
)
MODEL_SCALE = Text(
    "The model multiplies the products by this factor, so that the softmax does not saturate.",
    "소프트맥스가 한쪽으로 쏠리지 않도록 모델이 내적에 이 계수를 곱합니다.",
)
SOFTCAP = Text(
    "The model bounds its scores smoothly with tanh.",
    "모델이 tanh로 점수의 크기를 부드럽게 제한합니다.",
)
BIASED = Text(
    "The model adds a number that depends on the positions of query and key.",
    "모델이 쿼리와 키의 위치에 따라 정해지는 수를 더합니다.",
)
MASKED = Text(
    "A dot marks a key that the query may not attend to: its score becomes minus infinity.",
    "점(.)은 쿼리가 참조할 수 없는 키를 나타내며, 그 점수는 음의 무한대가 됩니다.",
)
WEIGHTS = Text(
    "The exponentials of each row, divided by their sum: positive weights that sum to 1.",
    "행마다 지수를 취해 그 합으로 나누면, 합이 1인 양수 가중치가 됩니다.",
)
SINK_WEIGHTS = Text(
    "The exponentials of each row, divided by their sum and that of an attention sink: the rows sum to less than 1.",
    "행마다 지수를 취해 어텐션 싱크까지 포함한 합으로 나누므로, 행의 합은 1보다 작습니다.",
)
FIXED_WEIGHTS = Text(
    "The weights of the three values; they sum to 1.",
    "값 세 개에 대한 가중치이며 합은 1입니다.",
)
PARTS = Text(
    "Each value is multiplied by its weight.",
    "값마다 해당하는 가중치를 곱합니다.",
)
OUTPUT = Text(
    "The output for each query: the sum of the values, each multiplied by its weight.",
    "쿼리마다 값에 가중치를 곱해 더한 것이 출력입니다.",
)
HEAD_OUTPUT = Text(
    "This head's output: the sum of its values, each multiplied by its weight.",
    "값에 가중치를 곱해 더한 것이 이 헤드의 출력입니다.",
)
CONCATENATED = Text(
    "The outputs of all heads, side by side, have the width of the input again.",
    "모든 헤드의 출력을 옆으로 이어 붙이면 다시 입력과 같은 너비가 됩니다.",
)
PROJECTED = Text(
    "The output projection, random here, mixes what the heads found; input and output have the same shape.",
    "출력 투영(여기서는 무작위)이 헤드들의 결과를 섞습니다. 입력과 출력의 모양은 같습니다.",
)
RANDOM_REMARK = Text(
    "The vectors and projections are random: shapes and sums are right, but the weights carry no meaning.",
    "벡터와 투영 행렬이 무작위이므로 모양과 합은 맞지만 가중치에 의미는 없습니다.",
)

# the same steps for one query, as the page shows them
ONE_QUERY = Text(
    "The query: what this position searches for.",
    "쿼리입니다. 이 위치가 무엇을 찾는지 나타냅니다.",
)
ONE_KEY = Text(
    "Each key says what its position offers to be found by.",
    "키는 그 위치가 어떤 쿼리에 응답하는지 나타냅니다.",
)
ONE_PRODUCT = Text(
    "The dot product of the query with each key: the larger it is, the better they match.",
    "쿼리와 각 키의 내적입니다. 값이 클수록 서로 잘 맞습니다.",
)
NO_BIAS = Text("This attention adds no bias.", "이 어텐션은 편향을 더하지 않습니다.")
ONE_MASK = Text(
    "A key that the query may not attend to gets a score of minus infinity, so its weight is 0.",
    "쿼리가 참조할 수 없는 키의 점수는 음의 무한대가 되므로 가중치는 0입니다.",
)
NO_MASK = Text("No mask: the query may attend to every key.", "마스크가 없어 쿼리가 모든 키를 참조할 수 있습니다.")
ONE_SOFTMAX = Text(
    "The exponential of each score, divided by the sum of all of them: positive weights that sum to 1.",
    "점수마다 지수를 취해 전체 합으로 나누면, 합이 1인 양수 가중치가 됩니다.",
)
ONE_SINK_SOFTMAX = Text(
    "The exponential of each score, divided by their sum and an attention sink: the weights sum to less than 1.",
    "점수마다 지수를 취해 어텐션 싱크까지 포함한 합으로 나누므로, 가중치의 합은 1보다 작습니다.",
)
ONE_VALUE = Text(
    "Each value is multiplied by the weight of its key.",
    "값마다 해당하는 키의 가중치를 곱합니다.",
)
ONE_SUM = Text(
    "The sum of the weighted values is the output of this head at this position.",
    "가중치를 곱한 값을 모두 더하면 이 위치에서 이 헤드의 출력이 됩니다.",
)
