"""Read the source code of a folder and list where it breaks our naming and documentation rules.

Used by tests/test_house.py. The rules are those of CONTRIBUTING.md.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Names that say nothing about what they hold.
BANNED_VALUES = frozenset(
    re.findall(
        r"\w+",
        """told found one some seen place places who made whole wanted given asked known kept here there what where
        stand meant said heard others both each rest own""",
    )
)
# Functions are verb phrases. A participle says what was done, not what the function does.
IRREGULAR_PARTICIPLES = frozenset(
    re.findall(r"\w+", "chosen drawn lost begun written taken shown held left given known told kept made seen heard")
)
VERBS_IN_ED = frozenset(["embed", "feed", "seed", "need", "speed", "shed"])
USER_PACKAGES = ("jumok", "jumok.attention", "jumok.lens", "jumok.models", "jumok.layers")
PROPERTIES = frozenset(["property", "cached_property", "setter", "fixture"])  # functions that are read like values
# Names that a public API or another library fixes.
ALLOWED = {
    "given": {"attention/mask/table_masks.py", "attention/bias.py"},  # mask.given, bias.given
}


@dataclass(frozen=True)
class Binding:
    """A name that the code introduces: a variable, an argument, a function or a class."""

    path: Path
    line: int
    name: str
    kind: str  # "value", "function" or "class"

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.kind} {self.name}"


def list_bindings(path: Path) -> Iterator[Binding]:
    """Yield every name that the file binds."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            is_property = bool({_decorator_name(decorator) for decorator in node.decorator_list} & PROPERTIES)
            yield Binding(path, node.lineno, node.name, "value" if is_property else "function")
        elif isinstance(node, ast.ClassDef):
            yield Binding(path, node.lineno, node.name, "class")
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield Binding(path, node.lineno, node.id, "value")
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield Binding(path, node.lineno, node.attr, "value")
        elif isinstance(node, ast.arg):
            yield Binding(path, node.lineno, node.arg, "value")


def find_banned_names(root: Path) -> list[Binding]:
    """List the bindings below ``root`` whose names are banned, and the functions named by a participle."""
    banned = []
    for path in sorted(root.rglob("*.py")):
        for binding in list_bindings(path):
            bare = binding.name.strip("_")
            is_participle = binding.kind == "function" and _starts_with_participle(bare)
            if not is_participle and bare not in BANNED_VALUES:
                continue
            if any(str(path).endswith(suffix) for suffix in ALLOWED.get(bare, ())):
                continue
            banned.append(binding)
    return banned


def _starts_with_participle(name: str) -> bool:
    first = name.partition("_")[0]
    return first in IRREGULAR_PARTICIPLES or (first.endswith("ed") and first not in VERBS_IN_ED)


def find_undocumented(root: Path) -> list[str]:
    """List public functions and classes below ``root`` without a docstring, and parameters of what users call that no
    docstring explains.

    Users call what the packages in ``USER_PACKAGES`` export. A parameter counts as documented when the ``Args:`` (or
    ``Attributes:``) section names it. Exempt are: methods that override one of another class (the base class
    explains them), properties, click commands (their options carry the help text), and config fields that are declared
    with a help text.
    """
    exported = {name for package in USER_PACKAGES for name in importlib.import_module(package).__all__}
    trees = {path: ast.parse(path.read_text()) for path in sorted(root.rglob("*.py"))}
    bases = _methods_by_class(trees)
    problems: list[str] = []
    for path, tree in trees.items():
        if path.name == "__main__.py":
            continue
        if path.stat().st_size and ast.get_docstring(tree) is None:
            problems.append(f"{path}:1: module has no docstring")
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                problems += [f"{path}:{line}" for line in _check_function(node, node.name, node.name in exported)]
            elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                problems += [f"{path}:{line}" for line in _check_class(node, bases, node.name in exported)]
    return problems


def _methods_by_class(trees: dict[Path, ast.Module]) -> dict[str, tuple[list[str], set[str]]]:
    """Map each class name to the names of its bases and of its own methods."""
    classes: dict[str, tuple[list[str], set[str]]] = {}
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                parents = [_last_name(base) for base in node.bases]
                classes[node.name] = (parents, {part.name for part in node.body if isinstance(part, ast.FunctionDef)})
    return classes


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript):
        return _last_name(node.value)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _inherits(name: str, parents: list[str], classes: dict[str, tuple[list[str], set[str]]]) -> bool:
    """Whether a base class among ``parents`` (or above) defines the method ``name``."""
    return any(
        parent in classes and (name in classes[parent][1] or _inherits(name, classes[parent][0], classes))
        for parent in parents
    )


def _check_class(node: ast.ClassDef, classes: dict[str, tuple[list[str], set[str]]], is_exported: bool) -> list[str]:
    docstring = ast.get_docstring(node)
    parents = [_last_name(base) for base in node.bases]
    if docstring is None:
        return [f"{node.lineno}: class {node.name} has no docstring"]
    problems = []
    for part in node.body:
        if isinstance(part, ast.FunctionDef):
            if part.name == "__init__" and is_exported:
                documented = f"{docstring}\n{ast.get_docstring(part) or ''}"
                problems += _missing_parameters(part, f"{node.name}.__init__", documented)
            elif not part.name.startswith("_") and not _inherits(part.name, parents, classes):
                problems += _check_function(part, f"{node.name}.{part.name}", is_exported)
    if is_exported and "dataclass" in {_decorator_name(decorator) for decorator in node.decorator_list}:
        for part in node.body:
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                field = part.target.id
                declared = isinstance(part.value, ast.Call)  # integer(3, "help text")
                constant = "ClassVar" in ast.unparse(part.annotation)
                if not (field.startswith("_") or declared or constant or _names(docstring, field)):
                    problems.append(f"{part.lineno}: field {node.name}.{field} is not documented")
    return problems


def _check_function(node: ast.FunctionDef, name: str, is_exported: bool) -> list[str]:
    decorators = {_decorator_name(decorator) for decorator in node.decorator_list}
    if decorators & {"overload", *PROPERTIES}:
        return []
    docstring = ast.get_docstring(node)
    if docstring is None:
        return [f"{node.lineno}: {name} has no docstring"]
    if not is_exported or decorators & {"command", "group", "option", "argument"}:
        return []
    return _missing_parameters(node, name, docstring)


def _missing_parameters(node: ast.FunctionDef, name: str, docstring: str) -> list[str]:
    arguments = node.args
    parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    missing = [
        parameter.arg
        for parameter in parameters
        if parameter.arg not in ("self", "cls")
        and not parameter.arg.startswith("_")
        and not _names(docstring, parameter.arg)
    ]
    return [f"{node.lineno}: {name}({', '.join(missing)}): not in Args"] if missing else []


def _names(docstring: str, parameter: str) -> bool:
    """Whether an ``Args:`` or ``Attributes:`` section has a line of its own for ``parameter``."""
    sections = re.split(r"^\s*(?:Args|Attributes):\s*$", docstring, flags=re.MULTILINE)[1:]
    pattern = rf"^\s*\*{{0,2}}{re.escape(parameter)}(?: \([^)]*\))?:"
    return any(re.search(pattern, section, flags=re.MULTILINE) for section in sections)


def _decorator_name(node: ast.expr) -> str:
    return _last_name(node.func if isinstance(node, ast.Call) else node)


if __name__ == "__main__":
    import sys

    for folder in sys.argv[1:]:
        names = find_banned_names(Path(folder))
        undocumented = find_undocumented(Path(folder)) if folder.startswith("src") else []
        sys.stdout.write(
            "\n".join(
                [
                    *map(str, names),
                    *undocumented,
                    f"{len(names)} banned names, {len(undocumented)} undocumented in {folder}",
                ]
            )
            + "\n"
        )
