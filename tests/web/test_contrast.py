"""Two inputs side by side: what a session answers about them equals plain forward hooks of torch, without the lens."""

from __future__ import annotations

import contextlib
import io
import threading
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from page_client import FailedAskError, PageClient
from torch import Tensor

import jumok
from jumok.lens.effects.alignment import align_tokens
from jumok.lens.effects.edit_runner import EditRunner
from jumok.web.session import Session, Start

TEXT = "the cat sat; the cat "
OTHER = "the cat did; the cat "
LONGER = "the horse sat; the horse "
KOREAN = "민수는 학교에 갔습니다. 민수는 친구를", "지우개는 학교에 갔습니다. 민수는 친구를"


@pytest.fixture(scope="module")
def run(client: PageClient) -> int:
    return client.ask("run", model="tiny", text=TEXT, edits=[])["run"]


class HookedModel:
    """A model whose heads, MLPs and residual streams are recorded and replaced by hooks of torch."""

    def __init__(self, loaded: Any, right: str, wrong: str) -> None:
        self.model, self.tokenizer = loaded.model, loaded.tokenizer
        self.head_width = loaded.model.config.width // loaded.model.config.heads
        self.tokens = [loaded.tokenizer.encode(token, special=False)[-1] for token in (right, wrong)]

    def run(self, text: str, layer: int = 0, part: str = "attention", replace: Any = None) -> tuple[float, Tensor]:
        """Return the logit difference and what the part computed; ``replace`` changes it."""
        values: list[Tensor] = []

        def change(value: Tensor) -> Tensor:
            values.append(value.clone())
            return value if replace is None else replace(value.clone())

        block = self.model.blocks[layer]
        if part == "attention":
            hook = block.attention.output.register_forward_pre_hook(lambda _, inputs: (change(inputs[0]), *inputs[1:]))
        elif part == "mlp":
            hook = block.feedforward.register_forward_hook(lambda _, inputs, output: change(output))
        else:
            hook = block.register_forward_pre_hook(lambda _, inputs: (change(inputs[0]), *inputs[1:]))
        with hook, torch.no_grad():
            logits = self.model(torch.tensor([self.tokenizer.encode(text)])).logits[0, -1]
        return float(logits[self.tokens[0]] - logits[self.tokens[1]]), values[0]

    def patch(
        self, clean: str, corrupted: str, part: str, layer: int, column: int, partners: list[int | None]
    ) -> float:
        """Return the logit difference with a head at all positions, or with one position, of another text."""
        _, source = self.run(clean, layer, part)

        def replace(value: Tensor) -> Tensor:
            for position, partner in enumerate(partners):
                if partner is None or (part != "attention" and position != column):
                    continue
                width = slice(None)
                if part == "attention":
                    width = slice(column * self.head_width, (column + 1) * self.head_width)
                value[0, position, width] = source[0, partner, width]
            return value

        return self.run(corrupted, layer, part, replace)[0]


def compare_sweep(client: PageClient, hooked: HookedModel, part: str, texts: tuple[str, str], **ask: Any) -> Any:
    """Compare a sweep of a session with hooks, and return the shares that it restores."""
    body, content = client.ask_bytes("sweep", text=texts[1], part=part, **ask)
    effects = numpy.frombuffer(content, "<f4").reshape(len(body["layers"]), body["columns"])
    partners = align_tokens(*(hooked.tokenizer.encode(text) for text in texts))
    corrupted = hooked.run(texts[1])[0]
    assert body["metric"]["clean"] == pytest.approx(hooked.run(texts[0])[0], abs=2e-5)
    assert body["metric"]["corrupted"] == pytest.approx(corrupted, abs=2e-5)
    for layer, row in enumerate(effects):
        for column, effect in enumerate(row):
            if part != "attention" and partners[column] is None:
                assert numpy.isnan(effect)
                continue
            expected = hooked.patch(*texts, part, layer, column, partners) - corrupted
            assert effect == pytest.approx(expected, abs=5e-5), (layer, column)
    return effects / (body["metric"]["clean"] - body["metric"]["corrupted"])


@pytest.mark.parametrize("part", ["attention", "mlp", "residual"])
def test_a_sweep_equals_hooks(client, run, part) -> None:
    restored = compare_sweep(client, HookedModel(jumok.load("tiny"), "s", "d"), part, (TEXT, OTHER), run=run)
    if part == "attention":
        assert restored.argmax() == 2 and restored[1, 0] == pytest.approx(1, abs=0.02)  # the induction head alone
    elif part == "residual":
        assert set(numpy.argwhere(restored > 0.9)[:, 1]) == {8}  # the letter after the first "cat "


@pytest.mark.parametrize("part", ["attention", "mlp", "residual"])
def test_texts_of_different_lengths_are_patched_by_their_partners(client, run, part) -> None:
    hooked = HookedModel(jumok.load("tiny"), "s", "h")
    compare_sweep(client, hooked, part, (TEXT, LONGER), run=run, right="s", wrong="h")


@pytest.mark.parametrize(("part", "site", "column"), [("attention", 1, 0), ("mlp", 1, 24), ("residual", 1, 10)])
def test_a_patch_reads_the_partner_of_a_position(client, run, part, site, column) -> None:
    hooked = HookedModel(jumok.load("tiny"), "s", "h")
    partners = align_tokens(*(hooked.tokenizer.encode(text) for text in (TEXT, LONGER)))
    expected = hooked.patch(TEXT, LONGER, part, site, column, partners)
    patch = {"part": part, "site": site, "head" if part == "attention" else "position": column}
    patched = client.ask("patch", run=run, text=LONGER, right="s", wrong="h", patches=[patch])
    assert patched["value"] == pytest.approx(expected, abs=5e-5)
    assert abs(expected - hooked.run(LONGER)[0]) > 0.001


def test_patches_work_together(client, run) -> None:
    patches = [
        {"part": "residual", "site": 1, "position": 8},
        {"part": "mlp", "site": 0, "position": 9},
        {"part": "attention", "site": 1, "head": 1},
    ]
    ask = {"run": run, "text": OTHER, "right": "s", "wrong": "d"}
    contrast = client.ask("contrast", **ask)
    patched = client.ask("patch", **ask, patches=patches)
    hooked = HookedModel(jumok.load("tiny"), "s", "d")
    sources = [hooked.run(TEXT, layer, part)[1] for layer, part in ((1, "residual"), (0, "mlp"), (1, "attention"))]

    def put(value: Tensor, position: Any, width: slice, source: Tensor) -> Tensor:
        value[0, position, width] = source[0, position, width]
        return value

    half = slice(hooked.head_width, 2 * hooked.head_width)
    blocks = hooked.model.blocks
    hooks = [
        blocks[1].register_forward_pre_hook(lambda _, x: (put(x[0].clone(), 8, slice(None), sources[0]), *x[1:])),
        blocks[0].feedforward.register_forward_hook(lambda _, x, y: put(y.clone(), 9, slice(None), sources[1])),
        blocks[1].attention.output.register_forward_pre_hook(
            lambda _, x: (put(x[0].clone(), slice(None), half, sources[2]),)
        ),
    ]
    with torch.no_grad():
        logits = hooked.model(torch.tensor([hooked.tokenizer.encode(OTHER)])).logits[0, -1]
    for hook in hooks:
        hook.remove()
    assert patched["value"] == pytest.approx(float(logits[ord("s")] - logits[ord("d")]), abs=5e-5)
    shares = logits.softmax(-1)
    expected = [float(shares[candidate["id"]]) for candidate in contrast["candidates"]]
    assert patched["probabilities"] == pytest.approx(expected, abs=1e-5)
    unpatched = client.ask("patch", **ask, patches=[])
    assert unpatched["value"] == contrast["metric"]["corrupted"]


def test_aligned_maps_are_the_weights_of_both_texts(client, run) -> None:
    body, (changes,) = client.wait(client.begin("contrast", run=run, text=LONGER))
    pairs = body["pairs"]["source"]
    assert len(pairs) == 25 and pairs[4:7] == [[None, 4], [None, 5], [4, 6]]  # "c" and "h", "o", "r"
    assert [position for position, _ in pairs if position is not None] == list(range(21))
    assert [position for _, position in pairs if position is not None] == list(range(25))
    with jumok.Lens("tiny") as lens:
        weights = [lens.run(text).weights(1, 0) for text in (TEXT, LONGER)]
    head = {"run": run, "site": 1, "head": 0, "contrast": body["contrast"]}
    shown = {
        show: client.ask_floats("values", **head, show=show, rows=[0, 25], columns=[0, 25]).reshape(25, 25)
        for show in ("clean", "edited", "difference")
    }
    for row, query in enumerate(pairs):
        for column, key in enumerate(pairs):
            cell = [
                0.0 if None in (query[side], key[side]) else float(weights[side][query[side], key[side]])
                for side in (0, 1)
            ]
            assert [shown["clean"][row, column], shown["edited"][row, column]] == pytest.approx(cell, abs=1e-6)
            difference = 0.0 if None in (*query, *key) else cell[1] - cell[0]
            assert shown["difference"][row, column] == pytest.approx(difference, abs=1e-6)
    distances = numpy.frombuffer(changes, "<f4")
    assert len(distances) == 4 and distances[2] == pytest.approx(numpy.abs(shown["difference"]).sum() / 50, rel=1e-4)
    tile, content = client.ask_bytes("tiles", **head, show="difference", level=0, row=0, column=0)
    assert (tile["rows"], tile["columns"]) == (25, 25)
    roots = (numpy.frombuffer(content, "u1").reshape(25, 25).astype(float) - 128) / 127
    assert numpy.abs(numpy.sign(roots) * roots**2 - shown["difference"]).max() < 0.01
    newer = client.ask("contrast", run=run, text=OTHER)["contrast"]
    assert "ask for it again" in str(client.fail("line", **head, show="clean", query=0))
    assert client.ask("line", **{**head, "contrast": newer}, show="edited", query=20)["length"] == 21


def test_long_texts_have_exact_tiles() -> None:
    session = Session(Start("tiny"))
    client = PageClient(session)
    text = "the cat sat; " * 30
    number = client.ask("run", model="tiny", text=text + "the cat ", edits=[])["run"]
    body = client.ask("contrast", run=number, text="and " + text + "the cat ")
    count = len(body["pairs"]["source"])
    assert count == 402 and client.fail("tiles", run=number, contrast=body["contrast"], **TILE, row=2).reason
    with jumok.Lens("tiny") as lens:
        weights = lens.run("and " + text + "the cat ").weights(0, 1).numpy()
    pooled = numpy.zeros((201, 201))
    for row in range(count):
        numpy.maximum.at(pooled[row // 2], numpy.arange(count) // 2, weights[row])
    content = client.ask_bytes("tiles", run=number, contrast=body["contrast"], **TILE, row=0)[1]
    shares = (numpy.frombuffer(content, "u1").reshape(201, 201) / 255.0) ** 2
    assert numpy.abs(shares - pooled).max() < 0.01
    session.close()


TILE = {"show": "edited", "site": 0, "head": 1, "level": 1, "column": 0}


def test_korean_words_of_different_lengths() -> None:
    session = Session(Start("korean"))
    client = PageClient(session)
    number = client.ask("run", model="korean", text=KOREAN[0], edits=[])["run"]
    body = client.ask("contrast", run=number, text=KOREAN[1])
    assert body["pairs"]["source"][:5] == [[None, 0], [None, 1], [None, 2], [0, 3], [1, 4]]
    assert body["source"][:4] == ["지", "우", "개", "는"] and body["metric"]["right"]["label"] == "␣만나"
    hooked = HookedModel(jumok.load("korean"), " 만나", " 만날")
    restored = compare_sweep(client, hooked, "attention", KOREAN, run=number, right="␣만나", wrong=" 만날")
    assert restored.shape == (4, 4)
    session.close()


def test_a_translation_is_compared_where_its_words_part() -> None:
    session = Session(Start("translator"))
    client = PageClient(session)
    number = client.ask("run", model="translator", text="나는 매일 학교에 간다", edits=[])["run"]
    ask = {"run": number, "text": "나는 매일 병원에 간다"}
    body = client.ask("contrast", **ask)
    assert body["target"] == ["<start>", "I", "go", "to", "the", "hospital", "every", "day"] and body["position"] == 3
    assert [body["metric"][name]["label"] for name in ("right", "wrong")] == ["school", "the"]
    assert body["pairs"]["target"][3:6] == [[3, 3], [None, 4], [4, 5]]
    word = next(position for position, label in enumerate(body["source"]) if "병원" in label)
    patched = client.ask("patch", **ask, patches=[{"part": "residual", "site": 0, "position": word}])
    assert patched["value"] == pytest.approx(body["metric"]["clean"], abs=1e-3)  # all that differs was patched
    body, _ = client.ask_bytes("sweep", **ask, part="attention")
    check_code(body["code"], [f"clean {body['metric']['clean']:.4f}", "decoder.1.cross head 3: restores"])
    session.close()


def check_code(code: str, expected: list[str]) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    for line in expected:
        assert line in printed.getvalue(), (line, printed.getvalue())


def test_the_copied_code_computes_the_same_numbers(client, run) -> None:
    ask = {"run": run, "right": "s", "wrong": "d", "text": OTHER}
    body, content = client.ask_bytes("sweep", **ask, part="attention")
    restored = numpy.frombuffer(content, "<f4")[2] / (body["metric"]["clean"] - body["metric"]["corrupted"])
    check_code(body["code"], [f"blocks.1.attention head 0: restores {restored:.1%}"])
    longer = client.ask_bytes("sweep", **{**ask, "text": LONGER}, part="residual")[0]
    check_code(longer["code"], [f"corrupted {longer['metric']['corrupted']:.4f}"])
    patches = [{"part": "attention", "site": 1, "head": 0}, {"part": "mlp", "site": 0, "position": None}]
    patched = client.ask("patch", **ask, patches=patches)
    check_code(patched["code"], [f"patched: {patched['value']:.4f}", "corrupted: -8.8860"])


def test_two_models_read_the_same_text() -> None:
    """A later checkpoint is imitated by scaled parameters; its heads are patched from the first model."""
    changed = jumok.load("tiny")
    with torch.no_grad():
        for name, parameter in changed.model.named_parameters():
            if "attention" in name:
                parameter.mul_(0.8)
    session = Session(Start(changed))
    client = PageClient(session)
    start = client.ask("hello")["model"]
    number = client.ask("run", model="tiny", text=TEXT, edits=[])["run"]
    ask = {"run": number, "model": start, "right": "s", "wrong": "t"}
    body = client.ask("contrast", **ask)
    assert body["pairs"]["source"] == [[position, position] for position in range(21)] and body["model"] == start
    with jumok.Lens("tiny") as lens, jumok.Lens(changed) as changed_lens:
        first, second = lens.run(TEXT, keep="output", logits=True), changed_lens.run(TEXT, logits=True)
        difference = second.weights(1, 0)[20, 8] - first.weights(1, 0)[20, 8]
    head = {"run": number, "contrast": body["contrast"], "site": 1, "head": 0}
    shown = client.ask_floats("values", **head, show="difference", rows=[20, 21], columns=[8, 9])
    assert abs(float(difference)) > 0.01 and float(shown[0]) == pytest.approx(float(difference), abs=1e-6)
    gap = second.logits[0, -1]
    assert body["metric"]["corrupted"] == pytest.approx(float(gap[ord("s")] - gap[ord("t")]), abs=1e-5)

    sources, hooked = HookedModel(jumok.load("tiny"), "s", "t"), HookedModel(changed, "s", "t")
    effects = client.ask_floats("sweep", **ask, part="attention").reshape(2, 2)
    for layer in range(2):
        for head in range(2):
            width = slice(head * hooked.head_width, (head + 1) * hooked.head_width)
            source = sources.run(TEXT, layer)[1]

            def replace(value: Tensor, width: slice = width, source: Tensor = source) -> Tensor:
                value[..., width] = source[..., width]
                return value

            expected = hooked.run(TEXT, layer, replace=replace)[0] - hooked.run(TEXT)[0]
            assert effects[layer, head] == pytest.approx(expected, abs=5e-5)
    failure = client.fail("contrast", run=number, model="korean")
    assert "tiny has 2 attentions with 4 heads in all and korean 4 with 16" in str(failure)
    session.close()


def test_checkpoints_of_a_run_can_be_the_second_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs" / "mine"
    for step in ("step-00000003", "step-00000006"):
        jumok.save(jumok.load("tiny"), folder / "checkpoints" / step)
    (folder / "run.json").write_text("{}")
    session = Session(Start("tiny"))
    client = PageClient(session)
    models = {model["name"]: model["checkpoints"] for model in client.ask("hello")["models"]}
    assert models["runs/mine"] == ["step-00000006", "step-00000003"] and models["tiny"] == []
    number = client.ask("run", model="tiny", text=TEXT, edits=[])["run"]
    body = client.ask("contrast", run=number, model="runs/mine/checkpoints/step-00000003")
    assert body["metric"]["clean"] == body["metric"]["corrupted"] and body["change"] == 0
    for name in ("step-00000009", "../../other", "", "step-00000003/.."):
        assert "there is no model" in str(client.fail("contrast", run=number, model=f"runs/mine/checkpoints/{name}"))
    session.close()


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        ("contrast", {}, "give a second text or a second model"),
        ("contrast", {"text": ""}, "the text is empty"),
        ("contrast", {"text": 5}, "text must be"),
        ("contrast", {"text": "a" * 513}, "512"),
        ("contrast", {"text": OTHER, "model": "/etc"}, "there is no model '/etc'"),
        ("contrast", {"text": OTHER, "right": "sa"}, "'sa' is 2 tokens (s a)"),
        ("contrast", {"text": OTHER, "right": 10**9}, "token must be less than"),
        ("contrast", {"text": OTHER, "right": "s", "wrong": "s"}, "the same; choose two"),
        ("contrast", {"text": OTHER, "right": [1]}, "right must be"),
        ("sweep", {"text": OTHER, "part": "everything"}, "part cannot be"),
        ("patch", {"text": OTHER, "patches": [{"part": "attention", "site": 0}]}, "needs a head"),
        ("patch", {"text": OTHER, "patches": [{"part": "mlp", "site": 0, "head": 0}]}, "needs a head"),
        ("patch", {"text": OTHER, "patches": [{"part": "attention", "site": 2, "head": 0}]}, "site must be less"),
        ("patch", {"text": OTHER, "patches": [{"part": "attention", "site": 0, "head": 2}]}, "head must be less"),
        ("patch", {"text": OTHER, "patches": [{"part": "mlp", "site": 0, "position": 21}]}, "position must be less"),
        ("patch", {"text": LONGER, "patches": [{"part": "mlp", "site": 0, "position": 4}]}, "no partner"),
        ("patch", {"text": OTHER, "patches": [{"part": "mlp", "site": 0}] * 501}, "length at most 500"),
    ],
    ids=lambda part: str(part)[:40],
)
def test_fields_are_checked(client, run, kind, fields, message) -> None:
    failure = client.fail(kind, run=run, **fields)
    assert failure.reason == "invalid" and message in str(failure), failure


def test_a_sweep_reports_its_progress_and_is_cancelled(client, run, monkeypatch) -> None:
    client.progress.clear()
    client.ask("contrast", run=run, text=OTHER)
    entered, may_go_on = threading.Event(), threading.Event()
    measure, measured = EditRunner.measure, []

    def hold(runner: EditRunner, *arguments: Any) -> Tensor:
        entered.set()
        assert may_go_on.wait(60)
        measured.append(arguments)
        return measure(runner, *arguments)

    monkeypatch.setattr(EditRunner, "measure", hold)
    sweep = client.begin("sweep", run=run, text=OTHER, part="residual")
    assert entered.wait(60)
    client.ask("cancel", cancel=sweep)
    may_go_on.set()
    with pytest.raises(FailedAskError) as failure:
        client.wait(sweep)
    assert failure.value.reason == "cancelled" and len(measured) == 1  # it ended in the first block
    assert any(head["stage"] == "measuring" for head in client.progress)
    assert len(client.ask_floats("sweep", run=run, text=OTHER, part="attention")) == 4


def test_alignment() -> None:
    assert align_tokens("abc", "xyz") == [0, 1, 2]
    assert align_tokens("", "ab") == [None, None] and align_tokens("ab", "") == []
    assert align_tokens("Tom saw Ann", "Tommy saw Ann") == [0, 1, 2, None, None, *range(3, 11)]
    assert align_tokens("axbyc", "aXXbYYYc") == [0, None, 1, 2, None, None, 3, 4]  # from the last token on
    long = align_tokens("a" + "bc" * 2000, "a" + "cd" * 1500 + "c")
    assert long[0] == 0 and long[-1] == 4000 and len(long) == 3002
    pairs = [(partner, position) for position, partner in enumerate(long) if partner is not None]
    assert pairs == sorted(pairs) and len({partner for partner, _ in pairs}) == len(pairs)
