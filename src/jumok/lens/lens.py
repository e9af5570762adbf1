"""The lens: open it on a model, run, and see every attention exactly; with edits, see what changes.

    with jumok.Lens(model) as lens:
        clean = lens.run(tokens)
        cut = lens.run(tokens, edits=[KnockOut(layer=3, head=1, query=9, key=2)])

Our models pass the door by themselves. Those of transformers are led to it while the lens is open
(lens/huggingface.py); when it is closed, nothing of it remains.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from jumok.checkpoint import Loaded
from jumok.data.tokenizers.token_labels import label_tokens as labels_of
from jumok.errors import ArgumentError
from jumok.models import Model
from jumok.tap import listen

from .capture.capture import Capture
from .capture.recorder import Recorder
from .edits.apply_edits import EditListener
from .edits.edit_types import Edit, KnockOut, as_tuple
from .sites import Sites

KEPT = ("output", "value", "block_output", "feedforward_output", "input")


class Lens:
    """``model``: one of ours, what ``jumok.load`` gave, or a model of transformers that uses the attention registry."""

    def __init__(self, model: Any) -> None:
        self.loaded = model if isinstance(model, Loaded) else None
        self.model: nn.Module = model.model if isinstance(model, Loaded) else model
        self._open = contextlib.ExitStack()
        self._is_open = False
        self._known: Sites | None = None
        if not isinstance(self.model, nn.Module):
            raise ArgumentError(f"a lens is opened on a model, not on {type(model).__name__}")
        if not isinstance(self.model, Model):
            from .huggingface.attention_interface import require_transformers_model

            require_transformers_model(self.model)

    def __enter__(self) -> Lens:
        if self._is_open:
            raise ArgumentError("this lens is open already")
        if not isinstance(self.model, Model):
            from .huggingface.attention_interface import route_attention

            self._open.enter_context(route_attention(self.model))
        self._is_open = True
        return self

    def __exit__(self, *wrong: object) -> None:
        self._is_open = False
        self._open.close()

    def run(
        self,
        *inputs: Any,
        edits: Edit | Sequence[Edit] = (),
        keep: str | Sequence[str] = (),
        logits: bool = False,
        labels: Sequence[str] | None = None,
        name: str = "run",
        gradients: bool = False,
        **settings: Any,
    ) -> Capture:
        """The model's ordinary forward. Kept are queries, keys and log-sum-exps; with ``logits`` the model's answer
        too, and of ``keep`` ("output" of every head, "value", "block_output", "feedforward_output", "input")
        whatever is named. ``inputs`` and ``settings`` are the model's own; a list of tokens is one text."""
        if not self._is_open:
            raise ArgumentError("the lens is closed; open it: with jumok.Lens(model) as lens: ...")
        keep = [keep] if isinstance(keep, str) else keep
        odd = next((word for word in keep if word not in KEPT), None)
        if odd is not None:
            raise ArgumentError(f"keep knows {', '.join(KEPT)}, not {odd!r}")
        if not inputs and not settings:
            raise ArgumentError("nothing was given; give the model something to read")
        edits = [edits] if isinstance(edits, Edit) else list(edits)
        strange = next((one for one in edits if not isinstance(one, Edit)), None)
        if strange is not None:
            raise ArgumentError(f"edits are Ablate, KnockOut, Patch, Scale or Remask; {strange!r} is none")
        given = tuple(self.given(one) for one in inputs)
        if not logits:
            settings = {**limit_logits(self.model, 1), **settings}
        capture = Recorder(tuple(keep))
        editing = None
        if edits:
            sites = self.sites(*given, **settings)
            editing = EditListener(edits, lambda edit: sites.several(edit.layer), self._mlp_of)
        mode = self.model.training
        self.model.eval()
        try:
            with contextlib.ExitStack() as stack:
                stack.enter_context(torch.enable_grad() if gradients else torch.no_grad())
                if editing is not None:
                    stack.enter_context(listen(editing))
                stack.enter_context(listen(capture))
                output = self.model(*given, **settings)
        except IndexError as wrong:  # torch says "index out of range in self", which helps nobody
            longest = getattr(getattr(self.model, "config", None), "max_position_embeddings", None)
            if longest is None:
                raise
            raise ArgumentError(
                f"{type(self.model).__name__} reads at most {longest:,} positions and its own tokens; this is more"
            ) from wrong
        finally:
            self.model.train(mode)
        if editing is not None:
            editing.check_done()
        if not capture.attentions:
            raise ArgumentError(
                f"no attention of {type(self.model).__name__} passed the door: it does not use the registry that "
                "other models of transformers use, and cannot be seen"
            )
        if labels is None:
            labels = self._labels(given)
        found = Capture(capture.attentions, capture.kept, output if logits else None, tuple(edits), labels, name)
        for edit in edits:
            _refuse_far_edges(edit, found)
        return found

    def given(self, one: Any) -> Any:
        """An input as the model takes it: a text as tokens, where the model was loaded with a tokenizer; a list of
        tokens as a batch of one."""
        if isinstance(one, str):
            if self.loaded is None or self.loaded.tokenizer is None:
                raise ArgumentError("a text needs a tokenizer: open the lens on what jumok.load gave, or pass tokens")
            one = self.loaded.tokenizer.encode(one)
            if not one:
                raise ArgumentError("the text is empty; give the model something to read")
        return _as_batch(one, self.model)

    def __repr__(self) -> str:
        return f"<Lens on {type(self.model).__name__}, {'open' if self._is_open else 'closed'}>"

    def _mlp_of(self, site: str) -> str:
        """The block whose MLP stands behind an attention: of all, the one whose name shares most with it."""
        if isinstance(self.model, Model):
            return site.rpartition(".")[0]
        from .huggingface.attention_interface import find_feedforwards

        names = [name for name, _ in find_feedforwards(self.model)]
        shared = {name: _shared(name, site) for name in names}
        best = max(shared.values(), default=0)
        chosen = [name for name, length in shared.items() if length == best]
        if len(chosen) != 1:
            raise ArgumentError(f"which MLP of {type(self.model).__name__} belongs to {site} is not known")
        return chosen[0]

    def _labels(self, given: tuple[Any, ...]) -> list[str] | None:
        """Of one text, where its tokenizer is known."""
        tokenizer = None if self.loaded is None else self.loaded.tokenizer
        one = given[0] if len(given) == 1 else None
        if tokenizer is None or not isinstance(one, torch.Tensor) or one.is_floating_point() or one.shape[0] != 1:
            return None
        return labels_of(tokenizer, one[0].tolist())

    def sites(self, *inputs: Any, **settings: Any) -> Sites:
        """The model's attentions by name, in the order in which they run; found by running it once."""
        if self._known is None:
            capture = Recorder()
            with torch.no_grad(), listen(capture):
                self.model(*(_as_batch(one, self.model) for one in inputs), **settings)
            self._known = Sites(list(capture.attentions))
        return self._known


def _refuse_far_edges(edit: Edit, run: Capture) -> None:
    """An edge that is not there would be cut without any effect, and look as if it did not matter."""
    if not isinstance(edit, KnockOut):
        return
    for site in run.sites.several(edit.layer):
        found = run.attentions[site]
        for name, wanted, there in (
            ("query", edit.query, found.query_positions),
            ("key", edit.key, found.key_positions),
        ):
            far = set(as_tuple(wanted) or ()) - set(there)
            if far:
                raise ArgumentError(
                    f"{site} has no {name} at {min(far)}: positions are from {min(there)} to {max(there)}"
                )


def _shared(one: str, other: str) -> int:
    """How many words two names have in common from their beginning."""
    count = 0
    for left, right in zip(one.split("."), other.split("."), strict=False):
        if left != right:
            break
        count += 1
    return count


def _as_batch(given: Any, model: nn.Module) -> Any:
    """A list or a row of tokens as a batch of one text; other tensors as they are, on the model's device."""
    device = next(model.parameters()).device
    if isinstance(given, Mapping):
        raise ArgumentError("a dictionary of inputs is given by name: lens.run(**inputs)")
    if isinstance(given, list | tuple):
        if any(isinstance(one, str) for one in given):
            raise ArgumentError("a lens reads one text at a time; several texts of one length are a tensor of tokens")
        if not given or not all(isinstance(one, int) for one in given):
            raise ArgumentError("a list is one text's tokens, whole numbers, at least one; several texts are a tensor")
        given = torch.tensor(list(given))
    if not isinstance(given, torch.Tensor):
        return given
    if given.dtype in (torch.int32, torch.int64):
        _refuse_unknown(given, model)
        given = given[None] if given.dim() == 1 else given
    return given.to(device)


def _refuse_unknown(tokens: torch.Tensor, model: nn.Module) -> None:
    """torch says "index out of range in self", which helps nobody."""
    config = getattr(model, "config", None)
    # a target may have a vocabulary of its own, and which side this is cannot be known here: the larger one counts
    names = ("vocabulary", "target_vocabulary", "vocab_size", "decoder_vocab_size")
    known = max((found for name in names if isinstance(found := getattr(config, name, None), int)), default=0)
    if not known or not tokens.numel():
        return
    odd = tokens[(tokens < 0) | (tokens >= known)]
    if odd.numel():
        raise ArgumentError(f"the model knows {known:,} tokens, counted from 0; {int(odd[0])} is none of them")


def limit_logits(model: nn.Module, count: int) -> dict[str, int]:
    """Only the last so many logits, where a model can leave the others out."""
    known = inspect.signature(model.forward).parameters
    return next(({name: count} for name in ("last", "logits_to_keep") if name in known), {})
