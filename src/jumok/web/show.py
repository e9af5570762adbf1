"""``jumok.show``: the page in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from jumok.defaults import LANGUAGES
from jumok.errors import ArgumentError

if TYPE_CHECKING:
    from jumok.lens import Edit

    from .messages import Language
    from .widget import PageWidget, Selection

HEIGHT = 760  # pixels


def show(
    model: Any = "tiny",
    text: str | None = None,
    tokenizer: object = None,
    edits: Edit | Sequence[Edit] = (),
    *,
    selection: Selection | Sequence[int | None] | None = None,
    language: str | None = None,
    height: int = HEIGHT,
) -> PageWidget:
    """Show a model's attention in a notebook: JupyterLab, Notebook 7 or marimo.

        page = jumok.show("tiny", "the cat sat; the cat")

    Args:
        model: A model of Jumok or transformers, what ``jumok.load`` returned, or the name or folder of a model.
        text: The text that the model reads, or the path of an image or a recording for a model that reads one.
        tokenizer: The tokenizer of the text, as for ``Lens``; default: the one that was loaded with the model.
        edits: The edits to begin with.
        selection: Where to begin: the index of the attention, the head, and optionally a query and a key.
        language: "en" or "ko"; default: the language of the browser.
        height: The height of the view in pixels.

    Returns:
        The widget, which a notebook displays. ``widget.edits`` and ``widget.selection`` can be read and set,
        ``widget.capture`` is the capture that is shown, and ``widget.save(path)`` writes one HTML file.

    Raises:
        ArgumentError: If anywidget is not installed, or an argument is invalid.
    """
    if find_spec("anywidget") is None:
        raise ArgumentError('jumok.show needs anywidget; install it with: pip install "jumok[notebook]"')
    if language is not None and language not in LANGUAGES:
        raise ArgumentError(f"language must be one of {', '.join(LANGUAGES)}, not {language!r}")
    from .session import Start
    from .widget import PageWidget, check_page_edits, read_selection

    chosen = None if selection is None else read_selection(selection)
    start = Start(model, text, tokenizer, check_page_edits(edits), chosen, cast("Language", language))
    return PageWidget(start, height)
