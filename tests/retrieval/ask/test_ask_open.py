"""The options of ``jumok ask --open``: what has no meaning together is refused before anything is read."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from jumok.cli import cli


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["Who?", "--open", "--why"], "--open shows the whole page, so --why has no effect"),
        (["Who?", "--open", "--json"], "--open shows the whole page, so --json has no effect"),
        (["Who?", "--open", "--search-only"], "--open shows the whole page, so --search-only has no effect"),
        (["Who?", "When?", "--open"], "--open begins with one question"),
        (["Who?", "--port", "8000"], "--port belongs to the server of the page; add --open"),
        (["Who?", "--no-browser"], "--no-browser belongs to the server of the page; add --open"),
        (["Who?", "--open", "--allow-host", "*"], "is not a name such as"),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, list) else "",
)
def test_options_without_meaning_are_refused(arguments: list[str], sentence: str) -> None:
    answer = CliRunner().invoke(cli, ["ask", "no-such-folder", *arguments])
    assert answer.exit_code == 2 and sentence in answer.stderr
