"""Write Python code that reproduces what the page shows: the model, the input, the edits, predictions and a weight."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields

from jumok.attention import mask as masks
from jumok.lens import Capture, Edit
from jumok.web.inspection import Inspection
from jumok.web.maps import predictions
from jumok.web.maps.site_maps import WindowMap
from jumok.web.messages import Selection

LINE_LENGTH = 100  # a comment is cut to this
SHORTEST_RANGE = 4  # adjacent positions that are written as a range
SOURCE_NAME = "source"  # the variable of a capture that an edit reads


def write_code(inspection: Inspection, selection: Selection | None) -> str:
    """Return a program that computes the numbers of a run and of the selected weight, and prints them."""
    parts = [_write_imports(inspection), _write_model(inspection), _write_edits(inspection)]
    parts += [_write_runs(inspection), _write_predictions(inspection)]
    if selection is not None:
        parts.append(_write_weight(inspection, selection))
    return "\n\n".join(part for part in parts if part) + "\n"


def write_edit(edit: Edit) -> str:
    """Return an edit as a Python expression, without fields that have their default.

    >>> from jumok.lens import KnockOut, Remask
    >>> write_edit(KnockOut(layer=3, head=1, query=9, key=(2, 4)))
    'KnockOut(layer=3, head=1, query=9, key=(2, 4))'
    >>> write_edit(Remask(mask=masks.causal & masks.window(8)))
    'Remask(mask=causal & window(8))'
    >>> write_edit(KnockOut(layer="decoder.0.cross", key=(4, 5, 6, 7)))
    "KnockOut(layer='decoder.0.cross', key=range(4, 8))"
    """
    arguments = []
    for field in fields(edit):
        content = getattr(edit, field.name)
        if field.default is MISSING or content != field.default:
            text = SOURCE_NAME if isinstance(content, Capture) else _write_field(content)
            arguments.append(f"{field.name}={text}")
    return f"{type(edit).__name__}({', '.join(arguments)})"


def _write_field(content: object) -> str:
    """Return a field as Python; adjacent positions, such as those of a stretch of audio, as a range."""
    if isinstance(content, tuple) and len(content) >= SHORTEST_RANGE:
        positions = range(content[0], content[-1] + 1)
        if content == tuple(positions):
            return repr(positions)
    return repr(content)


def _write_imports(inspection: Inspection) -> str:
    contents = [content for edit in inspection.applied_edits for content in vars(edit).values()]
    expressions = [repr(content) for content in contents if isinstance(content, masks.Mask)]
    names = sorted({name for text in expressions for name in re.findall(r"[a-z_]+", text) if hasattr(masks, name)})
    lines = ["import jumok"]
    if names:
        lines.append(f"from jumok.attention.mask import {', '.join(names)}")
    kinds = sorted({type(edit).__name__ for edit in inspection.applied_edits})
    if kinds:
        lines.append(f"from jumok.lens import {', '.join(kinds)}")
    if _has_prepared_input(inspection):
        lines.append("from jumok.checkpoint.transformers_folder import open_model")
        lines.append("from jumok.tasks.labelled_input import prepare_input")
    if inspection.sound is not None:
        lines.append("from jumok.tasks.speech.listening import transcribe_with_edits")
    if inspection.labelled.target and not _has_prepared_input(inspection):
        lines.insert(0, "import torch\n")
    return "\n".join(lines)


def _has_prepared_input(inspection: Inspection) -> bool:
    """Return whether the input is an image or numbers, which a function prepares."""
    return inspection.opened.reads != "text"


def _write_model(inspection: Inspection) -> str:
    opened = inspection.opened
    if isinstance(opened.source, str):
        if not _has_prepared_input(inspection):
            return ""
        return f"loaded = open_model({opened.name!r})"
    lines = ["model = ...  # your model"]
    if opened.loaded.tokenizer is not None:
        lines.append("tokenizer = ...  # its tokenizer")
    return "\n".join(lines)


def _write_edits(inspection: Inspection) -> str:
    lines = [f"    {write_edit(edit)}," for edit in inspection.applied_edits]
    sources = [edit for edit in inspection.applied_edits if getattr(edit, "source", None) is not None]
    before = [f"{SOURCE_NAME} = ...  # the capture that an edit reads"] if sources else []
    return "\n".join([*before, "edits = [", *lines, "]"]) if lines else ""


def _write_runs(inspection: Inspection) -> str:
    opened, labelled = inspection.opened, inspection.labelled
    is_prepared = _has_prepared_input(inspection)
    lines = []
    if is_prepared:
        model = "loaded" if isinstance(opened.source, str) else "model"
        text = inspection.text if inspection.text is not None else inspection.start_text
        begin = f", begin={inspection.sound.begin}" if inspection.sound is not None and inspection.sound.begin else ""
        lines.append(f"labelled = prepare_input({model}, {text!r}{begin})")
        arguments = "*labelled.positional, **labelled.named"
    else:
        arguments = "text" if inspection.answered is None else "tokens"
        content = repr(inspection.text) if inspection.answered is None else f"{labelled.tokens}  # prompt and answer"
        lines.append(f"{arguments} = {content}")
        if labelled.target:
            target = labelled.inputs[1][0].tolist()
            comment = " ".join(labelled.target)[:LINE_LENGTH]
            lines.append(f"target = torch.tensor([{target}])  # {_make_printable(comment)}")
            arguments = "text, target"
        model = repr(opened.name) if isinstance(opened.source, str) else "model"
        if not isinstance(opened.source, str) and opened.loaded.tokenizer is not None:
            model += ", tokenizer"
    edits = ", edits=edits" if inspection.edits else ""
    settings = ", logits=True" + _write_last_logits(inspection)
    lines.append(f"with jumok.Lens({model}) as lens:")
    is_continued = not labelled.target and not is_prepared and inspection.answered is None
    new_tokens = len(labelled.source) - inspection.generated if is_continued else 0
    if new_tokens > 0:
        lines.append(f"    generation = lens.generate(text{edits}, limit={new_tokens})")
        lines.append("    tokens = [*lens.tokenizer.encode(text), *generation.token_ids]")
        arguments = "tokens"
    lines.append(f"    clean = lens.run({arguments}{settings})")
    if edits:
        lines.append(f"    edited = lens.run({arguments}{edits}{settings})")
    if inspection.sound is not None:
        lines.append('    print("clean transcript:", labelled.answer)')
        if edits:
            lines.append("    transcript = transcribe_with_edits(lens, labelled.inputs[0], edits, labelled.language)")
            lines.append('    print("edited transcript:", transcript.text)')
    return "\n".join(lines)


def _write_last_logits(inspection: Inspection) -> str:
    """Return the argument that omits all logits but the last, where the session omitted some, too."""
    rows = inspection.clean.predictions.rows
    facts = inspection.opened.lens.facts
    length = len(inspection.labelled.target) or len(inspection.labelled.source)
    is_omitted = predictions.count_predicted_positions(length, facts.vocabulary) < length
    return f", {facts.last_logits_argument}=1" if rows and is_omitted and facts.last_logits_argument else ""


def _write_predictions(inspection: Inspection) -> str:
    kind = inspection.clean.kind
    passes = '{"clean": clean, "edited": edited}' if inspection.edits else '{"clean": clean}'
    lines = [f"for name, capture in {passes}.items():"]
    if not inspection.clean.predictions.rows:
        return ""
    if kind == "number":
        lines.append("    print(name, capture.output)")
        return "\n".join(lines)
    if kind == "class":
        squash = "sigmoid()" if getattr(inspection.opened.model, "independent_classes", False) else "softmax(-1)"
        lines.append(f"    probabilities = capture.logits[0].{squash}")
        lines.append("    print(name, probabilities.topk(min(5, probabilities.shape[-1])))")
        return "\n".join(lines)
    position = inspection.clean.predictions.measured_position
    lines.append(f"    probabilities = capture.logits[0, {position}].softmax(-1)")
    lines.append("    for probability, token in zip(*probabilities.topk(5), strict=True):")
    token = "lens.tokenizer.decode([int(token)])" if inspection.opened.loaded.tokenizer is not None else "int(token)"
    lines.append(f'        print(f"{{name}}: {{float(probability):.6f}} {{{token}!r}}")')
    return "\n".join(lines)


def _write_weight(inspection: Inspection, selection: Selection) -> str:
    site, head, query, key = selection.site, selection.head, selection.query, selection.key
    if query is None:
        return ""
    layer = inspection.clean.capture.sites.get_layer(inspection.sites[site])
    site_map, batch, row, column = inspection.clean.maps[site], "", query, key
    if isinstance(site_map, WindowMap):
        window, row = site_map.locate(query)
        batch = f", batch={window}"
        if key is not None:
            key_window, column = site_map.locate(key)
            if key_window != window:
                return ""  # no weight connects two windows
    arguments = f"layer={layer!r}, head={head}, query={row}{batch}"
    labels = _describe_edge(inspection, selection)
    names = ["clean", "edited"] if inspection.edits else ["clean"]
    lines = [f"# {labels}"] if labels else []
    for name in names:
        weights = f"{name}.row({arguments})"
        number = weights if column is None else f"float({weights}[{column}])"
        lines.append(f'print("{name} weight:", {number})')
    return "\n".join(lines)


def _describe_edge(inspection: Inspection, selection: Selection) -> str:
    """Return the tokens of the selected edge, for a comment."""
    site, query, key = selection.site, selection.query, selection.key
    assert query is not None
    sides = inspection.clean.capture.sites.get_sides(inspection.sites[site])
    queries, keys = inspection.labelled.get_labels(sides.queries), inspection.labelled.get_labels(sides.keys)
    if query >= len(queries) or key is None or key >= len(keys):
        return ""
    return _make_printable(f"{queries[query]} attends to {keys[key]}"[:LINE_LENGTH])


def _make_printable(text: str) -> str:
    """Return a text that stays inside one comment."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
