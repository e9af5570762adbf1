"""Write Python code that patches one input into another, as the page did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jumok.errors import JumokError
from jumok.lens import Patch
from jumok.lens.edits.edit_base import KEPT_WORDS
from jumok.lens.effects.metrics import LogitDifference, Metric, encode_single_token
from jumok.lens.sites import SOURCE, TARGET
from jumok.tasks.labelled_input import LabelledInput
from jumok.web.inspection import Inspection
from jumok.web.opened_model import OpenedModel

from .python_code import write_edit

if TYPE_CHECKING:
    from .contrast import Contrast


def write_sweep(inspection: Inspection, contrast: Contrast, metric: Metric, part: str) -> str:
    """Return a program that patches every part of the first input, one at a time; "" if the inputs are no texts."""
    if not _can_write(inspection, contrast):
        return ""
    other = contrast.opened is not inspection.opened
    arguments = [
        _name_model(contrast.opened, other),
        "clean",
        "corrupted",
        *([] if part == "residual" else [f'part="{part}"']),
        "metric=metric",
        *([f"source_model={_name_model(inspection.opened, False)}"] if other else []),
    ]
    lines = [*_write_inputs(inspection, contrast, metric, "sweep_patches")]
    if not _has_equal_positions(contrast):
        lines.append("partners = {")
        for side in (SOURCE, TARGET) if contrast.labelled.target else (SOURCE,):
            lines.append(f'    "{side}": {contrast.partners[side]},  # by position of corrupted: that of clean')
        lines.append("}")
        arguments.append("partners=partners")
    column = "head" if part == "attention" else "position"
    lines += [
        f"sweep = sweep_patches({', '.join(arguments)})",
        'print(f"clean {sweep.clean:.4f}, corrupted {sweep.corrupted:.4f}")',
        "restored = sweep.recovered.nan_to_num()",
        "for index in restored.flatten().argsort(descending=True)[:10].tolist():",
        "    layer, column = divmod(index, restored.shape[1])",
        f'    print(f"{{sweep.blocks[layer]}} {column} {{column}}: restores {{float(restored[layer, column]):.1%}}")',
    ]
    return "\n".join(lines) + "\n"


def write_patches(inspection: Inspection, contrast: Contrast, metric: Metric, patches: Sequence[Patch]) -> str:
    """Return a program that measures both inputs, and the second one with patches; "" if the inputs are no texts."""
    if not _can_write(inspection, contrast):
        return ""
    other = contrast.opened is not inspection.opened
    lines = _write_inputs(inspection, contrast, metric, "Patch" if patches else "")
    lenses = f"jumok.Lens({_name_model(contrast.opened, other)}) as lens"
    if other:
        lenses = f"jumok.Lens({_name_model(inspection.opened, False)}) as source_lens, {lenses}"
    keep = sorted({KEPT_WORDS[patch.part] for patch in patches})
    recorded = f", keep={keep[0]!r}" if len(keep) == 1 else f", keep={tuple(keep)}" if keep else ""
    spread = "*" if contrast.labelled.target else ""
    lines += [
        f"with {lenses}:",
        "    metric = metric.resolve_tokens(lens.tokenizer)",
        f"    source = {'source_lens' if other else 'lens'}.run({spread}clean{recorded}, logits=True)",
        f'    captures = {{"clean": source, "corrupted": lens.run({spread}corrupted, logits=True)}}',
    ]
    if patches:
        lines.append("    patches = [")
        lines += [f"        {write_edit(patch)}," for patch in patches]
        lines.append("    ]")
        lines.append(f'    captures["patched"] = lens.run({spread}corrupted, edits=patches, logits=True)')
    lines += [
        "for name, capture in captures.items():",
        '    print(f"{name}: {float(metric(capture.logits, capture.logits)[0]):.4f}")',
    ]
    return "\n".join(lines) + "\n"


def _can_write(inspection: Inspection, contrast: Contrast) -> bool:
    """Return whether the inputs are texts and their metric is one of tokens; files and numbers have other code."""
    return inspection.opened.reads == "text" and contrast.opened.reads == "text" and contrast.scores is not None


def _has_equal_positions(contrast: Contrast) -> bool:
    return all(partners == list(range(len(partners))) for partners in contrast.partners.values())


def _name_model(opened: OpenedModel, is_second: bool) -> str:
    """Return a name as Python, or the variable of a model that has none."""
    if isinstance(opened.source, str):
        return repr(opened.name)
    return "other_model" if is_second else "model"


def _write_inputs(inspection: Inspection, contrast: Contrast, metric: Metric, imported: str) -> list[str]:
    assert isinstance(metric, LogitDifference)
    lines = ["import torch\n"] if contrast.labelled.target else []
    lines.append("import jumok")
    if imported:
        lines.append(f"from jumok.lens import {imported}")
    lines.append("from jumok.lens.effects.metrics import LogitDifference\n")
    for opened, is_second in ((inspection.opened, False), (contrast.opened, contrast.opened is not inspection.opened)):
        if not isinstance(opened.source, str):
            line = f"{_name_model(opened, is_second)} = ...  # your model, as jumok.load returns it"
            lines += [line] if line not in lines else []
    for name, opened, labelled, text in (
        ("clean", inspection.opened, inspection.labelled, inspection.text),
        ("corrupted", contrast.opened, contrast.labelled, contrast.key[0] or inspection.text),
    ):
        lines.append(f"{name} = {_write_input(opened, labelled, text)}")
    tokens = [_write_token(contrast.opened, token) for token in (metric.right, metric.wrong)]
    position = "" if metric.position == -1 else f", position={metric.position}"
    lines.append(f"metric = LogitDifference({tokens[0]}, {tokens[1]}{position})")
    return lines


def _write_input(opened: OpenedModel, labelled: LabelledInput, text: str | None) -> str:
    """Return a text, its tokens where generated ones follow it, or the text with what the decoder reads."""
    if labelled.target:
        return f"({text!r}, torch.tensor([{labelled.inputs[1][0].tolist()}]))"
    tokenizer = opened.loaded.tokenizer
    is_text = text is not None and tokenizer is not None and tokenizer.encode(text) == labelled.tokens
    return repr(text) if is_text else repr(labelled.tokens)


def _write_token(opened: OpenedModel, token: int | str) -> str:
    """Return a token as its text, where that is this token alone, else as its id."""
    tokenizer = opened.loaded.tokenizer
    if tokenizer is None or not isinstance(token, int):
        return repr(token)
    text = tokenizer.decode([token])
    try:
        return repr(text) if encode_single_token(text, tokenizer) == token else repr(token)
    except JumokError:
        return repr(token)
