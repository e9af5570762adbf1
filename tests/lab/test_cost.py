"""``jumok cost``: its formulas against models that are built and run, and against published numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import jumok
from jumok.attention import Cache, MultiHead, attend
from jumok.checkpoint.load import read_config
from jumok.errors import ArgumentError
from jumok.lab.cost import cost_report, layer_growth
from jumok.lab.cost.cost_report import format_bytes, format_count, report_cost
from jumok.lab.cost.layer_growth import compare_layers, count_layer_operations
from jumok.lab.cost.measurements import read_available_memory
from jumok.lab.cost.model_cost import ModelCost, compute_cost
from jumok.models.gpt import GPT, GPTConfig, llama_config

SIZES = {"vocabulary": 101, "length": 41, "width": 24, "layers": 3, "heads": 4, "hidden": 53}
CONFIGS = {
    "gpt2": GPTConfig(**SIZES),
    "untied": GPTConfig(**SIZES, tied=False, attention_bias=False),
    "llama": llama_config(**SIZES, groups=2),
    "gated biases": llama_config(**SIZES, feedforward_bias=True, head_width=10, tied=False),
    "no positions": GPTConfig(**SIZES, positions="none"),
    "sinusoidal": GPTConfig(**SIZES, positions="sinusoidal"),
    "alibi": GPTConfig(**SIZES, positions="alibi"),
    "t5": GPTConfig(**SIZES, positions="t5", buckets=18),
}


def compute_gpt_cost(config: GPTConfig, tokens: int, batch: int = 1) -> ModelCost:
    return compute_cost(config, tokens, batch)[0]


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_parameters_and_operations_equal_those_of_the_model(config: GPTConfig) -> None:
    cost = compute_gpt_cost(config, tokens=37, batch=2)
    model = GPT(config)
    assert cost.parameter_count == model.parameter_count
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.zeros(2, 37, dtype=torch.long), weights=True)
    assert cost.operation_count == counter.get_total_flops()


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_activations_are_what_the_backward_pass_keeps(config: GPTConfig) -> None:
    model, tokens = GPT(config), torch.zeros(2, 37, dtype=torch.long)
    parameters = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    storages: dict[int, torch.UntypedStorage] = {}

    def record(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            storages[storage.data_ptr()] = storage  # kept alive, so that no address is used twice
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(record, lambda tensor: tensor):
        logits = model(tokens).logits
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
    saved_bytes = sum(storage.nbytes() for storage in storages.values())
    assert compute_gpt_cost(config, 37, 2).activation_bytes == pytest.approx(saved_bytes, rel=0.02)


def test_cache_has_the_computed_size() -> None:
    model = GPT(CONFIGS["llama"])
    cache = Cache()
    with torch.no_grad():
        model(torch.zeros(2, 37, dtype=torch.long), cache=cache)
    tensors = [tensor for slot in cache.slots.values() for tensor in (slot.key, slot.value)]
    assert compute_gpt_cost(model.config, 37, 2).cache_bytes == sum(tensor.nbytes for tensor in tensors)


def test_published_numbers() -> None:
    assert compute_gpt_cost(GPTConfig(), 1024).parameter_count == 124_439_808  # GPT-2 small
    layer = GPTConfig(width=512, heads=8, layers=1, hidden=2048)
    assert compute_gpt_cost(layer, 1).parameters["attention"] == 1_050_624
    assert sum(parameter.numel() for parameter in MultiHead(512, 8).parameters()) == 1_050_624
    # an article's model: no biases in the attention, 5,000 positions, no output layer
    article = GPTConfig(
        vocabulary=10_000, length=5_000, width=512, heads=8, layers=6, hidden=2048, attention_bias=False,
        output_bias=False,
    )  # fmt: skip
    assert compute_gpt_cost(article, 20).parameter_count == 26_583_040
    lengths = GPTConfig(length=16384)
    sizes = [format_bytes(compute_gpt_cost(lengths, tokens).head_weight_bytes) for tokens in (1024, 4096, 16384)]
    assert sizes == ["4 MB", "64 MB", "1 GB"]


def test_windows_limit_the_pairs() -> None:
    full = compute_gpt_cost(CONFIGS["gpt2"], 40).operations["scores and mixture"]
    window = compute_gpt_cost(CONFIGS["gpt2"].replace(window=10), 40).operations["scores and mixture"]
    one_layer = compute_gpt_cost(CONFIGS["gpt2"].replace(window=10, windowed=(1,)), 40)
    assert window == full / 4
    assert one_layer.operations["scores and mixture"] == full * 3 / 4


def test_layer_operations_equal_those_that_torch_counts() -> None:
    tokens, width = 29, 13
    hidden = torch.randn(1, tokens, width)
    matrices = torch.randn(2, width, width)
    convolution = torch.nn.Conv1d(width, width, 3, padding=1)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        attend(hidden[:, None], hidden[:, None], hidden[:, None], backend="explicit")
    assert counter.get_total_flops() == count_layer_operations("attention", tokens, width)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        convolution(hidden.mT)
    assert counter.get_total_flops() == count_layer_operations("CNN", tokens, width)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        state = torch.zeros(1, width)
        for token in hidden.unbind(1):
            state = torch.tanh(token @ matrices[0] + state @ matrices[1])
    assert counter.get_total_flops() == count_layer_operations("RNN", tokens, width)


def test_attention_is_cheaper_than_a_recurrent_layer_up_to_its_width() -> None:
    assert count_layer_operations("attention", 63, 64) < count_layer_operations("RNN", 63, 64)
    assert count_layer_operations("attention", 64, 64) == count_layer_operations("RNN", 64, 64)
    layers = compare_layers(64, 16)
    assert [(layer.longer, layer.wider) for layer in layers] == [(2, 4), (2, 4), (4, 2)]
    assert layers[1].path == "O(log_k n): 4"  # 3**4 = 81 >= 64
    assert layers[0].milliseconds is None


def test_measurement_gives_times_for_all_layers(tmp_path: Path) -> None:
    report = report_cost(CONFIGS["gpt2"].replace(length=16), 16, measure=True)
    assert all(
        layer.milliseconds and layer.measured_longer and layer.measured_wider for layer in report.numbers["layers"]
    )
    assert len(report.tables[-1].columns) == 10
    picture = report.save_picture(tmp_path / "times.svg", "ko").read_text(encoding="utf-8")
    assert all(f"{name}, {kind}" in picture for name in ("RNN", "셀프 어텐션") for kind in ("측정", "이론"))


def test_what_does_not_fit_is_said_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost_report, "read_available_memory", lambda: 2 * 10**9)
    config = GPTConfig(width=512, heads=8, layers=6, hidden=2048, length=16384)
    report = report_cost(config, 16384)
    misfits = [text.english for text in report.sentences if "do not fit" in text.english]
    assert [text.partition(":")[0] for text in misfits] == ["run, all weights kept", "train with Adam"]
    assert report.to_json()["holds"]  # the report is right; the model is large
    monkeypatch.setattr(layer_growth, "read_available_memory", lambda: 10**6)
    with pytest.raises(ArgumentError, match=r"measuring at 2,048 tokens needs .* choose fewer tokens"):
        report_cost(config, 16384, measure=True)


def test_available_memory_is_at_most_that_of_the_machine() -> None:
    available = read_available_memory()
    assert available is None or 2**20 < available < 2**50


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(ArgumentError, match="reads at most 1,024 tokens, not 2,000"):
        compute_gpt_cost(GPTConfig(), 2000)
    with pytest.raises(ArgumentError, match="at least 1"):
        compute_gpt_cost(GPTConfig(), 0)
    with pytest.raises(ArgumentError, match="at least 1"):
        compare_layers(0, 4)


def test_config_is_read_without_tensors(tmp_path: Path) -> None:
    assert read_config("tiny") == jumok.load("tiny").config
    for format_name in ("jumok", "huggingface"):
        folder = jumok.save(GPT(CONFIGS["gpt2"]), tmp_path / format_name, format=format_name)
        for file in folder.glob("*.safetensors"):
            file.unlink()
        assert read_config(folder).width == 24


def test_numbers_have_units() -> None:
    assert [format_bytes(number) for number in (0, 1023, 1536, 2**40)] == ["0 bytes", "1,023 bytes", "1.5 KB", "1 TB"]
    assert [format_count(number) for number in (999, 25_000, 10**18)] == ["999", "25 k", "1,000 P"]
