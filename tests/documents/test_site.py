"""Check what the documentation site is built from: the generated reference pages, tables, and the Korean note."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import jumok

ROOT = Path(__file__).parents[2]
HANDBOOK = sorted((ROOT / "docs").glob("??/*.md"))


def load_hook(name: str) -> ModuleType:
    """Return a module of tools/site/, which is not a package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / "site" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_page_of_the_package_documents_every_public_name() -> None:
    page = load_hook("reference_pages").render_package(ROOT / "src" / "jumok")
    for name in jumok.__all__:
        assert f"`jumok.{name}`" in page
    documented = re.findall(r"^::: jumok\.(\w+)$", page, flags=re.MULTILINE)
    assert set(jumok.__all__) - {"__version__"} <= set(documented)


def test_command_line_page_shows_no_backslashes() -> None:
    page = load_hook("reference_pages").render_command_line()
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert len(rows) > 50
    assert not [row for row in rows if re.search(r"\\[<|\[]", row)]


@pytest.mark.parametrize("page", HANDBOOK, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_code_in_tables_has_no_backslashes(page: Path) -> None:
    # "\|" inside backticks is shown with its backslash on the site
    assert not re.findall(r"`[^`\n]*\\\|[^`\n]*`", page.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("language", "uri", "noted"), [("ko", "jumok.md", True), ("en", "jumok.md", False)])
def test_korean_reference_pages_say_that_they_are_english(language: str, uri: str, noted: bool) -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri=f"en/reference/{uri}"))
    config = SimpleNamespace(theme={"language": language})
    markdown = load_hook("language_pages").on_page_markdown("# jumok\n\ntext", page=page, config=config, files=None)
    assert markdown.startswith("# jumok\n") and markdown.endswith("text")
    assert ("영어" in markdown) == noted
