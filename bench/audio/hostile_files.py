"""Measure how long refusing each hostile audio file takes, and how much memory: python bench/audio/hostile_files.py"""

import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from hostile_files.audio_files import HOSTILE, build_wav
from jumok.data.audio.audio_files import read_audio
from jumok.errors import AudioError


def measure(path: Path) -> tuple[float, float]:
    """Return the seconds and the growth of the peak memory in megabytes until a file is refused."""
    start, memory = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        read_audio(path)
    except AudioError:
        return time.perf_counter() - start, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) / 1024
    raise SystemExit(f"{path.name} was not refused")


def main() -> None:
    """Print the slowest file and the largest memory."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "good.wav").write_bytes(build_wav())
        read_audio(Path(folder) / "good.wav")  # imports are not measured
        results = {}
        for name, (build, _) in HOSTILE.items():
            path = Path(folder) / name
            path.write_bytes(build())
            results[name] = measure(path)
    slowest = max(results, key=lambda name: results[name][0])
    largest = max(results, key=lambda name: results[name][1])
    print(f"{len(results)} hostile audio files, all refused")
    print(f"slowest: {slowest}, {results[slowest][0] * 1000:.1f} ms")
    print(f"most memory: {largest}, {results[largest][1]:.1f} MB")


if __name__ == "__main__":
    main()
