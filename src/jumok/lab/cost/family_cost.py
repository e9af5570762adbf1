"""The cost of a model of any family: the model is built and run on the meta device, where tensors have no numbers.

Parameters, operations and sizes are those of the model itself, so there is no formula per family. Only the mixings of
the family ``long`` that avoid n x n scores have formulas: on the meta device they would be computed in full.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from jumok.attention import Cache
from jumok.attention.fourier import FourierMixing
from jumok.attention.multihead import AttentionLayer
from jumok.errors import ArgumentError
from jumok.lab.bilingual_text import Text
from jumok.layers import FeedForward, GatedFeedForward, LayerNorm, RMSNorm
from jumok.layers.recurrent import StateAttention
from jumok.models import Config, Model
from jumok.models.captioner import Captioner
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.fusion import Fusion
from jumok.models.long import Long, LongConfig
from jumok.models.numeric import Numeric
from jumok.models.registry import get_family
from jumok.models.rnn_seq2seq import RNNSeq2Seq
from jumok.models.speech import Speech

from .gpt_cost import NUMBER_BYTES, TRAINING_COPIES
from .measurements import PeakMemory

DEFAULT_TOKENS = 128  # of a model whose texts may have any length
DEFAULT_NUMBERS = 5
ROWS_PER_TILE = 1024  # queries of which a mask is evaluated at once
SPARSE_MIXINGS = ("longformer", "bigbird", "window", "blocks")
PART_CLASSES: dict[str, tuple[type[nn.Module], ...]] = {
    "attention": (AttentionLayer, StateAttention, FourierMixing),
    "feed-forward": (FeedForward, GatedFeedForward),
    "norms": (LayerNorm, RMSNorm, nn.LayerNorm),
    "recurrent": (nn.LSTM, nn.LSTMCell),
    "embedding": (nn.Embedding,),
}


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
class FamilyCost:
    """What a model costs. Sizes are in bytes of float32 numbers; None = not defined, as ``notes`` says.

    Attributes:
        parameters: The parameters by part: "embedding", "attention", "feed-forward", "norms", "recurrent", "other".
        operations: The operations of a forward pass by part: "projections" and "scores and mixture" of attention,
            "feed-forward", "recurrent", "other". Only matrix products are counted.
        head_weight_bytes: The attention weights of one head of one layer, the largest if they differ.
        weight_bytes: The attention weights of all heads and layers, if they are kept.
        cache_bytes: The cached keys and values of a decoder, of itself and of the source.
        forward_bytes: The most that the tensors of a forward pass take at one time, without the parameters.
        activation_bytes: What the backward pass keeps if the attention weights are kept.
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
    notes: dict[str, Text]

    @property
    def parameter_count(self) -> int:
        """The number of all parameters."""
        return sum(self.parameters.values())

    @property
    def operation_count(self) -> int:
        """The number of all operations that are counted."""
        return sum(self.operations.values())

    @property
    def training_bytes(self) -> int | None:
        """Training with Adam: parameters, gradients, two moments and the activations."""
        if self.activation_bytes is None:
            return None
        return TRAINING_COPIES * self.parameter_bytes + self.activation_bytes


def compute_family_cost(config: Config, tokens: int | None = None, batch: int = 1) -> tuple[FamilyCost, ModelInputs]:
    """Compute what a model costs, without memory for its tensors, and return it with the inputs.

    Args:
        tokens: The number of tokens of each text; None = the longest text of the model, or 128.
        batch: The number of texts or images.

    >>> from jumok.models.vit import ViTConfig
    >>> cost, inputs = compute_family_cost(ViTConfig())
    >>> cost.parameter_count, inputs.description.english
    (86567656, '1 image(s) of 224 x 224 pixels')
    """
    mixing = config.mixing if isinstance(config, LongConfig) else "full"
    is_sparse = mixing in (*SPARSE_MIXINGS, "performer")
    with torch.device("meta"):
        counted = get_family(config.family)(config).eval()
        # sparse and linear attention: everything but the scores is as with full attention
        model = get_family(config.family)(config.replace(mixing="full")).eval() if is_sparse else counted
    inputs = build_inputs(model, tokens, batch)

    operations, peak = _run_forward(model, inputs)
    if isinstance(config, LongConfig) and is_sparse:
        assert inputs.tokens is not None
        operations["scores and mixture"] = _count_sparse_operations(config, inputs.tokens, batch)
    parameters = _count_parameters(counted)
    head_weights, weights = _measure_weights(model, inputs)
    cache = _measure_cache(model, inputs)
    notes = _list_notes(model, mixing, weights is None, cache is None)
    return FamilyCost(
        parameters=parameters,
        operations={part: number for part, number in operations.items() if number},
        parameter_bytes=NUMBER_BYTES * sum(parameters.values()),
        head_weight_bytes=head_weights,
        weight_bytes=weights,
        cache_bytes=cache,
        forward_bytes=None if "forward_bytes" in notes else peak,
        activation_bytes=None if "activation_bytes" in notes else _measure_activations(model, inputs),
        notes=notes,
    ), inputs


def _find_part(module: nn.Module) -> str | None:
    for part, classes in PART_CLASSES.items():
        if isinstance(module, classes):
            return part
    return None


def _count_parameters(model: Model) -> dict[str, int]:
    counts = dict.fromkeys((*PART_CLASSES, "other"), 0)
    visited: set[int] = set()

    def visit(module: nn.Module, part: str | None) -> None:
        part = part or _find_part(module)
        for parameter in module.parameters(recurse=False):
            if id(parameter) not in visited:  # a tied output layer has no parameters of its own
                visited.add(id(parameter))
                counts[part or "other"] += parameter.numel()
        for child in module.children():
            visit(child, part)

    visit(model, None)
    return {part: number for part, number in counts.items() if number}


def _run_forward(model: Model, inputs: ModelInputs) -> tuple[dict[str, int], int]:
    """Return the operations of a forward pass by part, and the most that its tensors take at one time in bytes."""
    with PeakMemory() as memory, FlopCounterMode(display=False) as counter, torch.no_grad():
        model(*inputs.tensors)
    counts = counter.get_flop_counts()
    operations = {"projections": 0, "scores and mixture": 0, "feed-forward": 0, "recurrent": 0}
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
    return operations, memory.peak


def _count_sparse_operations(config: LongConfig, tokens: int, batch: int) -> int:
    if config.mixing == "performer":
        maps = 2 * 2 * tokens * config.width * config.features  # of queries and of keys
        state = 2 * tokens * config.features * (config.width + config.heads)  # values, and the sum of the keys
        return batch * config.layers * (maps + 2 * state)
    kinds = [count_allowed_pairs(config, tokens, layer) for layer in range(min(config.layers, 2))]
    pairs = sum(kinds[layer % len(kinds)] for layer in range(config.layers))  # blocks are shifted in every second layer
    return 4 * batch * config.width * pairs


def count_allowed_pairs(config: LongConfig, tokens: int, layer: int = 0) -> int:
    """Return how many pairs of query and key the mask of a layer of a sparse model allows.

    Args:
        layer: The layer, from 0.
    """
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
    if not isinstance(model, EncoderDecoder):
        return None
    source, target = inputs.tensors
    cache = Cache()
    with torch.no_grad():
        model.decode(target, model.encode(source), cache=cache)
    slots = [slot for slot in (*cache.slots.values(), *cache.sources.values()) if slot.length]
    return sum(slot.key.nbytes + slot.value.nbytes for slot in slots)


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
    with torch.autograd.graph.saved_tensors_hooks(record, lambda tensor: tensor):
        output = model(*inputs.tensors)
    model.eval()
    if output.logits is not None:
        # the cross-entropy keeps the logarithms of the probabilities
        return sum(storage.nbytes() for storage in storages.values()) + output.logits.nbytes
    return sum(storage.nbytes() for storage in storages.values())


def _list_notes(model: Model, mixing: str, without_weights: bool, without_cache: bool) -> dict[str, Text]:
    """Return what is not defined or not counted."""
    notes: dict[str, Text] = {}
    if without_weights:
        no_weights = Text("none: a Fourier transform mixes the tokens", "없음: 푸리에 변환이 토큰을 섞음")
        notes |= {"head_weight_bytes": no_weights, "weight_bytes": no_weights}
        notes["operations"] = Text(
            "The Fourier transform is not counted: it needs O(n log n) operations, and has no matrix products.",
            "푸리에 변환은 세지 않았습니다. 행렬곱이 아니며 O(n log n)번의 연산이 필요합니다.",
        )
    if isinstance(model, RNNSeq2Seq):
        notes["cache_bytes"] = Text("none: an LSTM keeps one state", "없음: LSTM은 상태 하나만 보관")
        notes["activation_bytes"] = Text("not defined: the LSTM kernel decides", "정의되지 않음: LSTM 커널에 따라 다름")
    elif without_cache:
        notes["cache_bytes"] = Text("none: the model has no decoder", "없음: 디코더가 없는 모델")
    if mixing in (*SPARSE_MIXINGS, "performer"):
        undefined = Text("not defined: the backend decides", "정의되지 않음: 백엔드에 따라 다름")
        notes |= {"forward_bytes": undefined, "activation_bytes": undefined}
    if isinstance(model, Fusion):
        notes["operations"] = Text(
            "The source is counted as one passage; with several, the encoder computes scores inside each of them only.",
            "소스를 구절 하나로 보고 세었습니다. 구절이 여럿이면 인코더는 각 구절 안의 점수만 계산합니다.",
        )
    if mixing in SPARSE_MIXINGS:
        notes["operations"] = Text(
            "Scores and mixture are counted for the pairs that the mask allows; a backend computes whole blocks of "
            "them, which are more.",
            "점수와 가중합은 마스크가 허용하는 쌍만 세었습니다. 백엔드는 블록 단위로 계산하므로 실제로는 더 많습니다.",
        )
    return notes


def build_inputs(model: Model, tokens: int | None, batch: int) -> ModelInputs:
    """Return inputs for a model.

    Args:
        tokens: The number of tokens of each text; an encoder-decoder reads as many as it writes. None = the longest
            text of the model, or 128.
        batch: The number of texts or images.
    """
    if batch < 1 or (tokens is not None and tokens < 1):
        raise ArgumentError(f"tokens and batch must be at least 1, not {tokens} and {batch}")
    if model.reads == "image" and not isinstance(model, Captioner):
        return _build_images(model, tokens, batch)
    if isinstance(model, Numeric):
        count = tokens or model.config.trained_length or DEFAULT_NUMBERS
        numbers = torch.zeros(batch, count, device="meta")
        # the first input of the decoder is its start vector: the target has one number less
        description = Text(f"{batch} x {count:,} numbers in and out", f"입출력 각 {batch} x {count:,}개의 수")
        return ModelInputs((numbers, numbers[:, 1:]), count, description)

    count = tokens or model.context_length or DEFAULT_TOKENS
    if model.context_length is not None and count > model.context_length:
        raise ArgumentError(f"the model reads at most {model.context_length:,} tokens, not {count:,}")
    text = torch.zeros(batch, count, dtype=torch.long, device="meta")
    if isinstance(model, Captioner):
        return _build_captions(model, text)
    if isinstance(model, Speech):
        return _build_transcripts(model, text)
    if model.is_encoder_decoder or isinstance(model, RNNSeq2Seq):
        description = Text(f"{batch} x {count:,} tokens in and out", f"입출력 각 {batch} x {count:,} 토큰")
        return ModelInputs((text, text), count, description)
    return ModelInputs((text,), count, Text(f"{batch} x {count:,} tokens", f"{batch} x {count:,} 토큰"))


def _build_images(model: Model, tokens: int | None, batch: int) -> ModelInputs:
    assert model.image_size is not None and model.image_channels is not None
    rows, columns = model.image_size
    if tokens is not None:
        raise ArgumentError(f"{model.family} reads images of {rows} x {columns} pixels, not texts; remove --tokens")
    images = torch.zeros(batch, model.image_channels, rows, columns, device="meta")
    description = Text(f"{batch} image(s) of {rows} x {columns} pixels", f"{rows} x {columns} 픽셀의 이미지 {batch}장")
    return ModelInputs((images,), None, description)


def _build_captions(model: Captioner, target: Tensor) -> ModelInputs:
    batch, count = target.shape
    config = model.config
    if config.source == "regions":
        source = torch.zeros(batch, config.regions, config.features, device="meta")
        description = Text(
            f"{batch} x {config.regions} regions in, {count:,} tokens out",
            f"입력 {batch} x 영역 {config.regions}개, 출력 {count:,} 토큰",
        )
    else:
        rows, columns = config.image
        source = torch.zeros(batch, config.channels, rows, columns, device="meta")
        description = Text(
            f"{batch} image(s) of {rows} x {columns} pixels in, {count:,} tokens out",
            f"입력 {rows} x {columns} 픽셀의 이미지 {batch}장, 출력 {count:,} 토큰",
        )
    return ModelInputs((source, target), count, description)


def _build_transcripts(model: Speech, target: Tensor) -> ModelInputs:
    batch, count = target.shape
    config = model.config
    source = torch.zeros(batch, config.mel_bins, config.frame_count, device="meta")
    seconds = config.frame_count / 100  # a frame each 10 ms
    description = Text(
        f"{batch} x {seconds:g} s of audio in, {count:,} tokens out",
        f"입력 {batch} x {seconds:g}초의 소리, 출력 {count:,} 토큰",
    )
    return ModelInputs((source, target), count, description)
