"""MkDocs hook: add one API reference page for each package of ``src/jumok`` to the site and to its navigation."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig

SOURCE = Path(__file__).parent.parent / "src"
PAGES = Path(__file__).parent / "en" / "reference"
# The command line has its own page, generated from the commands.
SKIPPED_PACKAGES = ("jumok.cli",)
# A heading for the package and one per module; the package re-exports the modules' names, which are not repeated.
HEADING_ONLY = """\
    options:
      members: false
      show_submodules: false
      show_root_heading: false
"""


def list_packages() -> list[Path]:
    """Return the folder of every documented package, parents first."""
    folders = sorted(path.parent for path in (SOURCE / "jumok").rglob("__init__.py"))
    return [folder for folder in folders if name_package(folder) not in SKIPPED_PACKAGES]


def name_package(folder: Path) -> str:
    """Return the import name of a package folder, for example ``jumok.attention.mask``."""
    return ".".join(folder.relative_to(SOURCE).parts)


def render_page(folder: Path) -> str:
    """Return the Markdown of a package's page: its docstring, then each of its modules."""
    package = name_package(folder)
    parts = [f"# {package}\n", f"::: {package}\n{HEADING_ONLY}"]
    modules = sorted(path.stem for path in folder.glob("*.py") if not path.stem.startswith("_"))
    parts += [f"::: {package}.{module}\n" for module in modules]
    return "\n".join(parts)


def write_pages() -> None:
    """Write the pages into ``docs/en/reference`` (git-ignored) and delete those of packages that no longer exist.

    The Korean site falls back to these pages, because docstrings are English. Unchanged pages are not written again,
    so that ``mkdocs serve`` does not rebuild forever.
    """
    pages = {PAGES / f"{name_package(folder)}.md": render_page(folder) for folder in list_packages()}
    for path in set(PAGES.glob("jumok*.md")) - set(pages):
        path.unlink()
    for path, text in pages.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Write the pages and append them to the navigation as the section "Python API"."""
    write_pages()
    packages = [name_package(folder) for folder in list_packages()]
    entries = [{package.removeprefix("jumok."): f"reference/{package}.md"} for package in packages]
    config.nav.append({"Python API": ["reference/index.md", *entries]})
    return config
