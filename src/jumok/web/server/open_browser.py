"""Open the page in the user's browser."""

from __future__ import annotations

import os
import sys
import webbrowser


def has_display() -> bool:
    """Return True if a browser with windows can run here."""
    if sys.platform in ("darwin", "win32"):
        return "SSH_CONNECTION" not in os.environ
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def open_browser(address: str) -> bool:
    """Open an address in the user's browser, and return whether one was started.

    Without a display, only the program that the variable BROWSER names is started: other text browsers would take over
    the terminal.
    """
    if not has_display() and not os.environ.get("BROWSER"):
        return False
    try:
        return webbrowser.open(address)
    except webbrowser.Error:
        return False
