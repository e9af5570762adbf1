"""Install a wheel into a new environment in a temporary folder and try it there: ``python tools/check_wheel.py dist``.

The environment borrows the packages of this one, so that nothing is downloaded, but not this checkout.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
TRIAL = """
import sys, jumok
assert jumok.__file__.startswith(sys.prefix), f"imported {jumok.__file__} instead of the wheel"
translation = jumok.run("translator", "나는 매일 학교에 간다")
assert translation == "I go to school every day", translation
"""


def list_missing_files(wheel: Path) -> list[str]:
    """Return the committed files of the package that the wheel lacks."""
    listed = subprocess.run(["git", "ls-files", "src/jumok"], cwd=ROOT, capture_output=True, text=True, check=True)
    with zipfile.ZipFile(wheel) as archive:
        contained = set(archive.namelist())
    return sorted({name.removeprefix("src/") for name in listed.stdout.splitlines()} - contained)


def try_wheel(wheel: Path, folder: Path) -> None:
    """Install the wheel below a folder, and translate a sentence with it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", str(wheel)]
    subprocess.run(install, check=True)
    ours = {str(ROOT), str(ROOT / "src"), str(ROOT / "tools")}
    borrowed = [path for path in sys.path if "site-packages" in path and path not in ours]
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "borrowed.pth").write_text("\n".join(borrowed), encoding="utf-8")
    subprocess.run([str(python), "-c", TRIAL], cwd=folder, check=True)


def main() -> None:
    """Check the wheel in the folder that the command line names."""
    (wheel,) = Path(sys.argv[1]).resolve().glob("jumok-*.whl")
    missing = list_missing_files(wheel)
    if missing:
        sys.exit(f"{wheel.name} lacks {len(missing)} files of the package: {', '.join(missing[:10])}")
    with TemporaryDirectory() as folder:
        try_wheel(wheel, Path(folder).resolve())
    sys.stdout.write(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, installed and tried in a new environment\n")


if __name__ == "__main__":
    main()
