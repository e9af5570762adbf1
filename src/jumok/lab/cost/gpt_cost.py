"""The cost of a GPT by formulas: parameters, operations of a forward pass, and memory."""

from __future__ import annotations

from dataclasses import dataclass

from jumok.errors import ArgumentError
from jumok.models.gpt import GPTConfig

NUMBER_BYTES = 4  # float32
TRAINING_COPIES = 4  # the parameters, their gradients, and the two moments of Adam


@dataclass(frozen=True)
class GPTCost:
    """What a GPT costs. Sizes are in bytes of float32 numbers; an operation is a multiplication or an addition.

    Attributes:
        parameters: The parameters by part: "embedding", "positions", "attention", "feed-forward", "norms", "output".
        operations: The operations of a forward pass by part: "projections", "scores and mixture", "feed-forward",
            "logits". Only matrix products are counted, as ``torch.utils.flop_counter`` does.
        weight_bytes: The attention weights of all heads and layers, if they are kept.
        activation_bytes: What the backward pass keeps with a fused attention, which keeps no weights; a model with
            ALiBi keeps the biases of all heads and layers, and one with T5's learned biases the weights.
        training_bytes: Training with Adam: parameters, gradients, two moments and the activations.
    """

    parameters: dict[str, int]
    operations: dict[str, int]
    parameter_bytes: int
    head_weight_bytes: int
    weight_bytes: int
    cache_bytes: int
    activation_bytes: int
    training_bytes: int

    @property
    def parameter_count(self) -> int:
        """The number of all parameters."""
        return sum(self.parameters.values())

    @property
    def operation_count(self) -> int:
        """The number of all operations."""
        return sum(self.operations.values())


def compute_gpt_cost(config: GPTConfig, tokens: int, batch: int = 1) -> GPTCost:
    """Compute what a GPT costs, without building it.

    Raises:
        ArgumentError: If ``tokens`` or ``batch`` is not positive, or exceeds the context length of the model.

    >>> cost = compute_gpt_cost(GPTConfig(), 1024)
    >>> cost.parameter_count, cost.head_weight_bytes
    (124439808, 4194304)
    """
    if tokens < 1 or batch < 1:
        raise ArgumentError(f"tokens and batch must be at least 1, not {tokens} and {batch}")
    if config.positions == "learned" and tokens > config.length:
        raise ArgumentError(f"the model has {config.length:,} learned positions and cannot read {tokens:,} tokens")

    parameters = _count_parameters(config)
    rows = batch * tokens
    head_width, groups = _head_width(config), config.groups or config.heads
    queries, keys = config.heads * head_width, groups * head_width
    windowed = 0 if config.window is None else config.layers if config.windowed is None else len(config.windowed)
    pairs = tokens * ((config.layers - windowed) * tokens + windowed * min(tokens, config.window or tokens))
    inner = (3 if config.feedforward == "gated" else 2) * config.width * config.hidden
    operations = {
        "projections": 2 * rows * config.layers * config.width * (2 * queries + 2 * keys),
        "scores and mixture": 4 * batch * queries * pairs,
        "feed-forward": 2 * rows * config.layers * inner,
        "logits": 2 * rows * config.width * config.vocabulary,
    }
    parameter_bytes = NUMBER_BYTES * sum(parameters.values())
    activation_bytes = NUMBER_BYTES * rows * _count_activations(config) + _compute_bias_bytes(config, tokens, batch)
    head_weight_bytes = NUMBER_BYTES * tokens**2
    return GPTCost(
        parameters=parameters,
        operations=operations,
        parameter_bytes=parameter_bytes,
        head_weight_bytes=head_weight_bytes,
        weight_bytes=head_weight_bytes * batch * config.heads * config.layers,
        cache_bytes=NUMBER_BYTES * 2 * rows * config.layers * keys,
        activation_bytes=activation_bytes,
        training_bytes=TRAINING_COPIES * parameter_bytes + activation_bytes,
    )


def _head_width(config: GPTConfig) -> int:
    return config.head_width or config.width // config.heads


def _count_parameters(config: GPTConfig) -> dict[str, int]:
    width, hidden = config.width, config.hidden
    queries = config.heads * _head_width(config)
    keys = (config.groups or config.heads) * _head_width(config)

    attention = width * (queries + 2 * keys) + queries * width
    attention += (queries + 2 * keys) * config.attention_bias + width * config.output_bias
    is_gated = config.feedforward == "gated"
    feedforward = (3 if is_gated else 2) * width * hidden
    feedforward += ((2 if is_gated else 1) * hidden + width) * config.feedforward_bias
    norm = width * (2 if config.norm == "layer" else 1)
    return {
        "embedding": config.vocabulary * width,
        "positions": _count_position_parameters(config),
        "attention": config.layers * attention,
        "feed-forward": config.layers * feedforward,
        "norms": (2 * config.layers + 1) * norm,
        "output": 0 if config.tied else config.vocabulary * width,
    }


def _count_position_parameters(config: GPTConfig) -> int:
    if config.positions == "learned":
        return config.length * config.width
    return config.buckets * config.heads if config.positions == "t5" else 0


def _count_activations(config: GPTConfig) -> int:
    """Return how many numbers per token the backward pass keeps: the inputs of every operation, without dropout."""
    width, hidden = config.width, config.hidden
    queries = config.heads * _head_width(config)
    keys = (config.groups or config.heads) * _head_width(config)

    # LayerNorm keeps its input, mean and deviation, and the next layer its output; RMSNorm also the normalised input
    norm = 2 * width + 2 if config.norm == "layer" else 3 * width + 1
    attention = (queries + 2 * keys) + queries + config.heads  # query, key and value; output; row log-sum-exp
    if config.positions == "rotary":  # rotated queries and keys, and a copy of the output
        attention += queries + keys + queries
    feedforward = (4 if config.feedforward == "gated" else 2) * hidden
    return config.layers * (2 * norm + attention + feedforward) + norm + config.vocabulary


def _compute_bias_bytes(config: GPTConfig, tokens: int, batch: int) -> int:
    """Return what the backward pass keeps because of a bias on the scores: tables [head, query, key] in every layer."""
    cells = config.layers * tokens**2
    if config.positions == "alibi":  # the biases, which are equal for all texts
        return NUMBER_BYTES * config.heads * cells
    if config.positions == "t5":  # the fused kernel has no gradients for a bias: the weights, and buckets as int64
        return (NUMBER_BYTES * batch * config.heads + 8) * cells
    return 0
