"""The house: imports point one way, nothing heavy is imported before it is needed, no file says where it was made."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "jumok"

# Which packages each package may import. The order is
# attention <- layers <- models <- checkpoint <- {training, generate} <- lens <- recipes <- tasks <- lab <- cli.
# data imports only axes and errors; draw imports only errors; lens never imports training.
BASE = {"axes", "defaults", "errors", "fields", "small_batch_linear", "tap"}
MODELS = {"attention", "layers", "models", *BASE}
ARROWS: dict[str, set[str]] = {
    "defaults": set(),
    "errors": set(),
    "axes": {"errors"},
    "fields": {"errors"},
    "small_batch_linear": set(),
    "tap": {"errors"},
    "draw": {"errors"},
    "data": {"axes", "errors"},
    "attention": BASE,
    "layers": {"attention", *BASE},
    "models": {"layers", "attention", *BASE},
    "checkpoint": {"data", *MODELS},
    "generate": {"checkpoint", "data", *MODELS},
    "training": {"checkpoint", *MODELS},
    "lens": {"generate", "checkpoint", "data", "draw", *MODELS},
    "recipes": {"lens", "training", "generate", "checkpoint", "data", "draw", *MODELS},
    "tasks": {"generate", "checkpoint", "data", *MODELS},
    "lab": {"tasks", "lens", "generate", "checkpoint", "data", "draw", *MODELS},
    "cli": {"lab", "tasks", "recipes", "lens", "training", "generate", "checkpoint", "data", "draw", *MODELS},
    "__main__": {"cli"},
    "__init__": {"attention", "checkpoint", "errors", "lens", "recipes", "tasks"},
}


def room(module: str) -> str:
    """jumok.attention.mask -> attention; jumok -> __init__."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def imports(path: Path) -> set[str]:
    """The rooms of ours that a file imports, lazily or not."""
    module = ["jumok", *path.relative_to(PACKAGE).with_suffix("").parts]
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*module[: len(module) - node.level], *([node.module] if node.module else [])])
            # "from jumok import tap" imports the room tap
            names = [f"{base}.{alias.name}" for alias in node.names] if base == "jumok" else [base]
        else:
            continue
        found |= {room(name) for name in names if name.split(".")[0] == "jumok"}
    return found


def test_imports_point_one_way() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    assert len(files) > 20
    for path in files:
        own = room(".".join(["jumok", *path.relative_to(PACKAGE).with_suffix("").parts]))
        allowed = ARROWS[own] | {own}
        wanted = {name for name in imports(path) if name in ARROWS or (PACKAGE / name).exists()}
        assert wanted <= allowed, f"{path.relative_to(ROOT)} imports {sorted(wanted - allowed)}"


def test_every_room_has_its_arrows() -> None:
    rooms = {path.stem if path.is_file() else path.name for path in PACKAGE.iterdir() if path.suffix in (".py", "")}
    assert rooms - {"__pycache__"} == ARROWS.keys()


@pytest.mark.parametrize("command", [["--help"], ["--version"], ["attend", "--help"], ["run", "--help"]])
def test_help_does_not_wait_for_torch(command: list[str]) -> None:
    program = (
        "import sys; from jumok.cli import cli\n"
        f"try: cli.main({command!r})\n"
        "except SystemExit as stop: assert not stop.code\n"
        "heavy = {'torch', 'numpy', 'matplotlib', 'transformers', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if "--help" in command:
        assert "Examples:" in done.stdout


def test_public_names_are_there_and_lazy() -> None:
    program = (
        "import sys, jumok\n"
        "assert 'torch' not in sys.modules\n"
        "assert all(getattr(jumok, name) is not None for name in jumok.__all__)\n"
        "assert set(dir(jumok)) == set(jumok.__all__)\n"
        "from jumok import attend; from jumok.attention import mask, score, bias\n"
        "assert callable(attend)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_no_file_names_a_machine_or_a_registry() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    forbidden = re.compile(
        "/" + "work/|/" + "root/|/" + r"tmp/w|pypi\." + r"org|files\.python" + "hosted|registry\\.npm"
    )
    for name in listed:
        path = ROOT / name
        if path.suffix in {".png", ".svg", ".safetensors"} or not path.is_file():
            continue
        found = forbidden.search(path.read_text())
        assert found is None, f"{name} says {found}"


def test_nothing_is_pickled_and_nothing_is_executed() -> None:
    forbidden = re.compile(r"\bpickle\b|\btorch\.load\b|trust_remote_code|(?<![.\w])(eval|exec)\(")
    for path in PACKAGE.rglob("*.py"):
        code = re.sub(r"#.*|\"\"\"[\s\S]*?\"\"\"", "", path.read_text())
        # the one exception: tensors alone, and only when somebody asked for it
        code = code.replace('torch.load(path, map_location="cpu", weights_only=True, mmap=True)', "")
        assert not forbidden.search(code), path
