"""The lens: record every attention of a model exactly, and run the model with edits.

    with jumok.Lens(model) as lens:
        clean = lens.run(tokens)
        edited = lens.run(tokens, edits=[KnockOut(layer=3, head=1, query=9, key=2)])

Jumok's models compute every attention with ``attend()``. Models of transformers are routed to ``attend()`` while the
lens is open (see lens/huggingface); closing the lens restores them completely.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from jumok.checkpoint import Loaded
from jumok.checkpoint.transformers_folder import LoadedTransformers, open_model, warn_about_checkpoint
from jumok.data.tokenizers.text_tokenizer import TextTokenizer
from jumok.data.tokenizers.transformers_tokenizer import open_tokenizer
from jumok.errors import ArgumentError, describe_type
from jumok.models import Model
from jumok.tap import listen
from jumok.threads import count_rows, use_fastest_threads

from .capture.axis_labels import Labels, check_labels_are_unambiguous
from .capture.model_capture import Capture
from .capture.recorder import Recorder
from .edits.apply_edits import EditListener
from .edits.edit_types import Edit
from .input_checks import (
    check_edges_exist,
    check_edits,
    check_input_tensor,
    check_keep,
    check_token_tensor,
    convert_token_list,
    count_shared_words,
)
from .model_facts import ModelFacts
from .sites import Sites
from .text_inputs import ModelArguments, label_arguments, name_text_pair

#: what a lens accepts: a model, what ``jumok.load`` returned, or the name or folder of a model
LensModel = nn.Module | Loaded | LoadedTransformers | str | os.PathLike[str]


class Lens:
    """Records and edits the attentions of a model. Use it as a context manager.

    Attributes:
        model: The model.
        loaded: What ``jumok.load`` returned, if the lens was created from it or from a name, else None.
        tokenizer: The tokenizer of texts, or None.
        facts: The model's vocabulary, context length and similar facts.

    >>> import jumok
    >>> with jumok.Lens("tiny") as lens:
    ...     capture = lens.run("the cat")
    >>> capture.weights(layer=1, head=0).shape, capture.weights(layer=-1).shape
    (torch.Size([7, 7]), torch.Size([2, 7, 7]))
    """

    def __init__(self, model: LensModel, tokenizer: object = None) -> None:
        """Create a lens; ``with`` opens it.

        Args:
            model: A model of Jumok, what ``jumok.load`` returned, a model of transformers that uses its attention
                registry, or a name or folder; a folder that holds none of Jumok's families is opened by transformers.
            tokenizer: The tokenizer of texts: one of Jumok or transformers, or a folder with tokenizer files. Default:
                the one that was loaded with the model, if any.

        Raises:
            ArgumentError: If the lens does not support the model or the tokenizer.
        """
        if isinstance(model, str | os.PathLike):
            model = open_model(os.fspath(model), warn_about_checkpoint)
        self.loaded = model if isinstance(model, Loaded | LoadedTransformers) else None
        self.model: nn.Module = model.model if isinstance(model, Loaded | LoadedTransformers) else model
        self.tokenizer: TextTokenizer | None = None if self.loaded is None else self.loaded.tokenizer
        if tokenizer is not None:
            self.tokenizer = open_tokenizer(tokenizer)
        self._open_contexts = contextlib.ExitStack()
        self._is_open = False
        self._sites: Sites | None = None
        if not isinstance(self.model, nn.Module):
            raise ArgumentError(f"a lens needs a model, or the name of one, not {describe_type(model)}")
        if not isinstance(self.model, Model):
            from .huggingface.route_attention import import_transformers

            import_transformers(self.model)
        self.facts = ModelFacts.read(self.model)

    def __enter__(self) -> Lens:
        if self._is_open:
            raise ArgumentError("this lens is already open")
        if not isinstance(self.model, Model):
            from .huggingface.route_attention import route_attention

            self._open_contexts.enter_context(route_attention(self.model))
        self._is_open = True
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_open = False
        self._open_contexts.close()

    def __repr__(self) -> str:
        return f"<Lens on {type(self.model).__name__}, {'open' if self._is_open else 'closed'}>"

    def run(
        self,
        *inputs: Any,
        edits: Edit | Sequence[Edit] = (),
        keep: str | Sequence[str] = (),
        logits: bool = False,
        labels: Labels = None,
        name: str = "run",
        gradients: bool = False,
        **settings: Any,
    ) -> Capture:
        """Run the model's forward pass and record its attentions.

        Args:
            inputs: The model's inputs: tensors, a list of token ids (one text), or a text where the lens has a
                tokenizer. Two texts are the source and the target of an encoder-decoder.
            edits: The edits to apply; default: none.
            keep: Further tensors to record: "output" (of each head), "value", "block_output", "feedforward_output",
                "input".
            logits: Whether to keep the model's output. Otherwise a model that can omit logits computes only the last.
            labels: The label of each position; for an encoder-decoder a pair ``(source labels, target labels)``, as one
                list labels only the source. Default: the tokens, where there is a tokenizer.
            name: The name by which a ``Patch`` refers to this capture in JSON.
            gradients: Whether to record gradients.
            settings: Further keyword arguments of the model's ``forward``.

        Returns:
            The capture: weights, activations and output of this forward pass.

        Raises:
            ArgumentError: If the lens is closed, or an input or edit does not fit the model.
        """
        if not self._is_open:
            raise ArgumentError("the lens is closed; open it: with jumok.Lens(model) as lens: ...")
        if not inputs and not settings:
            raise ArgumentError("lens.run needs an input: a text, token ids or tensors")
        keep = check_keep(keep)
        edits = check_edits(edits)
        input_count = len(inputs) + len(settings)
        prepared, settings = self.prepare_arguments(inputs, settings)
        if prepared:
            check_token_tensor(prepared[0], self.model)
        if not logits:
            settings = {**self.facts.build_last_logits_arguments(1), **settings}

        recorder = Recorder(keep)
        with use_fastest_threads(self.model, count_rows((*prepared, *settings.values()))):
            output = self._forward(recorder, edits, gradients, prepared, settings)
        if not recorder.attentions:
            raise ArgumentError(
                f"{type(self.model).__name__} computes no attention through attend(): it does not use the attention "
                "registry of transformers, so the lens cannot record it"
            )
        if labels is None:
            labels = label_arguments(
                self.model, self.tokenizer, ModelArguments(prepared, settings), recorder.attentions
            )
        elif input_count > 1:
            check_labels_are_unambiguous(Sites(list(recorder.attentions)))
        capture = Capture(
            recorder.attentions, recorder.activations, output if logits else None, tuple(edits), labels, name
        )
        for edit in edits:
            check_edges_exist(edit, capture)
        return capture

    def prepare_arguments(self, inputs: tuple[Any, ...], settings: dict[str, Any]) -> ModelArguments:
        """Convert inputs to arguments of the model's ``forward``; texts become token ids.

        Args:
            inputs: The model's inputs, as in ``run``.
            settings: Further keyword arguments of the model's ``forward``.

        Raises:
            ArgumentError: If an input does not fit the model.
        """
        prepared = tuple(self.prepare_input(model_input) for model_input in inputs)
        return name_text_pair(self.model, self.tokenizer, inputs, prepared, settings)

    def prepare_input(self, model_input: Any) -> Any:
        """Convert one input to an argument of the model's ``forward``.

        Args:
            model_input: A text, a list of token ids, or a tensor.

        Returns:
            Token ids ``[1, length]`` for a text, a list or a row of token ids; other tensors on the model's device.

        Raises:
            ArgumentError: If a text is empty or there is no tokenizer for it, or a token does not exist.
        """
        if isinstance(model_input, str):
            if self.tokenizer is None:
                raise ArgumentError(
                    "a text needs a tokenizer: create the lens from jumok.load(...) or with tokenizer=..., or pass "
                    "token ids"
                )
            model_input = self.tokenizer.encode(model_input)
            if not model_input:
                raise ArgumentError("the text is empty; give at least one token")
        if isinstance(model_input, Mapping):
            raise ArgumentError("pass a dictionary of inputs by name: lens.run(**inputs)")
        if isinstance(model_input, list | tuple):
            model_input = convert_token_list(model_input)
        if not isinstance(model_input, Tensor):
            return model_input
        check_input_tensor(model_input)
        if model_input.dtype in (torch.int32, torch.int64):
            self._check_tokens(model_input)
            model_input = model_input[None] if model_input.dim() == 1 else model_input
        return model_input.to(next(self.model.parameters()).device)

    def find_sites(self, *inputs: Any, **settings: Any) -> Sites:
        """Return the model's attention sites in execution order; the first call runs the model once to find them.

        Args:
            inputs: The model's inputs, as in ``run``.
            settings: Further keyword arguments of the model's ``forward``.
        """
        if self._sites is None:
            recorder = Recorder()
            with torch.no_grad(), listen(recorder):
                self.model(*(self.prepare_input(model_input) for model_input in inputs), **settings)
            self._sites = Sites(list(recorder.attentions))
        return self._sites

    def find_mlp(self, site: str) -> str:
        """Return the name of the block whose MLP follows an attention.

        Args:
            site: The attention's site name.

        Raises:
            ArgumentError: If no single MLP shares the longest name prefix with the attention.
        """
        if isinstance(self.model, Model):
            return site.rpartition(".")[0]
        from .huggingface.module_names import find_feedforwards

        shared = {block: count_shared_words(block, site) for block, _ in find_feedforwards(self.model)}
        most = max(shared.values(), default=0)
        blocks = [block for block, count in shared.items() if count == most]
        if len(blocks) != 1:
            raise ArgumentError(f"the lens could not determine which MLP of {type(self.model).__name__} follows {site}")
        return blocks[0]

    def _forward(
        self,
        recorder: Recorder,
        edits: Sequence[Edit],
        gradients: bool,
        inputs: tuple[Any, ...],
        settings: dict[str, Any],
    ) -> Any:
        """Run the model in evaluation mode with the recorder and the edits, and return its output."""
        edit_listener = None
        if edits:
            sites = self.find_sites(*inputs, **settings)
            edit_listener = EditListener(edits, lambda edit: sites.find_all(edit.layer), self.find_mlp)
        was_training = self.model.training
        self.model.eval()
        try:
            with contextlib.ExitStack() as stack:
                stack.enter_context(torch.enable_grad() if gradients else torch.no_grad())
                if edit_listener is not None:
                    stack.enter_context(listen(edit_listener))
                stack.enter_context(listen(recorder))
                output = self.model(*inputs, **settings)
        except IndexError as error:
            # torch's own message, "index out of range in self", does not name the cause
            if isinstance(self.model, Model) or self.facts.context_length is None:
                raise
            raise ArgumentError(
                f"{type(self.model).__name__} reads at most {self.facts.context_length:,} positions; "
                "the input is longer, or contains an unknown token"
            ) from error
        finally:
            self.model.train(was_training)
        if edit_listener is not None:
            edit_listener.check_applied()
        return output

    def _check_tokens(self, tokens: Tensor) -> None:
        """Raise an ArgumentError for tokens that the model does not have; torch's own error does not name them."""
        vocabulary = self.facts.vocabulary
        if vocabulary is None or not tokens.numel():
            return
        unknown = tokens[(tokens < 0) | (tokens >= vocabulary)]
        if unknown.numel():
            raise ArgumentError(
                f"token {int(unknown[0])} does not exist; the model has {vocabulary:,} tokens, counted from 0"
            )
