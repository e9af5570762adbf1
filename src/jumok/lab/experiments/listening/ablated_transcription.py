"""Transcribe audio while heads are ablated."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.checkpoint import Loaded
from jumok.lens import Ablate, Lens
from jumok.models.speech import FRAMES_PER_POSITION, Speech
from jumok.tap import listen
from jumok.tasks.speech import Transcript, TranscriptionSettings, transcribe
from jumok.tasks.speech.word_weights import Heads

ONCE = TranscriptionSettings(temperatures=())  # greedy only: sampling would hide what an ablation does


def build_ablations(heads: Heads) -> list[Ablate]:
    """Return the edits that replace the outputs of cross-attention heads by zeros.

    Args:
        heads: The heads, as (decoder block, head).
    """
    return [Ablate(f"decoder.{block}.cross", head=head) for block, head in heads]


def transcribe_ablated(loaded: Loaded, samples: Float[Tensor, " sample"], edits: Sequence[Ablate]) -> Transcript:
    """Return the transcript that a model writes greedily under edits, which hold for every token.

    Args:
        edits: The edits; () for none.
    """
    if not edits:
        return transcribe(loaded, samples, ONCE)
    assert isinstance(loaded.model, Speech)
    features = torch.zeros(1, loaded.model.config.mel_bins, FRAMES_PER_POSITION)
    with Lens(loaded) as lens:
        listener = lens.create_edit_listener(edits, lens.find_sites(features, [loaded.model.start_token]))
        with listen(listener):
            transcript = transcribe(loaded, samples, ONCE)
        listener.check_applied()
    return transcript
