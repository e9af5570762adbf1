"""``jumok cost`` for every family: its numbers against models that are built and run on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from jumok.attention import Cache
from jumok.errors import ArgumentError
from jumok.lab.cost import cost_report
from jumok.lab.cost.cost_report import report_cost
from jumok.lab.cost.measurements import PeakMemory
from jumok.lab.cost.model_cost import compute_cost, count_allowed_pairs
from jumok.models import Config
from jumok.models.bert import BERTConfig
from jumok.models.captioner import CaptionerConfig
from jumok.models.classifier import ClassifierConfig
from jumok.models.fusion import FusionConfig
from jumok.models.gpt import GPTConfig
from jumok.models.long import Long, LongConfig
from jumok.models.numeric import NumericConfig
from jumok.models.registry import FAMILIES, get_family
from jumok.models.rnn_seq2seq import RNNSeq2SeqConfig
from jumok.models.speech import SpeechConfig
from jumok.models.swin import SwinConfig
from jumok.models.t5 import T5Config
from jumok.models.transformer import TransformerConfig
from jumok.models.vit import ViTConfig

SIZES = {"vocabulary": 101, "width": 24, "layers": 2, "heads": 4, "hidden": 53}
ENCODER = BERTConfig(**SIZES, length=41)
LONG = LongConfig(**SIZES, length=300, mixing="full")
IMAGE = {"image": (16, 24), "patch": (4, 4), "classes": 7}
CONFIGS: dict[str, Config] = {
    "gpt": GPTConfig(**SIZES, length=41),
    "bert": ENCODER.replace(head="mlm"),
    "t5": T5Config(**SIZES, head_width=10, decoder_layers=3, tied=False),
    "fusion": FusionConfig(**SIZES, length=41, decoder_layers=3, separator=7),
    "transformer": TransformerConfig(**SIZES, length=41, order="pre", output_bias=True, dropout=0.1),
    "vit": ViTConfig(width=24, layers=2, heads=4, hidden=53, **IMAGE),
    "swin": SwinConfig(image=(24, 24), patch=(2, 2), width=12, depths=(2, 2), heads=(2, 4), window=3, classes=7),
    "long": LONG,
    "rnn_seq2seq": RNNSeq2SeqConfig(vocabulary=101, embedding_width=11, width=14),
    "classifier": ClassifierConfig(encoder=ENCODER, classes=3),
    "captioner": CaptionerConfig(**SIZES, regions=7, features=11, decoder_layers=3, length=41),
    "speech": SpeechConfig(
        **SIZES,
        mel_bins=7,
        source_length=13,
        target_length=41,
        decoder_layers=3,
        decoder_heads=3,
        decoder_hidden=31,
        start=1,
        end=2,
        pad=0,
    ),
    "numeric": NumericConfig(width=24, layers=2, heads=4, hidden=53),
}
TOKENS = {"vit": None, "swin": None, "numeric": 5, "rnn_seq2seq": 11}


def create_real_inputs(config: Config, tokens: int | None) -> tuple[torch.Tensor, ...]:
    """Return inputs with numbers, built apart from the tested code."""
    if config.family in ("vit", "swin"):
        return (torch.rand(2, 3, *config.image),)
    if config.family == "numeric":
        return torch.rand(2, 5), torch.rand(2, 4)
    text = torch.zeros(2, tokens, dtype=torch.long)
    if config.family == "speech":
        return torch.rand(2, config.mel_bins, config.frame_count), text
    if config.family == "captioner":
        return torch.rand(2, 7, 11), text
    return (text, text) if config.family in ("t5", "fusion", "transformer", "rnn_seq2seq") else (text,)


def test_every_family_is_tested() -> None:
    assert CONFIGS.keys() == FAMILIES.keys()
    assert all(config.family == family for family, config in CONFIGS.items())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.filterwarnings("ignore:TF32 acceleration")  # PyTorch, when oneDNN is turned off
def test_costs_are_those_of_the_model_with_numbers(family: str) -> None:
    config, tokens = CONFIGS[family], TOKENS.get(family, 37)
    cost, _ = compute_cost(config, tokens, batch=2)
    model, inputs = get_family(family)(config).eval(), create_real_inputs(config, tokens)
    assert cost.parameter_count == model.parameter_count

    # the math kernel and plain LSTMs, whose matrix products PyTorch counts
    plain_kernels = sdpa_kernel(SDPBackend.MATH), torch.backends.mkldnn.flags(enabled=False)
    with plain_kernels[0], plain_kernels[1], torch.no_grad(), FlopCounterMode(display=False) as counter:
        output = model(*inputs, weights=True)
    assert cost.operation_count == counter.get_total_flops()
    with PeakMemory() as memory, torch.no_grad():
        model(*inputs, **({"last": 1} if family == "gpt" else {}))
    # on the CPU a backend may need less, as for the biases of T5 and Swin
    assert memory.peak <= cost.forward_bytes * 1.01 and cost.forward_bytes <= 1.15 * memory.peak

    layers = output.weights if isinstance(output.weights, tuple) else sum(map(tuple, output.weights.values()), ())
    layers = [layer for layer in layers if layer.dim() == 4] or [output.weights["cross"]]
    assert cost.weight_bytes == sum(layer.nbytes for layer in layers)
    assert cost.head_weight_bytes == max(layer[0, 0].nbytes for layer in layers)


@pytest.mark.parametrize("family", sorted(FAMILIES.keys() - {"rnn_seq2seq"}))
def test_activations_are_what_the_backward_pass_keeps(family: str) -> None:
    config, tokens = CONFIGS[family], TOKENS.get(family, 37)
    model, inputs = get_family(family)(config), create_real_inputs(config, tokens)
    parameters = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    storages: dict[int, torch.UntypedStorage] = {}

    def record(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            storages[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(record, lambda tensor: tensor):
        output = model(*inputs)
        if output.logits is not None:
            logits = output.logits.flatten(0, -2)
            torch.nn.functional.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long))
    saved_bytes = sum(storage.nbytes() for storage in storages.values())
    assert compute_cost(config, tokens, 2)[0].activation_bytes == pytest.approx(saved_bytes, rel=0.02)


@pytest.mark.parametrize("family", ["transformer", "t5", "fusion", "captioner"])
def test_cache_has_the_size_of_a_filled_one(family: str) -> None:
    model = get_family(family)(CONFIGS[family]).eval()
    source, target = create_real_inputs(CONFIGS[family], 37)
    cache = Cache()
    with torch.no_grad():
        encoded = model.encode(source)
        for token in target.split(1, 1):
            model.decode(token, encoded, cache=cache)
    slots = [slot for slot in (*cache.slots.values(), *cache.sources.values()) if slot.length]
    sizes = [tensor.numel() * 4 for slot in slots for tensor in (slot.key, slot.value)]
    assert compute_cost(CONFIGS[family], 37, 2)[0].cache_bytes == sum(sizes)


def test_a_gpt_has_the_numbers_of_the_formulas() -> None:
    cost, _ = compute_cost(CONFIGS["gpt"], 37, 2)
    rows, layers, width, hidden, vocabulary = 2 * 37, 2, 24, 53, 101
    assert cost.operations == {
        "projections": 2 * rows * layers * 4 * width**2,
        "scores and mixture": 4 * rows * 37 * layers * width,
        "feed-forward": 2 * rows * layers * 2 * width * hidden,
        "logits": 2 * rows * width * vocabulary,
    }
    assert cost.parameters == {
        "embedding": vocabulary * width,
        "positions": 41 * width,
        "attention": layers * 4 * (width**2 + width),
        "feed-forward": layers * (2 * width * hidden + hidden + width),
        "norms": 2 * width * (2 * layers + 1),
    }
    assert cost.weight_bytes == 4 * rows * 37 * layers * 4


@pytest.mark.parametrize("mixing", ["longformer", "bigbird", "window", "blocks"])
def test_sparse_attention_counts_the_pairs_that_have_weight(mixing: str) -> None:
    config = LONG.replace(mixing=mixing, window=5, random=2, block=8, globals=(0, 7))
    with torch.no_grad():
        weights = Long(config).eval()(torch.zeros(1, 97, dtype=torch.long), weights=True).weights
    pairs = int((weights[0][0, 0] > 0).sum())
    assert count_allowed_pairs(config, 97) == pairs < 97**2
    cost, _ = compute_cost(config, 97, 2)
    assert cost.operations["scores and mixture"] == 4 * 2 * 2 * 24 * pairs
    assert (
        cost.forward_bytes is None and cost.training_bytes is None and "backend" in cost.notes["forward_bytes"].english
    )


def test_linear_attention_counts_what_the_model_computes() -> None:
    config = LONG.replace(mixing="performer", features=16)
    model, tokens = Long(config).eval(), torch.zeros(2, 97, dtype=torch.long)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(tokens)
    assert compute_cost(config, 97, 2)[0].operation_count == pytest.approx(counter.get_total_flops(), rel=0.01)


def test_what_is_not_defined_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cost_report, "read_available_memory", lambda: 1000)
    fourier = report_cost(LONG.replace(mixing="fnet"), 37)
    cells = {row[0]: row[1] for row in fourier.tables[1].select_language("en")}
    assert cells["weights of one head"] == "none: a Fourier transform mixes the tokens"
    assert cells["key/value cache"] == "none: the model has no decoder"
    sentences = " ".join(text.english for text in fourier.sentences)
    assert "do not fit into the available 1,000 bytes" in sentences and "Fourier transform is not counted" in sentences

    recurrent = report_cost(CONFIGS["rnn_seq2seq"], 5)
    cells = {row[0]: row[1] for row in recurrent.tables[1].select_language("en")}
    assert cells["activations in training"] == "not defined: the LSTM kernel decides"
    assert cells["train with Adam"] == "not defined"
    assert recurrent.save_picture(tmp_path / "growth.png", "ko").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ArgumentError, match="there is no cost over the length to draw"):
        report_cost(CONFIGS["vit"]).save_picture(tmp_path / "none.png")


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(ArgumentError, match="at most 41 tokens, not 50"):
        compute_cost(CONFIGS["transformer"], 50)
    with pytest.raises(ArgumentError, match="vit reads images of 16 x 24 pixels, not texts"):
        compute_cost(CONFIGS["vit"], 10)
    with pytest.raises(ArgumentError, match="at least 1"):
        compute_cost(CONFIGS["bert"], 0)


def test_peak_memory_counts_tensors_while_they_are_in_use() -> None:
    with PeakMemory() as memory:
        numbers = torch.zeros(10, device="meta")
        doubled = torch.cat([numbers, numbers])
        view = doubled[:5]
        del numbers, doubled
        larger = torch.zeros(21, device="meta")
    assert memory.peak == 4 * (20 + 21)  # the view keeps 20 numbers; the first 10 are gone
    del view, larger
