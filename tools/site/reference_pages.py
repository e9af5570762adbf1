"""MkDocs hook: write the reference pages: one for each package, the command line, and the census of transformers.

The pages go into ``docs/en/reference`` and are git-ignored. The Korean site falls back to them, because docstrings and
help texts are English.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import jumok
from jumok.cli import cli
from jumok.cli.help import Command

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
PAGES = ROOT / "docs" / "en" / "reference"
REFERENCE_SECTION, API_SECTION, INNER_SECTION = "Reference", "Python API", "Inner packages"
# what people import; the packages below them are listed after these
MAIN_PACKAGES = ("jumok", *(f"jumok.{name}" for name in ("attention", "attention.mask", "lens", "models", "layers")))
MAIN_PACKAGES += tuple(f"jumok.{name}" for name in ("checkpoint", "generate", "training", "recipes", "data", "draw"))
# the command line has a page of its own
SKIPPED_PACKAGES = ("jumok.cli",)


def list_packages() -> list[Path]:
    """Return the folder of every documented package, parents first."""
    folders = sorted(path.parent for path in (SOURCE / "jumok").rglob("__init__.py"))
    return [folder for folder in folders if name_package(folder) not in SKIPPED_PACKAGES]


def name_package(folder: Path) -> str:
    """Return the import name of a package folder, for example ``jumok.attention.mask``."""
    return ".".join(folder.relative_to(SOURCE).parts)


def list_definitions(path: Path) -> list[str]:
    """Return the public functions and classes that a file defines, without those that it imports."""
    statements = ast.parse(path.read_text(encoding="utf-8")).body
    names = [node.name for node in statements if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return [name for name in names if not name.startswith("_")]


def render_package(folder: Path) -> str:
    """Return the Markdown of a package's page: what it exports as a table, its own definitions, then its modules.

    Modules that define exported names come first. A re-exported name is documented with its module and not repeated.
    """
    package = name_package(folder)
    members = list_definitions(folder / "__init__.py") or "false"
    options = f"    options:\n      members: {members}\n      show_root_heading: false\n"
    exported = {} if package == "jumok" else list_exports(package)
    used = list(dict.fromkeys(definition.__module__ for definition in exported.values() if is_documented(definition)))
    paths = sorted(path for path in folder.glob("*.py") if not path.stem.startswith("_"))
    modules = sorted((f"{package}.{path.stem}" for path in paths), key=lambda name: (*used, name).index(name))
    directives = [f"::: {module}\n" for module in modules]
    entry_points = render_entry_points() if package == "jumok" else render_exports(package, exported)
    return "\n".join([f"# {package}\n", f"::: {package}\n{options}", entry_points, *directives])


def list_exports(package: str) -> dict[str, Any]:
    """Return the definitions that a package offers by ``__all__``, by name.

    First what a module is named after: ``Lens`` of jumok.lens.lens, ``attend`` of jumok.attention.attend.
    """
    module = importlib.import_module(package)
    exported = {name: getattr(module, name) for name in getattr(module, "__all__", ()) if not name.startswith("_")}

    def rank(entry: tuple[str, Any]) -> int:
        name, definition = entry
        stem = getattr(definition, "__module__", "").rpartition(".")[2]
        return 0 if stem in (name, package.rpartition(".")[2]) else 1 if stem == name.lower() else 2

    return dict(sorted(exported.items(), key=rank))


def is_documented(definition: object) -> bool:
    """Return whether the site has a section on a definition: on a class or a function, not on a value."""
    return inspect.isclass(definition) or inspect.isfunction(definition)


def render_exports(package: str, exported: Mapping[str, Any]) -> str:
    """Return the table of what a package exports, with links to the sections."""
    rows = []
    for name, definition in exported.items():
        if inspect.ismodule(definition):
            continue
        link = f"`{name}`"
        if is_documented(definition) and definition.__module__.startswith("jumok"):
            link = f"[`{name}`][{definition.__module__}.{definition.__qualname__}]"
        # an instance has the docstring of its class, which says little about it
        rows.append(f"| {link} | {summarize(definition) if is_documented(definition) else ''} |")
    return "\n".join([f"| `from {package} import` | description |", "|---|---|", *rows, ""]) if rows else ""


def render_entry_points() -> str:
    """Return the Markdown of the names that ``import jumok`` offers: a table, then each with its documentation.

    The package imports them on first use, so they are not definitions of its file.
    """
    names = [name for name in jumok.__all__ if not name.startswith("_")]
    names.sort(key=lambda name: (name.endswith("Error"), name[0].isupper(), name))
    rows = [f"| [`jumok.{name}`](#jumok.{name}) | {summarize(getattr(jumok, name))} |" for name in names]
    rows.append("| `jumok.__version__` | The version of the package, a string. |")
    directives = [f"::: jumok.{name}\n" for name in names]
    return "\n".join(["| name | description |", "|---|---|", *rows, "", *directives])


def summarize(definition: object) -> str:
    """Return the first paragraph of a docstring as the content of a table cell."""
    paragraph = (inspect.getdoc(definition) or "").split("\n\n")[0]
    return " ".join(paragraph.split()).replace("|", "&#124;")


def list_commands(command: click.Command, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """Yield a command and all commands below it, in the order in which they were added."""
    yield command, context
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from list_commands(child, click.Context(child, info_name=name, parent=context))


def render_command(command: click.Command, context: click.Context) -> str:
    """Return the Markdown section of one command: its description, usage, options and examples."""
    if isinstance(command, Command):
        command.read_help(context)
    level = "#" * (context.command_path.count(" ") + 2)
    usage = command.get_usage(context).removeprefix("Usage: ")
    parts = [f"{level} {context.command_path}", inspect.cleandoc(command.help or ""), f"```text\n{usage}\n```"]

    options = [option for option in command.get_params(context) if isinstance(option, click.Option)]
    records = [option.get_help_record(context) for option in options]
    rows = [f"| <code>{escape_cell(names)}</code> | {escape_cell(text)} |" for names, text in filter(None, records)]
    if rows:
        parts.append("\n".join(["| option | meaning |", "|---|---|", *rows]))

    if command.epilog:
        parts.append(f"```text\n{command.epilog.strip()}\n```")
    return "\n\n".join(parts)


def escape_cell(text: str) -> str:
    """Return the text as the content of a table cell, with Markdown's own characters as HTML entities.

    Backslashes would be visible: Markdown does not accept them before every character, nor inside ``<code>``.
    """
    text = " ".join(text.split())
    for character in "|[<":
        text = text.replace(character, f"&#{ord(character)};")
    return text


def render_command_line() -> str:
    """Return the Markdown of the page of all commands."""
    root = click.Context(cli, info_name="jumok", **cli.context_settings)
    sections = ["# Command line"]
    sections += [render_command(command, context) for command, context in list_commands(cli, root)]
    return "\n\n".join(sections) + "\n"


def write_pages() -> None:
    """Write all pages, and delete those of packages that no longer exist.

    Unchanged pages are not written again, so that ``mkdocs serve`` does not rebuild forever.
    """
    pages = {PAGES / f"{name_package(folder)}.md": render_package(folder) for folder in list_packages()}
    pages[PAGES / "cli.md"] = render_command_line()
    census = ROOT / "bench" / "results" / "models-of-transformers.md"
    pages[PAGES / census.name] = census.read_text(encoding="utf-8")
    for path in set(PAGES.glob("jumok*.md")) - set(pages):
        path.unlink()
    for path, text in pages.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Write the pages and append the packages to the navigation; MkDocs calls this once per language."""
    write_pages()
    (reference,) = (entry[REFERENCE_SECTION] for entry in config.nav if REFERENCE_SECTION in entry)
    if not any(API_SECTION in entry for entry in reference):
        packages = [name_package(folder) for folder in list_packages()]
        inner = [package for package in packages if package not in MAIN_PACKAGES]
        for title, names in ((API_SECTION, MAIN_PACKAGES), (INNER_SECTION, inner)):
            reference.append({title: [{name: f"reference/{name}.md"} for name in names]})
    return config
