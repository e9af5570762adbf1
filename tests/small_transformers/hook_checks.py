"""Compare sites with the modules of a model, and edits with hooks on the model that know nothing of the lens.

The hooks find the place of a head by its numbers: the module whose input is the joined outputs of the heads.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
import transformers
from torch import Tensor, nn

import jumok
from jumok.errors import ArgumentError
from jumok.lens import Ablate, Edit, KnockOut, Patch

from .model_inputs import Inputs
from .outputs import compare_outputs

EQUAL, DIFFERENT, REFUSED, UNCHECKED = "equal", "different", "refused", "unchecked"
BOUND = 1e-4  # of outputs under an edit, in proportion to the largest number
SMALLEST_CHANGE = 1e-6  # of the outputs, by an edit that has an effect
MOST_TEXTS = 64
LARGEST_WEIGHT = 0.95  # of an edge that is knocked out
ModelOutput = Any
Run = Callable[[Any, Inputs], ModelOutput]


def find_repeated_sites(model: Any, inputs: Inputs, sites: list[str], run: Run) -> list[str]:
    """Return the sites "name#1" whose module was not executed as often.

    Args:
        model: A model of transformers.
        inputs: Its inputs.
        sites: The sites that the lens recorded with them.
        run: Runs the model without the lens.
    """
    executions: Counter[str] = Counter()
    with ExitStack() as hooks:
        for name, module in model.named_modules():
            handle = module.register_forward_pre_hook(lambda *_, name=name: executions.update([name]))
            hooks.callback(handle.remove)
        run(model, inputs)
    names = set(executions)

    def is_repeated(site: str) -> bool:
        module, _, number = site.partition("#")
        while module not in names and module:  # "attention.global", "attention.call1"
            module = module.rpartition(".")[0]
        return bool(number) and int(number) >= executions[module]

    return [site for site in sites if is_repeated(site)]


def check_edits(model: Any, inputs: Inputs, token_mask: Tensor | None, run: Run) -> dict[str, str]:
    """Compare four edits of the last attention with hooks, and return what came of each: "equal" or another word.

    Args:
        model: An editable model of transformers.
        inputs: Its inputs.
        token_mask: True at real tokens, or None.
        run: Runs the model without the lens.
    """
    results = dict.fromkeys(("Ablate(layer)", "Ablate(layer, head)", "KnockOut", "Patch(residual)"), UNCHECKED)
    with jumok.Lens(model) as lens:
        torch.manual_seed(0)
        clean = lens.run(**inputs, keep=("output", "value", "input"), logits=True)
        site = _choose_site(clean)

        def compare(edit: Edit, expected: ModelOutput) -> str:
            torch.manual_seed(0)  # as ``run`` does
            try:
                edited = lens.run(**inputs, edits=edit, logits=True).output
            except ArgumentError:
                return REFUSED
            is_equal = compare_outputs(expected, edited, token_mask).size <= BOUND
            if is_equal and compare_outputs(clean.output, edited, None).size < SMALLEST_CHANGE:
                return UNCHECKED  # the edit changes nothing, so there is nothing to see
            return EQUAL if is_equal else DIFFERENT

        layer = clean.sites.get_layer(site)
        outputs = clean.activations[f"{site}.output"]
        reader = _find_reader(model, inputs, site, outputs, run)
        projection = _find_last_weighted(model, inputs, site, run) if reader is None else reader
        if projection is not None:
            with _change_output(projection, torch.zeros_like):
                results["Ablate(layer)"] = compare(Ablate(layer), run(model, inputs))

        def run_with_heads(change: Callable[[Tensor], object]) -> ModelOutput:
            with _wrap_attention(model, site, change) if reader is None else _change_heads(reader, outputs, change):
                return run(model, inputs)

        head = outputs.shape[1] - 1
        edge = _choose_edge(clean.attention(site), clean.weights(site, head), head)
        if reader is not None or model.config._attn_implementation == "sdpa":
            expected = run_with_heads(lambda heads: heads[:, head].zero_())
            results["Ablate(layer, head)"] = compare(Ablate(layer, head), expected)
        if edge is not None and results["Ablate(layer, head)"] == EQUAL:
            query, key = edge

            def remove_edge(heads: Tensor) -> None:
                for batch in range(len(heads)):
                    weight = clean.weights(site, head, batch)[query, key]
                    values = clean.activations[f"{site}.value"]
                    removed = values[batch, head * values.shape[1] // heads.shape[1], key]
                    heads[batch, head, query] = (heads[batch, head, query] - weight * removed) / (1 - weight)

            position = clean.attention(site).query_positions[query]
            results["KnockOut"] = compare(KnockOut(layer, head, position, key), run_with_heads(remove_edge))
        results["Patch(residual)"] = _check_patch(lens, inputs, site, run, compare)
    return results


def _choose_site(capture: jumok.Capture) -> str:
    """Return the last attention of the largest stack, so that earlier ones could be mistaken for it."""
    plain = [site for site in capture.sites.names if not re.search(r"\.(call\d+|global)(#\d+)?$", site)]
    stacks = Counter(re.sub(r"\d+", "", site) for site in plain)
    largest = max(stacks.values())
    return [site for site in plain if stacks[re.sub(r"\d+", "", site)] == largest][-1]


def _choose_edge(attention: Any, weights: Tensor, head: int) -> tuple[int, int] | None:
    """Return the row and key with the largest weight that leaves something to the other keys in every text."""
    if attention.batch > MOST_TEXTS:  # windows of an image
        return None
    for batch in range(attention.batch):
        weights = torch.maximum(weights, attention.tile(batch, head, slice(None), slice(None)))
    candidates = weights.masked_fill(weights > LARGEST_WEIGHT, 0.0)
    index = int(candidates.argmax())
    row, key = divmod(index, weights.shape[1])
    return (row, key) if candidates[row, key] > 0 else None


def _join_heads(outputs: Tensor) -> Tensor:
    return outputs.transpose(1, 2).flatten(2)


class _Reader(NamedTuple):
    """An execution of a module, counted from 1, and how often the module is executed for each of its attention's."""

    module: nn.Module
    execution: int
    repetitions: int = 1


def _find_reader(model: Any, inputs: Inputs, site: str, outputs: Tensor, run: Run) -> _Reader | None:
    """Return the first module whose input is the joined outputs of an attention's heads."""
    expected = _join_heads(outputs)
    readers: list[_Reader] = []
    executed: Counter[nn.Module] = Counter()

    def compare(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        executed[module] += 1
        has_weight = isinstance(getattr(module, "weight", None), Tensor) and module.weight.dim() == 2
        if has_weight and arguments and isinstance(arguments[0], Tensor) and arguments[0].numel() == expected.numel():
            joined = arguments[0].detach()
            if joined.shape[-1] == expected.shape[-1] and torch.allclose(
                joined.reshape(expected.shape), expected, atol=1e-4
            ):
                readers.append(_Reader(module, executed[module]))

    with ExitStack() as hooks:
        for module in model.modules():
            hooks.callback(module.register_forward_pre_hook(compare).remove)
        run(model, inputs)
    if not readers:
        return None
    name, execution = _split_site(site)
    executions = executed[model.get_submodule(name)]
    repetitions = max(1, executed[readers[0].module] // max(1, executions))
    readers = [reader._replace(repetitions=repetitions) for reader in readers if reader.module is readers[0].module]
    # a model that reads the same text twice computes the same outputs twice
    return next((reader for reader in readers if (reader.execution - 1) // repetitions + 1 == execution), readers[0])


def _split_site(site: str) -> tuple[str, int]:
    """Return the module of a site, and which of its executions it is, counted from 1."""
    module, _, number = site.partition("#")
    return module, int(number or 0) + 1


def _find_last_weighted(model: Any, inputs: Inputs, site: str, run: Run) -> _Reader | None:
    """Return the linear layer whose output an attention module returns, where it changes its heads before that."""
    name, execution = _split_site(site)
    attention = model.get_submodule(name)
    last: list[tuple[nn.Module, Tensor]] = []
    is_returned: list[bool] = []

    def compare(module: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
        returned = output[0] if isinstance(output, tuple) else output
        is_returned.append(bool(last) and torch.equal(returned.flatten(), last[-1][1].flatten()))

    with ExitStack() as hooks:
        for module in attention.modules():
            if isinstance(module, nn.Linear):
                hook = module.register_forward_hook(lambda module, _, output: last.append((module, output.clone())))
                hooks.callback(hook.remove)
        hooks.callback(attention.register_forward_hook(compare).remove)
        run(model, inputs)
    return _Reader(last[-1][0], execution) if is_returned and is_returned[-1] else None


@contextmanager
def _wrap_attention(model: Any, site: str, change: Callable[[Tensor], object]) -> Iterator[None]:
    """Change the heads that transformers' function returns for an attention, as ``[batch, head, query, width]``."""
    name, execution = _split_site(site)
    changed, executions = model.get_submodule(name), itertools.count(1)
    compute = transformers.AttentionInterface._global_mapping["sdpa"]

    def compute_changed(module: nn.Module, *arguments: Any, **settings: Any) -> Any:
        output, weights = compute(module, *arguments, **settings)
        if module is changed and next(executions) == execution:
            change(output.transpose(1, 2))
        return output, weights

    transformers.AttentionInterface.register("sdpa", compute_changed)
    try:
        yield
    finally:
        transformers.AttentionInterface.register("sdpa", compute)


@contextmanager
def _change_output(reader: _Reader, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    def change_first(module: nn.Module, arguments: tuple[Any, ...], output: Any) -> Any:
        return (change(output[0]), *output[1:]) if isinstance(output, tuple) else change(output)

    executions = itertools.count(1)

    def change_repetitions(*arguments: Any) -> Any:
        is_same = (next(executions) - 1) // reader.repetitions == (reader.execution - 1) // reader.repetitions
        return change_first(*arguments) if is_same else None

    with reader.module.register_forward_hook(change_repetitions):
        yield


def _limit_to_execution(reader: _Reader, hook: Callable[..., Any]) -> Callable[..., Any]:
    executions = itertools.count(1)
    return lambda *arguments: hook(*arguments) if next(executions) == reader.execution else None


@contextmanager
def _change_heads(reader: _Reader, outputs: Tensor, change: Callable[[Tensor], object]) -> Iterator[None]:
    """Change the heads in the input of a module in place, as ``[batch, head, query, width]``."""

    def change_input(module: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        joined = arguments[0].reshape(outputs.shape[0], outputs.shape[2], outputs.shape[1], outputs.shape[3])
        heads = joined.transpose(1, 2).clone()
        change(heads)
        return (_join_heads(heads).reshape(arguments[0].shape), *arguments[1:])

    with reader.module.register_forward_pre_hook(_limit_to_execution(reader, change_input)):
        yield


def _check_patch(
    lens: jumok.Lens, inputs: Inputs, site: str, run: Run, compare: Callable[[Edit, ModelOutput], str]
) -> str:
    """Compare a patch of the residual stream that enters the block of an attention, from the same texts reversed."""
    model: Any = lens.model
    other = {
        name: tensor.flip(0) if isinstance(tensor, Tensor) and tensor.dim() > 1 else tensor
        for name, tensor in inputs.items()
    }
    try:
        run(model, other)
    except Exception:  # such as a text that begins with padding
        return UNCHECKED
    words = site.split(".")
    ancestors = [".".join(words[:count]) for count in range(len(words), 0, -1)]
    lists = {name for name, module in model.named_modules() if isinstance(module, nn.ModuleList)}
    blocks = [name for name in ancestors if name.rpartition(".")[0] in lists]
    torch.manual_seed(0)
    source = lens.run(**other, keep=("input",), logits=True)
    block = next((name for name in blocks if f"{name}.input" in source.activations), None)
    if block is None:
        return UNCHECKED
    stored: list[Tensor] = []

    def replace(module: nn.Module, arguments: tuple[Any, ...], settings: dict[str, Any]) -> Any:
        if not stored_all:
            stored.append((arguments[0] if arguments else settings["hidden_states"]).clone())
            return None
        if arguments:
            return (stored[0], *arguments[1:]), settings
        return arguments, {**settings, "hidden_states": stored[0]}

    stored_all = False
    with model.get_submodule(block).register_forward_pre_hook(replace, with_kwargs=True):
        run(model, other)
        if len(stored) != 1:
            return UNCHECKED
        stored_all = True
        expected = run(model, inputs)
    return compare(Patch(block, part="residual", source=source), expected)
