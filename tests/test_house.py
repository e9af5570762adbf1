"""Rules for the whole repository: import order, names, documentation, folder sizes, lazy imports, forbidden content."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from source_rules import find_banned_names, find_undocumented

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "jumok"

HEAVY_COMMANDS = ("attend", "run", "experiment", "cost")  # they import torch when they run, but not for their help

# Which packages each package may import, as drawn in ARCHITECTURE.md. web is imported only by cli and the lazy
# jumok.show, and lens never imports training.
BASE = {"axes", "defaults", "errors", "fields", "files", "reporting", "small_batch_linear", "tap", "threads"}
MODELS = {"attention", "layers", "models", *BASE}
ALLOWED_IMPORTS: dict[str, set[str]] = {
    "defaults": set(),
    "errors": set(),
    "axes": {"errors"},
    "bilingual_text": {"defaults", "errors"},
    "fields": {"errors"},
    "files": {"errors"},
    "reporting": set(),
    "small_batch_linear": set(),
    "tap": {"errors"},
    "translation": {"reporting"},
    "threads": {"errors", "small_batch_linear"},
    "draw": {"errors", "files", "reporting"},
    "data": {"axes", "defaults", "errors", "files", "reporting"},
    "attention": BASE,
    "layers": {"attention", *BASE},
    "models": {"layers", "attention", *BASE},
    "checkpoint": {"data", *MODELS},
    "generate": {"translation", "checkpoint", "data", *MODELS},
    "training": {"translation", "checkpoint", *MODELS},
    "lens": {"generate", "checkpoint", "data", "draw", *MODELS},
    "recipes": {"translation", "training", "generate", "checkpoint", "data", "draw", *MODELS},
    "retrieval": {"generate", "checkpoint", "data", *MODELS},
    "tasks": {"retrieval", "lens", "generate", "checkpoint", "data", *MODELS},
    "lab": {"bilingual_text", "tasks", "lens", "checkpoint", "data", "draw", *MODELS},
    "web": {"translation", "lab", "tasks", "retrieval", "lens", "checkpoint", "data", "draw", *MODELS},
    "cli": {
        *{"bilingual_text", "translation"},
        *{"web", "lab", "tasks", "retrieval", "recipes", "lens", "training", "generate", "checkpoint", "data", "draw"},
        *MODELS,
    },
    "__main__": {"cli"},
    "__init__": {"attention", "checkpoint", "errors", "lens", "recipes", "retrieval", "tasks", "web"},
}


def package_of(module: str) -> str:
    """jumok.attention.mask -> attention; jumok -> __init__."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def imports(path: Path) -> set[str]:
    """Return the packages of ours that a file imports, lazily or not."""
    module = ["jumok", *path.relative_to(PACKAGE).with_suffix("").parts]
    packages: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*module[: len(module) - node.level], *([node.module] if node.module else [])])
            # "from jumok import tap" imports the module tap
            names = [f"{base}.{alias.name}" for alias in node.names] if base == "jumok" else [base]
        else:
            continue
        packages |= {package_of(name) for name in names if name.split(".")[0] == "jumok"}
    return packages


def test_imports_follow_the_package_order() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    assert len(files) > 20
    for path in files:
        package = package_of(".".join(["jumok", *path.relative_to(PACKAGE).with_suffix("").parts]))
        allowed = ALLOWED_IMPORTS[package] | {package}
        imported = {name for name in imports(path) if name in ALLOWED_IMPORTS or (PACKAGE / name).exists()}
        assert imported <= allowed, f"{path.relative_to(ROOT)} imports {sorted(imported - allowed)}"


def find_part_imports(package: Path) -> dict[str, set[str]]:
    """Return for each part of a package, a module or a folder, the other parts that it imports when it runs."""
    imported: dict[str, set[str]] = {}
    for path in package.rglob("*.py"):
        *folders, name = path.relative_to(package).with_suffix("").parts
        if not folders and name == "__init__":
            continue
        module = [package.name, *folders]
        parts = imported.setdefault(folders[0] if folders else name, set())
        tree = ast.parse(path.read_text())
        typing_only = [node for node in tree.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node)]
        hidden = {id(node) for block in typing_only for node in ast.walk(block)}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and id(node) not in hidden:
                base = (node.module or "").split(".")
                names = [*module[: len(module) - node.level + 1], *base] if node.level else base[1:]
                names = [name for name in names if name]
                if names[:1] == [package.name]:
                    parts |= {names[1]} if names[1:] else {alias.name for alias in node.names}
    return {part: (other_parts & imported.keys()) - {part} for part, other_parts in imported.items()}


@pytest.mark.parametrize("package", sorted({path.parent.name for path in PACKAGE.glob("*/__init__.py")} - {"web"}))
def test_the_parts_of_a_package_import_one_way(package: str) -> None:
    """A call can then be followed from the package's entry to its parts; web's session and saved files know each
    other."""
    parts = find_part_imports(PACKAGE / package)
    assert len(parts) > 1
    TopologicalSorter(parts).prepare()  # raises CycleError


def test_maps_of_the_page_know_no_inspection() -> None:
    files = sorted((PACKAGE / "web" / "maps").glob("*.py"))
    assert len(files) > 3
    for path in files:
        imported = set(re.findall(r"jumok\.web(?:\.| import )(\w+)", path.read_text()))
        assert imported <= {"asks", "messages", "maps"} and "from .." not in path.read_text(), path.name


@pytest.mark.parametrize("folder", ["src", "tests", "bench", "examples"])
def test_names_say_what_they_hold(folder: str) -> None:
    assert [str(binding) for binding in find_banned_names(ROOT / folder)] == []


def test_every_public_function_and_every_parameter_that_users_pass_is_documented() -> None:
    assert find_undocumented(PACKAGE) == []


def test_every_package_has_an_import_rule() -> None:
    packages = {path.stem if path.is_file() else path.name for path in PACKAGE.iterdir() if path.suffix in (".py", "")}
    assert packages - {"__pycache__"} == ALLOWED_IMPORTS.keys()


@pytest.mark.parametrize("line", ["--help", "--version", *(f"{name} --help" for name in HEAVY_COMMANDS)])
def test_help_does_not_import_torch(line: str) -> None:
    command = line.split()
    program = (
        "import sys; from jumok.cli import cli\n"
        f"try: cli.main({command!r})\n"
        "except SystemExit as stop: assert not stop.code\n"
        "heavy = {'torch', 'numpy', 'matplotlib', 'transformers', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    if "--help" in command:
        assert "Examples:" in process.stdout


def test_public_names_exist_and_are_imported_lazily() -> None:
    program = (
        "import sys, jumok\n"
        "assert 'torch' not in sys.modules\n"
        "assert all(getattr(jumok, name) is not None for name in jumok.__all__)\n"
        "assert set(dir(jumok)) == set(jumok.__all__)\n"
        "from jumok import attend; from jumok.attention import mask, score, bias\n"
        "assert callable(attend)"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr


def test_no_file_contains_a_local_path_or_registry_host() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    forbidden = re.compile(
        "/" + "work/|/" + "root/|/" + r"tmp/w|pypi\." + r"org|files\.python" + "hosted|registry\\.npm"
    )
    for name in listed:
        path = ROOT / name
        if path.suffix in {".png", ".svg", ".safetensors"} or not path.is_file():
            continue
        match = forbidden.search(path.read_text())
        assert match is None, f"{name} contains {match}"


def test_no_pickle_and_no_dynamic_execution() -> None:
    forbidden = re.compile(r"\bpickle\b|\btorch\.load\b|trust_remote_code|(?<![.\w])(eval|exec)\(")
    for path in PACKAGE.rglob("*.py"):
        code = re.sub(r"#.*|\"\"\"[\s\S]*?\"\"\"", "", path.read_text())
        if path.name == "tensor_files.py":  # read_pickled_file, the only exception: it reads tensors and numbers
            code = code.replace('torch.load(path, map_location="cpu", weights_only=True, mmap=True)', "", 1)
        code = code.replace("trust_remote_code=False", "")  # the only allowed setting: never run code of a folder
        assert not forbidden.search(code), path
