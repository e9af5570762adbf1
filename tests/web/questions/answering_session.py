"""A session that answers questions from a small folder with a small random model, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from jumok.checkpoint import Loaded
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.models import GPT, GPTConfig
from jumok.models.fusion import Fusion, FusionConfig
from jumok.retrieval import FolderIndex
from jumok.tasks.ask import AskSettings
from jumok.web.folder_questions import FolderQuestions
from jumok.web.session import Session, Start

FILES = {
    "boats.txt": "The boat leaves the harbour at seven in the morning.",
    "cats.txt": "A cat sleeps on the boat of the captain.",
    "owner.txt": "Captain Okafor owns the boat and two nets.",
    "birds.txt": "Gulls nest on a cliff near Whitby.",
    "weather.txt": "It rained for six days, and all hay was spoiled.",
}
QUESTION = "Which boat leaves the harbour at seven?"


def create_loaded(**fields: object) -> Loaded:
    """A random language model that reads bytes; its parameters are large, so that its attention depends on the text."""
    torch.manual_seed(7)
    sizes = {"vocabulary": 256, "length": 640, "width": 24, "layers": 2, "heads": 3, "positions": "rotary"}
    model = GPT(GPTConfig(**{**sizes, **fields}))  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter *= 10.0
    return Loaded(model.eval(), Tokenizer.for_bytes())


def create_fusion() -> Loaded:
    """A random Fusion-in-Decoder that reads bytes."""
    torch.manual_seed(2)
    sizes = {"vocabulary": 256, "width": 24, "layers": 2, "decoder_layers": 2, "heads": 3, "hidden": 40}
    config = FusionConfig(**sizes, separator=3, start=1, end=2)
    model = Fusion(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter *= 2.0
    return Loaded(model, Tokenizer.for_bytes())


@contextmanager
def answer_from(index: FolderIndex, loaded: Loaded) -> Iterator[Session]:
    """Open a session that answers from an index."""
    session = Session(
        Start(loaded, questions=FolderQuestions(index, "notes", QUESTION, AskSettings(passages=3, limit=6)))
    )
    yield session
    session.close()
