"""The residual stream and the logit lens: compared with plain hooks, and with the hidden states of transformers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from page_client import PageClient
from torch import Tensor, nn

import jumok
from jumok.checkpoint import Loaded
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.models import BERT, Transformer
from jumok.models.bert import BERTConfig
from jumok.models.transformer import TransformerConfig
from jumok.tasks.labelled_input import prepare_input
from jumok.web import opened_model
from jumok.web.session import Session, Start
from transformers_folders import CAUSAL, build_model, build_tokenizer

TEXT = "the cat sat; the cat"
WORDS = "the cat sat on the mat"
GPT2 = {"vocab_size": 256, "n_positions": 32, "n_embd": 24, "n_layer": 3, "n_head": 2, "n_inner": 40}


def ask_layers(start: Start, text: str, position: int, sequence: str = "source", **fields: Any) -> Any:
    """Run a model in a session of its own, and ask for the layers of one position."""
    session = Session(start)
    client = PageClient(session)
    try:
        run = client.ask("run", model=client.ask("hello")["model"], text=text, edits=fields.get("edits", []))
        show = "edited" if fields else "clean"
        return client.ask("layers", run=run["run"], show=show, sequence=sequence, position=position)
    finally:
        session.close()


@contextmanager
def record_outputs(*modules: nn.Module) -> Iterator[list[Tensor]]:
    """Record the output of modules in execution order."""
    outputs: list[Tensor] = []

    def record(module: nn.Module, inputs: Any, output: Any) -> None:
        outputs.append(output[0] if isinstance(output, tuple) else output)

    handles = [module.register_forward_hook(record) for module in modules]
    with torch.no_grad():
        yield outputs
    for handle in handles:
        handle.remove()


def measure(states: list[Tensor], position: int) -> list[float]:
    return [float(state[0, position].norm()) for state in states]


def check_tokens(candidates: list[dict[str, Any]], logits: Tensor) -> None:
    best = logits.softmax(-1).topk(5)
    assert [candidate["id"] for candidate in candidates] == best.indices.tolist()
    assert [candidate["probability"] for candidate in candidates] == pytest.approx(best.values.tolist(), abs=1e-5)


@pytest.mark.parametrize("is_routed", [False, True], ids=["jumok", "transformers"])
def test_gpt2_has_the_hidden_states_of_transformers(is_routed: bool, tmp_path: Path) -> None:
    """Jumok's GPT reads the folder; the lens routes the model of transformers."""
    torch.manual_seed(5)
    model = hf.GPT2LMHeadModel(hf.GPT2Config(**GPT2)).eval()
    for parameter in model.parameters():
        parameter.data.mul_(4)
    model.save_pretrained(tmp_path)
    start = Start(model if is_routed else jumok.load(tmp_path), TEXT, tokenizer=Tokenizer.for_bytes())
    shown = ask_layers(start, TEXT, 11)

    attentions = [block.attn for block in model.transformer.h]
    with record_outputs(*attentions) as added:
        output = model(torch.tensor([list(TEXT.encode())]), output_hidden_states=True)
    states = output.hidden_states  # the last one is normalised
    assert [layer["before"] for layer in shown["layers"]] == pytest.approx(measure(states[:3], 11), rel=1e-5)
    for index, layer in enumerate(shown["layers"]):
        attention, mlp = layer["steps"]
        assert [attention["part"], attention["site"], mlp["part"], mlp["site"]] == ["attention", index, "mlp", None]
        middle = states[index] + added[index]
        assert attention["added"] == pytest.approx(float(added[index][0, 11].norm()), rel=1e-5)
        assert attention["norm"] == pytest.approx(float(middle[0, 11].norm()), rel=1e-5)
        if index < 2:
            assert mlp["added"] == pytest.approx(float((states[index + 1] - middle)[0, 11].norm()), rel=1e-4)
            assert mlp["norm"] == layer["after"] == pytest.approx(float(states[index + 1][0, 11].norm()), rel=1e-5)
            check_tokens(layer["candidates"], model.lm_head(model.transformer.ln_f(states[index + 1]))[0, 11])
    check_tokens(shown["candidates"], model.lm_head(model.transformer.ln_f(states[0]))[0, 11])
    check_tokens(shown["layers"][-1]["candidates"], output.logits[0, 11])
    sizes = {"width": 24, "heads": 2, "groups": 2, "head_width": 12, "hidden": 40, "outputs": 256}
    assert {name: shown[name] for name in sizes} == sizes and shown["gap"] is None


@pytest.mark.parametrize("order", ["pre", "post"])
def test_both_stacks_of_an_encoder_decoder(order: str) -> None:
    torch.manual_seed(7)
    config = TransformerConfig(vocabulary=256, length=16, width=24, layers=2, heads=2, hidden=40, order=order)
    model = Transformer(config).eval()
    for parameter in model.parameters():  # so that no two norms are equal
        parameter.data += 0.1 * torch.randn_like(parameter)
    loaded = Loaded(model, Tokenizer.for_bytes())
    source, target = prepare_input(loaded, "the cat", literal=True).inputs
    position = target.shape[1] - 1
    shown = ask_layers(Start(loaded, "the cat"), "the cat", position, "target")
    encoder = ask_layers(Start(loaded, "the cat"), "the cat", 3)

    streams: list[Tensor] = []  # behind every part, as the norms of the model read or write them

    def record(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        streams.append(output if order == "post" else inputs[0])

    for block in (*model.encoder, *model.decoder):
        parts = ("attention", "cross", "feedforward") if hasattr(block, "cross") else ("attention", "feedforward")
        for part in parts if order == "post" else parts[1:]:
            block.get_submodule(f"{part}_norm").register_forward_hook(record)
        if order == "pre":
            block.register_forward_hook(lambda module, inputs, output: streams.append(output))
    with torch.no_grad():
        logits = model(source, target).logits[0, position]
        first = model.compute_logits(streams[6])[0, position]  # behind the first block of the decoder
    steps = [[step["norm"] for layer in body["layers"] for step in layer["steps"]] for body in (encoder, shown)]
    assert steps[0] == pytest.approx(measure(streams[:4], 3), rel=1e-5)
    assert steps[1] == pytest.approx(measure(streams[4:], position), rel=1e-5)
    assert [step["part"] for step in shown["layers"][0]["steps"]] == ["attention", "cross-attention", "mlp"]
    check_tokens(shown["layers"][1]["candidates"], logits)
    check_tokens(shown["layers"][0]["candidates"], first)
    assert encoder["gap"] == "encoder" and not encoder["layers"][0]["candidates"]


def test_edits_change_the_stream_from_their_layer_on() -> None:
    edits = [{"edit": "Ablate", "layer": 1, "head": 0}]
    clean, edited = ask_layers(Start("tiny", TEXT), TEXT, 19), ask_layers(Start("tiny", TEXT), TEXT, 19, edits=edits)
    assert edited["layers"][0] == clean["layers"][0] and edited["layers"][1]["before"] == clean["layers"][1]["before"]
    with jumok.Lens("tiny") as lens, torch.no_grad():
        output = lens.run(TEXT, keep="output").activations["blocks.1.attention.output"].clone()
        output[:, 0] = 0
        added = lens.model.blocks[1].attention.output(output.transpose(1, 2).flatten(2))[0, 19]
        logits = lens.run(TEXT, logits=True, edits=[jumok.lens.Ablate(layer=1, head=0)]).logits[0, 19]
    assert edited["layers"][1]["steps"][0]["added"] == pytest.approx(float(added.norm()), rel=1e-5)
    check_tokens(edited["layers"][1]["candidates"], logits)


def test_masked_model_predicts_at_every_layer() -> None:
    torch.manual_seed(2)
    config = BERTConfig(vocabulary=256, length=32, width=24, layers=2, heads=2, hidden=40, head="mlm")
    model = BERT(config).eval()
    shown = ask_layers(Start(Loaded(model, Tokenizer.for_bytes()), TEXT), TEXT, 4)
    with record_outputs(*model.blocks) as states:
        logits = model(torch.tensor([list(TEXT.encode())])).logits
    assert [layer["after"] for layer in shown["layers"]] == pytest.approx(measure(states, 4), rel=1e-5)
    check_tokens(shown["layers"][0]["candidates"], model.head(states[0], model.embedding.weight)[0, 4])
    check_tokens(shown["layers"][1]["candidates"], logits[0, 4])


def build_granite() -> Any:
    torch.manual_seed(3)
    return hf.GraniteForCausalLM(hf.GraniteConfig(**CAUSAL, logits_scaling=4.0)).eval()


@pytest.mark.parametrize(
    ("name", "gap", "is_additive"),
    [
        ("gpt_neox", None, True),
        ("gemma", None, True),
        ("granite", "unknown norm", True),  # divides its logits
        ("bart", "unknown norm", False),
        ("bert", "no tokens", False),
    ],
)
def test_models_of_transformers(name: str, gap: str | None, is_additive: bool) -> None:
    """Sums that do not lead to the next block are not shown, nor a logit lens that does not end in the prediction."""
    model, tokenizer = build_model(name) if name != "granite" else build_granite(), build_tokenizer()
    sequence, position = ("target", 0) if name == "bart" else ("source", 1)
    shown = ask_layers(Start(model, WORDS, tokenizer=tokenizer), WORDS, position, sequence)
    assert shown["gap"] == gap and len(shown["layers"]) == 2
    norms = [step["norm"] for layer in shown["layers"] for step in layer["steps"]]
    assert all(norms) if is_additive else not any(norms)
    assert all(step["added"] for layer in shown["layers"] for step in layer["steps"])
    assert shown["layers"][0]["after"] == pytest.approx(shown["layers"][1]["before"], rel=1e-5)
    if gap is None:
        with torch.no_grad():
            logits = model(**tokenizer(WORDS, return_tensors="pt")).logits[0, 1]
        check_tokens(shown["layers"][1]["candidates"], logits)
    assert shown["width"] == 32 and shown["hidden"] == 48


def test_long_input_has_sizes_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened_model, "MAX_STREAM_POSITIONS", 10)
    monkeypatch.setattr("jumok.web.answers.layer_stream.MAX_STREAM_POSITIONS", 10)
    shown = ask_layers(Start("tiny", TEXT), TEXT, 3)
    assert (shown["gap"], shown["layers"], shown["candidates"]) == ("long input", [], [])
    assert (shown["width"], shown["heads"], shown["head_width"], shown["outputs"]) == (96, 2, 48, 256)
