"""Write what the page shows as one HTML file, which opens from disk without a network.

The file contains the bundle of the page, its style sheet, an index in JSON and one compressed blob. Its content
security policy allows nothing else. ``saved_format.SavedIndex`` describes index and blob of a file that shows one run.
A live file computes by itself: its index is a ``messages.Hello``, and its blob the model (``model_pack``).
"""

from __future__ import annotations

import base64
import gzip
import html
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from jumok import __version__
from jumok.errors import ArgumentError
from jumok.files import write_atomically
from jumok.lens import Edit
from jumok.reporting import Progress, StageProgress

from . import messages
from .answers.head_measures import describe_kinds, measure_effects
from .answers.python_code import write_code
from .asks import MAX_TEXT, EffectAsk
from .input_media import read_listening
from .inspection import Inspection, inspect_model, read_page_edits
from .messages import Over, Selection, encode_json
from .model_list import list_models, simplify_reads
from .model_pack import explain_missing_engine, pack_model
from .opened_model import OpenedModel, Pass, open_listed_model
from .saved_format import SavedAudio, SavedIndex
from .saved_layers import store_layers
from .saved_maps import MAX_LONG_BYTES, ROUNDED, Blob, MapStore
from .saved_vectors import VectorStore
from .session import Start

MAX_CLASSIFIED_POSITIONS = 1024  # with more, classifying the heads of a model of 100 million parameters takes minutes
SAVED_EFFECTS: tuple[Over, ...] = ("heads", "edges")
STORED_ASKS = ("hello", "select", "cancel", "thumbnails", "tiles", "values", "line", "code")

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<style>{style}</style>
</head>
<body>
<div id="jumok" data-carrier="{carrier}"></div>
<noscript>This page needs JavaScript. 이 페이지는 JavaScript가 필요합니다.</noscript>
<script type="application/json" id="jumok-index">{index}</script>
<script type="application/octet-stream" id="jumok-blob">{blob}</script>
<script{kind}>{script}</script>
</body>
</html>
"""


def save_html(
    path: str | os.PathLike[str],
    start: Start,
    *,
    layer: int | str | None = None,
    head: int | None = None,
    max_bytes: int = MAX_LONG_BYTES,
    live: bool = False,
    second: str | None = None,
    effects: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Run a model, and write what the page shows as one HTML file.

    Args:
        path: The path of the file; its folder must exist.
        start: The model, its input, edits and selection.
        layer: The layer to show first, by number or site name; default: that of ``start``, else the first. Of an input
            whose maps do not all fit, its maps are stored first.
        max_bytes: The largest number of bytes, before compression, for the maps of an input whose maps do not all fit.
        live: Write the model into the file, so that it runs other texts and edits by itself.
        second: Another model for this file, with which the first one can be compared.
        effects: Measure the effects of heads and edges on the prediction without edits, and store them.
        progress: Called with the finished and all steps (0: not known); an exception that it raises stops the work.

    Returns:
        The path of the file.

    Raises:
        ArgumentError: If the model cannot read the input, the layer or head does not exist, or no page can compute the
            model.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise ArgumentError(f"{target.parent} is not a folder; create it first")

    def report(done: int, total: int, stage: str) -> None:
        if progress is not None:
            progress(done, total)

    models = [_open_model(start.model, start.tokenizer), *([] if second is None else [_open_model(second)])]
    opened = models[0]
    for model in models if live else ():
        if (problem := explain_missing_engine(model.loaded)) is not None:
            raise ArgumentError(problem)  # before a large model runs
    edits = [edit if isinstance(edit, Edit) else read_page_edits([edit])[0] for edit in start.edits]
    inspection = inspect_model(opened, 1, None, start.text, edits, 0, report, begin=start.begin)
    selection = _select_head(inspection, start.selection, layer, head)
    if live:
        content = build_live_html(inspection, models[1:], selection=selection, language=start.language)
    else:
        _classify(inspection, report)
        if effects:
            for over in SAVED_EFFECTS:
                inspection.clean.effects[over] = measure_effects(inspection, EffectAsk(id=0, run=1, over=over), report)
        content = build_html(
            inspection, selection=selection, language=start.language, max_bytes=max_bytes, progress=report
        )
    write_atomically(target, content)
    return target


def build_html(
    inspection: Inspection,
    *,
    selection: Selection | None = None,
    language: messages.Language | None = None,
    max_bytes: int = MAX_LONG_BYTES,
    progress: StageProgress | None = None,
) -> bytes:
    """Return the HTML file of a run, with the kinds and effects that were measured."""
    report = progress or (lambda done, total, stage: None)
    kinds, effects = inspection.clean.kinds, list(inspection.clean.effects.values())
    blob = Blob()
    store = MapStore(inspection, blob, max_bytes)
    first = (0, 0) if selection is None else (selection.site, selection.head)
    passes: dict[messages.Pass, Pass | None] = {"clean": inspection.clean, "edited": inspection.edited}

    report(0, store.total, "computing")
    thumbnails = {
        name: store.store_thumbnails(shown, lambda: report(0, store.total, "computing"))
        for name, shown in passes.items()
    }
    maps = store.store_maps(first, lambda done, total: report(done, total, "computing"))
    vectors = VectorStore(passes, blob)
    stored_vectors = vectors.store(first[0])
    layers = store_layers(inspection, passes, blob, lambda: report(store.total, store.total, "computing"))
    can = [*STORED_ASKS]
    can += ["token", "cell"] if store.is_complete else []
    can += ["steps"] if vectors.stored else []
    can += ["layers"] if layers["clean"] else []
    can += ["kinds"] if kinds is not None else []
    can += ["effect"] if effects else []
    can += ["audio", "listening"] if inspection.sound is not None else []
    picture = inspection.picture
    run = inspection.describe()
    run.notes = [*run.notes, *_explain_limits(store, vectors)]
    index = SavedIndex(
        hello=_describe_file(inspection, can, selection, language),
        run=run,
        image=None if picture is None else blob.add(picture.png),
        audio=_store_sound(inspection, blob),
        kinds=kinds,
        effects=effects,
        code=write_code(inspection, selection),
        thumbnails=thumbnails,
        maps=maps,
        vectors=stored_vectors,
        layers=layers,
    )
    compressed = gzip.compress(blob.join(), 6, mtime=0)
    return _assemble("file", index, base64.b64encode(compressed).decode("ascii"), inspection.opened.name)


def _open_model(model: Any, tokenizer: object = None) -> OpenedModel:
    return open_listed_model(next(iter(list_models(model).values())), tokenizer)


def build_live_html(
    inspection: Inspection,
    second_models: Sequence[OpenedModel] = (),
    *,
    selection: Selection | None = None,
    language: messages.Language | None = None,
) -> bytes:
    """Return an HTML file with the model of a run and others, which begins with the input and the edits of the run.

    Raises:
        ArgumentError: If no page can compute the model, or an edit reads another capture.
    """
    packed = " ".join(pack_model(opened.loaded) for opened in (inspection.opened, *second_models))
    for edit in inspection.edits:
        if getattr(edit, "source", None) is not None:
            raise ArgumentError(f"a live page has no capture that {type(edit).__name__} could read; leave the edit out")
    hello = _describe_file(inspection, [], selection, language, carrier="live")  # the page knows what it can
    hello.models += [_describe_model(opened) for opened in second_models]
    return _assemble("live", hello, packed, inspection.opened.name)


def _select_head(
    inspection: Inspection, selection: Selection | None, layer: int | str | None, head: int | None
) -> Selection | None:
    """Return where the page begins; a layer and a head replace those of the selection."""
    if layer is None and head is None:
        return selection
    start = selection or Selection(0, 0)
    site = start.site if layer is None else inspection.sites.index(inspection.clean.capture.sites.find(layer))
    chosen = start.head if head is None else head
    heads = inspection.clean.maps[site].heads
    if not 0 <= chosen < heads:
        raise ArgumentError(f"{inspection.sites[site]} has {heads} heads, counted from 0; {chosen} is not one of them")
    return Selection(site, chosen, start.query, start.key)


def _classify(inspection: Inspection, report: StageProgress) -> None:
    """Find the kinds of all heads, unless the input is long or the model cannot be classified."""
    longest = max(max(site_map.queries, site_map.keys) for site_map in inspection.clean.maps)
    if longest <= MAX_CLASSIFIED_POSITIONS:
        with suppress(ArgumentError):
            inspection.clean.kinds = describe_kinds(inspection, report)


def _store_sound(inspection: Inspection, blob: Blob) -> SavedAudio | None:
    """Store the audio, its spectrogram, and where the heads that follow it in time hear each word."""
    sound = inspection.sound
    if sound is None:
        return None
    passes: dict[messages.Pass, Pass | None] = {"clean": inspection.clean, "edited": inspection.edited}
    listening = {
        name: None if shown is None else blob.add_floats(read_listening(sound, shown, inspection.sites))
        for name, shown in passes.items()
    }
    return SavedAudio(blob.add(sound.wav), blob.add(sound.spectrogram), listening)


def _describe_file(
    inspection: Inspection,
    can: list[str],
    selection: Selection | None,
    language: messages.Language | None,
    carrier: Literal["file", "live"] = "file",
) -> messages.Hello:
    """Return the answer to the first ask of the page."""
    opened = inspection.opened
    return messages.Hello(
        version=__version__,
        carrier=carrier,
        can=can,
        models=[_describe_model(opened)],
        model=opened.name,
        text=inspection.text or "",
        edits=[messages.Edit(edit.to_json()) for edit in inspection.edits],
        selection=selection,
        language=language,
        max_text=MAX_TEXT,
    )


def _describe_model(opened: OpenedModel) -> messages.ModelEntry:
    return messages.ModelEntry(opened.name, opened.name, simplify_reads(opened.reads))


def _explain_limits(store: MapStore, vectors: VectorStore) -> list[str]:
    """Return sentences about what the file does not store exactly."""
    notes = []
    if store.form == ROUNDED:
        notes.append("this file stores weights rounded to 256 steps; the model has the exact ones")
    if store.stored < store.total:
        notes.append(
            f"this file stores {store.stored:,} of {store.total:,} maps, and thumbnails of all; choose others by "
            "--layer and --head when you save it"
        )
    if store.pooled:
        notes.append(
            f"{store.pooled:,} maps are stored as the largest weights of cells, because of their masks or scores"
        )
    if vectors.largest_difference:
        notes.append(
            "this file stores the vectors of the computation as 16-bit numbers; a weight computed from them differs by "
            f"at most {vectors.largest_difference:.1g}"
        )
    if 0 < vectors.stored < vectors.total:
        notes.append(
            f"this file stores the vectors of {vectors.stored} of {vectors.total} attentions; choose another one by "
            "--layer when you save it"
        )
    return notes


def read_plain_script() -> str:
    """Return the bundle of the page as a script that is not a module: a page that is opened from disk may load it, and
    start a worker with its text."""
    module = (files("jumok.web") / "static" / "jumok.js").read_text(encoding="utf-8")
    body, count = re.subn(r"export\s*\{[^{}]*\};?\s*$", "", module)
    if count != 1:
        raise ArgumentError("the script of the page cannot be part of a file; install jumok again")
    return f'(()=>{{"use strict";{body}}})();'


def _assemble(carrier: Literal["file", "live"], index: object, blob: str, title: str) -> bytes:
    """Return the HTML file; ``blob`` is base64."""
    folder = files("jumok.web") / "static"
    is_live = carrier == "live"
    script = _escape_script(read_plain_script() if is_live else (folder / "jumok.js").read_text(encoding="utf-8"))
    style = (folder / "jumok.css").read_text(encoding="utf-8")
    if "</style" in style.lower():
        raise ArgumentError("the style sheet of the page cannot be part of a file; install jumok again")
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src blob: data:; "
        "media-src blob:; base-uri 'none'; form-action 'none'"
    )
    if is_live:
        policy += "; worker-src blob:"  # the same script, from memory
    page = PAGE.format(
        policy=policy,
        title=f"Jumok: {html.escape(title, quote=False)}",
        style=style,
        carrier=carrier,
        # inside a script element, "<" could begin its end or a comment
        index=encode_json(index).decode().replace("<", "\\u003c"),
        blob=blob,
        kind="" if is_live else ' type="module"',
        script=script,
    )
    return page.encode("utf-8", "replace")


def _escape_script(script: str) -> str:
    """Return a script that does not end, or begin a comment, inside its element."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _hash(content: str) -> str:
    """Return the source expression of a content security policy that allows one script or style sheet."""
    return "sha256-" + base64.b64encode(sha256(content.encode()).digest()).decode("ascii")
