"""The cost of a model of any family: the model is built and run on the meta device, where tensors have no numbers.

Parameters, operations and sizes are those of the model itself, so there is no formula per family. Only the scores of
windows and of the sparse and linear mixings of the family ``long`` have formulas: on the meta device they would be
computed in full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from jumok.attention import Cache
from jumok.attention.multihead import AttentionLayer, FourierMixing
from jumok.bilingual_text import Text, Texts
from jumok.errors import ArgumentError
from jumok.layers import FeedForward, GatedFeedForward, LayerNorm, LearnedPositions, RMSNorm
from jumok.layers.recurrent import StateAttention
from jumok.models import Config, Model
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.fusion import Fusion
from jumok.models.gpt import GPT, GPTConfig
from jumok.models.long import Long, LongConfig
from jumok.models.registry import get_family
from jumok.models.rnn_seq2seq import RNNSeq2Seq

from .measurements import PeakMemory

TEXTS = Texts(__file__)
NUMBER_BYTES = 4  # float32
TRAINING_COPIES = 4  # the parameters, their gradients, and the two moments of Adam
DEFAULT_TOKENS = 128  # of a model whose texts may have any length
DEFAULT_NUMBERS = 5
FRAMES_PER_SECOND = 100  # of audio
ROWS_PER_TILE = 1024  # queries of which a mask is evaluated at once
SPARSE_MIXINGS = ("longformer", "bigbird", "window", "blocks")
PART_CLASSES: dict[str, tuple[type[nn.Module], ...]] = {
    "attention": (AttentionLayer, StateAttention, FourierMixing),
    "feed-forward": (FeedForward, GatedFeedForward),
    "norms": (LayerNorm, RMSNorm, nn.LayerNorm),
    "recurrent": (nn.LSTM, nn.LSTMCell),
    "positions": (LearnedPositions,),
    "embedding": (nn.Embedding,),
}
PART_NAMES = {"position_bias": "positions", "output": "output"}  # modules directly in a model


@dataclass(frozen=True)
class ModelInputs:
    """The inputs of one forward pass.

    Attributes:
        tensors: The arguments of the model, on the meta device.
        tokens: The number of tokens of a text, or of numbers; None for images.
    """

    tensors: tuple[Tensor, ...]
    tokens: int | None
    description: Text


@dataclass(frozen=True)
class ModelCost:
    """What a model costs. Sizes are in bytes of float32 numbers; None = not defined, as ``notes`` says.

    Attributes:
        parameters: The parameters by part: "embedding", "positions", "attention", "feed-forward", "norms", "recurrent",
            "output", "other".
        operations: The operations (multiplications and additions of matrix products) of a forward pass by part:
            "projections" and "scores and mixture" of attention, "feed-forward", "recurrent", "logits", "other".
        head_weight_bytes: The attention weights of one head of one layer, the largest if they differ.
        weight_bytes: The attention weights of all heads and layers, if they are kept.
        cache_bytes: The cached keys and values of a decoder, of itself and of the source.
        forward_bytes: The most that the tensors of a forward pass take at one time, without the parameters and with a
            fused attention, which keeps no weights; a GPT computes the logits of the last token only.
        activation_bytes: What the backward pass keeps, with a fused attention.
        training_bytes: Training with Adam: parameters, gradients, two moments and the activations.
        notes: What is not defined or not counted, by field.
    """

    parameters: dict[str, int]
    operations: dict[str, int]
    parameter_bytes: int
    head_weight_bytes: int | None
    weight_bytes: int | None
    cache_bytes: int | None
    forward_bytes: int | None
    activation_bytes: int | None
    training_bytes: int | None
    notes: dict[str, Text]

    @property
    def parameter_count(self) -> int:
        """The number of all parameters."""
        return sum(self.parameters.values())

    @property
    def operation_count(self) -> int:
        """The number of all operations that are counted."""
        return sum(self.operations.values())


def compute_cost(config: Config, tokens: int | None = None, batch: int = 1) -> tuple[ModelCost, ModelInputs]:
    """Compute what a model costs, without memory for its tensors, and return it with the inputs.

    Args:
        tokens: The number of tokens of each text; an encoder-decoder reads as many as it writes. None = the longest
            text of the model, or 128.
        batch: The number of texts or images.

    >>> from jumok.models.vit import ViTConfig
    >>> cost, inputs = compute_cost(ViTConfig())
    >>> cost.parameter_count, inputs.description.english
    (86567656, '1 image(s) of 224 x 224 pixels')
    """
    mixing = config.mixing if isinstance(config, LongConfig) else "full"
    is_sparse = mixing in (*SPARSE_MIXINGS, "performer")
    run_config = config
    if isinstance(config, LongConfig) and is_sparse:  # everything but the scores is as with full attention
        run_config = config.replace(mixing="full")
    if isinstance(config, GPTConfig):
        length = config.length if config.positions == "learned" else max(config.length, tokens or 1)
        run_config = config.replace(window=None, windowed=None, length=length)
    with torch.device("meta"):
        model = get_family(config.family)(run_config).eval()
        parameters = _count_parameters(get_family(config.family)(config) if is_sparse else model)
    inputs = build_inputs(model, tokens, batch)

    operations = _count_operations(model, inputs)
    if isinstance(config, LongConfig) and is_sparse:
        assert inputs.tokens is not None
        operations["scores and mixture"] = _count_sparse_operations(config, inputs.tokens, batch)
    if isinstance(config, GPTConfig) and config.window is not None:
        assert inputs.tokens is not None
        layers = config.layers if config.windowed is None else len(config.windowed)
        skipped = max(0, inputs.tokens - config.window) * layers
        full_count = operations["scores and mixture"]
        operations["scores and mixture"] -= full_count * skipped // (config.layers * inputs.tokens)
    head_weights, weights = _measure_weights(model, inputs)
    cache = _measure_cache(model, inputs)
    notes = _list_notes(model, mixing, weights is None, cache is None)
    parameter_bytes = NUMBER_BYTES * sum(parameters.values())
    activations = None if "activation_bytes" in notes else _measure_activations(model, inputs)
    return ModelCost(
        parameters=parameters,
        operations={part: number for part, number in operations.items() if number},
        parameter_bytes=parameter_bytes,
        head_weight_bytes=head_weights,
        weight_bytes=weights,
        cache_bytes=cache,
        forward_bytes=None if "forward_bytes" in notes else _measure_forward(model, inputs),
        activation_bytes=activations,
        training_bytes=None if activations is None else TRAINING_COPIES * parameter_bytes + activations,
        notes=notes,
    ), inputs


def _find_part(module: nn.Module) -> str | None:
    return next((part for part, classes in PART_CLASSES.items() if isinstance(module, classes)), None)


def _count_parameters(model: Model) -> dict[str, int]:
    counts = dict.fromkeys(("embedding", "positions", "attention", "feed-forward", "norms", "recurrent", "output"), 0)
    counts["other"] = 0
    visited: set[int] = set()

    def visit(module: nn.Module, part: str | None) -> None:
        part = part or _find_part(module)
        for parameter in module.parameters(recurse=False):
            if id(parameter) not in visited:  # a tied output layer has no parameters of its own
                visited.add(id(parameter))
                counts[part or "other"] += parameter.numel()
        for name, child in module.named_children():
            visit(child, PART_NAMES.get(name) if module is model else part)

    visit(model, None)
    return {part: number for part, number in counts.items() if number}


def _count_operations(model: Model, inputs: ModelInputs) -> dict[str, int]:
    """Return the operations of a forward pass by part."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        output = model(*inputs.tensors)
    counts = counter.get_flop_counts()
    operations = dict.fromkeys(("projections", "scores and mixture", "feed-forward", "recurrent", "logits"), 0)
    outermost: list[str] = []
    for name, module in model.named_modules():
        part = _find_part(module)
        if part is None or any(name.startswith(f"{outer}.") for outer in outermost):
            continue
        outermost.append(name)
        for operation, number in counts.get(f"{type(model).__name__}.{name}", {}).items():
            if part == "attention":
                # products of queries and keys, and of weights and values, are batched; projections are not
                is_batched = "bmm" in str(operation)
                operations["scores and mixture" if is_batched else "projections"] += number
            elif part in operations:
                operations[part] += number
    operations["other"] = counter.get_total_flops() - sum(operations.values())
    if output.logits is not None and output.hidden is not None:
        operations["logits"] = min(operations["other"], 2 * output.logits.numel() * output.hidden.shape[-1])
        operations["other"] -= operations["logits"]
    return operations


def _count_sparse_operations(config: LongConfig, tokens: int, batch: int) -> int:
    if config.mixing == "performer":
        maps = 2 * 2 * tokens * config.width * config.features  # of queries and of keys
        state = 2 * tokens * config.features * (config.width + config.heads)  # values, and the sum of the keys
        return batch * config.layers * (maps + 2 * state)
    kinds = [count_allowed_pairs(config, tokens, layer) for layer in range(min(config.layers, 2))]
    pairs = sum(kinds[layer % len(kinds)] for layer in range(config.layers))  # blocks are shifted in every second layer
    return 4 * batch * config.width * pairs


def count_allowed_pairs(config: LongConfig, tokens: int, layer: int = 0) -> int:
    """Return how many pairs of query and key the mask of a layer (from 0) of a sparse model allows."""
    with torch.device("meta"):
        mask = Long(config).build_mask(tokens, layer)
    assert mask is not None
    tiles = (range(start, min(start + ROWS_PER_TILE, tokens)) for start in range(0, tokens, ROWS_PER_TILE))
    return sum(int(mask.dense(tile, range(tokens)).sum()) for tile in tiles)


def _list_tensors(weights: object) -> Iterable[Tensor]:
    if isinstance(weights, Tensor):
        yield weights
    elif isinstance(weights, dict | tuple | list):
        for part in weights.values() if isinstance(weights, dict) else weights:
            yield from _list_tensors(part)


def _measure_weights(model: Model, inputs: ModelInputs) -> tuple[int | None, int | None]:
    if isinstance(model, Long) and model.config.mixing == "fnet":
        return None, None
    with torch.no_grad():
        layers = list(_list_tensors(model(*inputs.tensors, weights=True).weights))
    if not layers:
        return None, None
    return max(layer[0, 0].nbytes for layer in layers), sum(layer.nbytes for layer in layers)


def _measure_cache(model: Model, inputs: ModelInputs) -> int | None:
    cache = Cache()
    with torch.no_grad():
        if isinstance(model, GPT):
            model(*inputs.tensors, cache=cache)
        elif isinstance(model, EncoderDecoder):
            source, target = inputs.tensors
            model.decode(target, model.encode(source), cache=cache)
        else:
            return None
    slots = [slot for slot in (*cache.slots.values(), *cache.sources.values()) if slot.length]
    return sum(slot.key.nbytes + slot.value.nbytes for slot in slots)


class _FusedAttention(TorchFunctionMode):
    """Lets PyTorch use its fused kernel for the CPU on the meta device too, where it would compute all weights."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        return (_attend_fused if func is scaled_dot_product_attention else func)(*args, **kwargs)


def _attend_fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Compute ``scaled_dot_product_attention`` with the kernel that PyTorch chooses on the CPU."""
    needs_gradient = attn_mask is not None and attn_mask.requires_grad
    if dropout_p or needs_gradient or query.shape[-1] != value.shape[-1]:
        with torch._C.DisableTorchFunction():
            return scaled_dot_product_attention(
                query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
            )
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill(~attn_mask, float("-inf"))
    output: Tensor = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, is_causal, attn_mask=attn_mask, scale=scale
    )[0]
    return output


def _measure_forward(model: Model, inputs: ModelInputs) -> int:
    """Return the most bytes that the tensors of a forward pass take at one time."""
    settings: dict[str, Any] = {"last": 1} if isinstance(model, GPT) else {}
    with PeakMemory() as memory, _FusedAttention(), torch.no_grad():
        model(*inputs.tensors, **settings)
    return memory.peak


def _measure_activations(model: Model, inputs: ModelInputs) -> int:
    """Return the bytes of the tensors that the backward pass keeps, without the parameters."""
    parameters = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
    storages: dict[int, torch.UntypedStorage] = {}

    def record(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in parameters:
            storages[storage._cdata] = storage  # kept alive, so that no address is used twice
        return tensor

    model.train()  # dropout keeps its random numbers
    with torch.autograd.graph.saved_tensors_hooks(record, lambda tensor: tensor), _FusedAttention():
        output = model(*inputs.tensors)
    model.eval()
    # the cross-entropy keeps the logarithms of the probabilities
    logits = 0 if output.logits is None else output.logits.nbytes
    return sum(storage.nbytes() for storage in storages.values()) + logits


def _list_notes(model: Model, mixing: str, without_weights: bool, without_cache: bool) -> dict[str, Text]:
    """Return what is not defined or not counted, by field."""
    notes: dict[str, str] = {}
    if without_weights:
        notes |= {"head_weight_bytes": "no_weights", "weight_bytes": "no_weights", "operations": "fourier"}
    if isinstance(model, RNNSeq2Seq):
        notes |= {"cache_bytes": "one_state", "activation_bytes": "kernel"}
    elif without_cache:
        notes["cache_bytes"] = "no_decoder"
    if mixing in (*SPARSE_MIXINGS, "performer"):
        notes |= {"forward_bytes": "backend", "activation_bytes": "backend"}
    if isinstance(model, Fusion):
        notes["operations"] = "passages"
    if mixing in SPARSE_MIXINGS:
        notes["operations"] = "pairs"
    return {field: TEXTS(f"notes.{name}") for field, name in notes.items()}


def build_inputs(model: Model, tokens: int | None, batch: int) -> ModelInputs:
    """Return inputs for a model; the arguments are those of ``compute_cost``."""
    if batch < 1 or (tokens is not None and tokens < 1):
        raise ArgumentError(f"tokens and batch must be at least 1, not {tokens} and {batch}")
    shape = model.source_shape
    source = None if shape is None else torch.zeros(batch, *shape, device="meta")
    if source is not None and not model.is_encoder_decoder:
        if tokens is not None:
            size = " x ".join(map(str, model.image_size or ()))
            raise ArgumentError(f"{model.family} reads images of {size} pixels, not texts; remove --tokens")
        return ModelInputs((source,), None, TEXTS("inputs.image", batch=batch, shape=shape))
    if model.reads == "numbers":
        count = tokens or getattr(model.config, "trained_length", None) or DEFAULT_NUMBERS
        numbers = torch.zeros(batch, count, device="meta")
        # the first input of the decoder is its start vector: the target has one number less
        return ModelInputs((numbers, numbers[:, 1:]), count, TEXTS("inputs.numbers", batch=batch, count=count))

    count = tokens or model.context_length or DEFAULT_TOKENS
    if model.context_length is not None and count > model.context_length:
        raise ArgumentError(f"the model reads at most {model.context_length:,} tokens, not {count:,}")
    text = torch.zeros(batch, count, dtype=torch.long, device="meta")
    if not model.is_encoder_decoder:
        return ModelInputs((text,), count, TEXTS("inputs.text", batch=batch, count=count))
    seconds = shape[1] / FRAMES_PER_SECOND if shape is not None else 0.0
    description = TEXTS(f"inputs.{model.reads} to text", batch=batch, count=count, shape=shape, seconds=seconds)
    return ModelInputs((text if source is None else source, text), count, description)
