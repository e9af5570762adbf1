"""The page as a notebook widget: its messages travel through the kernel, and a session answers them.

A kernel handles messages one after the other, so nothing here computes: the session answers from its own threads. While
a cell runs, a kernel of ipykernel 7 handles the messages of widgets in another thread (a subshell) if the frontend asks
for it, as JupyterLab 4.4 and Notebook 7.4 do. With other kernels, asks wait until the cell ends.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import anywidget
import msgspec
import traitlets
from msgspec.structs import astuple

from jumok.errors import ArgumentError
from jumok.files import write_atomically
from jumok.lens import Capture, Edit
from jumok.lens.edits.edit_base import check_edits

from . import messages
from .messages import Message
from .saved_file import build_html, build_live_html, save_html
from .session import Session, Start

STATIC = files("jumok.web") / "static"


class Selection(NamedTuple):
    """Where the user is, as a tuple for Python; ``messages.Selection`` is what the page and the session exchange."""

    site: int  # the index of the attention, in execution order
    head: int
    query: int | None = None
    key: int | None = None


class PageWidget(anywidget.AnyWidget):
    """The page in a notebook; ``jumok.show`` creates it."""

    _esm = (STATIC / "jumok.js").read_text(encoding="utf-8")
    _css = (STATIC / "jumok.css").read_text(encoding="utf-8")
    height = traitlets.Int().tag(sync=True)
    session: Session

    def __init__(self, start: Start, height: int) -> None:
        self._edits = start.edits
        self._selection = None if start.selection is None else Selection(*astuple(start.selection))
        self.session = Session(start, carrier="widget")
        self.session.watch(self._follow_page)
        self._send_lock = threading.Lock()
        super().__init__(height=height)
        _use_thread_of_frontend(self.comm)
        self.on_msg(self._receive)

    @property
    def edits(self) -> tuple[Edit, ...]:
        """The edits that the page shows. Setting them runs the model again, as a click in the page does."""
        return self._edits

    @edits.setter
    def edits(self, edits: Edit | Sequence[Edit]) -> None:
        self._edits = check_page_edits(edits)
        self.session.push(edits=self._edits)

    @property
    def selection(self) -> Selection | None:
        """Where the user is: site, head, query and key; None before the first click. Setting it moves the page."""
        return self._selection

    @selection.setter
    def selection(self, selection: Selection | Sequence[int | None]) -> None:
        checked = read_selection(selection)
        self._selection = Selection(*astuple(checked))
        self.session.push(selection=checked)

    @property
    def capture(self) -> Capture | None:
        """The capture that the page shows, that of the edited forward pass if there are edits; None before the first
        run."""
        inspection = self.session.get_inspection(self._send_message)
        if inspection is None:
            return None
        return (inspection.edited or inspection.clean).capture

    def save(self, path: str | os.PathLike[str], *, live: bool = False, effects: bool = False) -> Path:
        """Write what the page shows as one HTML file, which opens without this notebook, and return its path.

        Kinds of heads and effects are stored if the page has shown them.

        Args:
            path: The path of the file; its folder must exist.
            live: Write the model into the file, so that it runs other texts and edits by itself.
            effects: Measure the effects of heads and edges, and store them.

        Raises:
            ArgumentError: If there is no folder, or no page can compute the model.
        """
        inspection = self.session.get_inspection(self._send_message)
        if inspection is None:
            return save_html(path, self.session.start, live=live, effects=effects)
        target = Path(path)
        if not target.parent.is_dir():
            raise ArgumentError(f"{target.parent} is not a folder; create it first")
        selection = None if self._selection is None else messages.Selection(*self._selection)
        language = self.session.start.language
        if live:
            content = build_live_html(inspection, selection=selection, language=language)
        elif effects:  # by itself: the thread of the session may be using the model
            start = replace(self.session.start, text=inspection.text, edits=inspection.edits, selection=selection)
            return save_html(target, start, effects=True)
        else:
            content = build_html(inspection, selection=selection, language=language)
        write_atomically(target, content)
        return target

    def close(self) -> None:
        """Close the view and the session, and release the model."""
        if "session" in vars(self):  # ipywidgets also closes a widget that was refused
            self.session.close()
        super().close()

    def _receive(self, widget: object, ask: Any, buffers: object) -> None:
        """Pass an ask of the page to the session, which returns at once."""
        self.session.handle(ask, self._send_message)

    def _send_message(self, message: Message) -> None:
        """Send a message to the page; called from the threads of the session."""
        with self._send_lock:
            self.send(message.head, buffers=list(message.buffers))

    def _follow_page(self, change: dict[str, Any]) -> None:
        """Take over what the user changed in the page."""
        if "edits" in change:
            self._edits = tuple(Edit.from_json(edit) for edit in change["edits"])
        if "selection" in change:
            self._selection = Selection(*astuple(change["selection"]))


def check_page_edits(edits: Edit | Sequence[Edit]) -> tuple[Edit, ...]:
    """Return edits that the page can show: it knows them as JSON, without the captures of other inputs."""
    checked = check_edits(edits)
    for edit in checked:
        if getattr(edit, "source", None) is not None:
            raise ArgumentError(f"the page cannot show {type(edit).__name__} with another capture as its source")
    return tuple(checked)


def read_selection(selection: Sequence[int | None]) -> messages.Selection:
    """Return a selection from its two to four numbers."""
    numbers = tuple(selection)
    if not 2 <= len(numbers) <= 4:
        raise ArgumentError(f"a selection is (site, head), (site, head, query) or with a key too, not {numbers!r}")
    try:
        return msgspec.convert(dict(zip(Selection._fields, numbers, strict=False)), messages.Selection)
    except msgspec.ValidationError:
        raise ArgumentError(f"a selection consists of integers that are at least 0, not {numbers!r}") from None


def _use_thread_of_frontend(comm: Any) -> None:
    """Let the frontend choose the thread that handles the messages of a comm.

    ipykernel 7.4 handles them in the thread that used the comm last. That is the one that runs cells, so that asks
    would wait until a cell ends. Other versions do what the frontend says.
    """
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = lambda message, subshell: subshell
