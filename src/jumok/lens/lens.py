"""The lens: record every attention of a model exactly, and run the model with edits.

    with jumok.Lens(model) as lens:
        clean = lens.run(tokens)
        edited = lens.run(tokens, edits=[KnockOut(layer=3, head=1, query=9, key=2)])

Jumok's models compute every attention with ``attend()``. Models of transformers are routed to ``attend()`` while a run
executes (see lens/huggingface), and restored after it. A model can have several lenses: each run is as if it were
alone.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from jumok.checkpoint import Loaded
from jumok.checkpoint.transformers_folder import LoadedTransformers, open_model, warn_about_checkpoint
from jumok.data.tokenizers.text_tokenizer import TextTokenizer
from jumok.data.tokenizers.transformers_tokenizer import open_tokenizer
from jumok.defaults import NEW_TOKENS
from jumok.errors import ArgumentError, describe_type
from jumok.models import Model
from jumok.reporting import Progress, Report
from jumok.tap import listen, may_change_values

from .capture.model_capture import Capture, Labels, check_labels_are_unambiguous
from .capture.recorder import Recorder, check_keep
from .edits.apply_edits import EditListener
from .edits.edit_base import Edit, check_edits
from .generation import Generation, generate_with_edits
from .lens_inputs import (
    ModelArguments,
    check_token_tensor,
    convert_input,
    convert_inputs,
    explain_index_errors,
    label_arguments,
)
from .model_facts import LAST_LOGITS_ARGUMENTS, ModelFacts
from .restart import ReusableRun, merge_reused, prepare_reuse
from .running.model_state import evaluation_mode
from .running.progress_listener import ProgressListener
from .sites import Sites, remove_call_suffix

if TYPE_CHECKING:
    from .huggingface.router import Router, Support

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

    def __init__(
        self,
        model: LensModel,
        tokenizer: object = None,
        *,
        check: bool = True,
        report: Report | None = None,
    ) -> None:
        """Create a lens; ``with`` opens it.

        Args:
            model: A model of Jumok, what ``jumok.load`` returned, a model of transformers, or a name or folder; a
                folder that holds none of Jumok's families is opened by transformers.
            tokenizer: The tokenizer of texts: one of Jumok or transformers, or a folder with tokenizer files. Default:
                the one that was loaded with the model, if any.
            check: Whether the first run of a model of transformers is compared with the same model without the lens.
                The comparison takes two forward passes; it is made once for each class, config, dtype, set of inputs
                and range of lengths. A difference is refused.
            report: Receives a sentence before the comparison.

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
        self._router: Router | None = None  # only for models of transformers
        self._check = check
        self._is_open = False
        self._sites: dict[tuple[int, frozenset[str]], Sites] = {}  # by the names of the model's arguments
        if not isinstance(self.model, nn.Module):
            raise ArgumentError(f"a lens needs a model, or the name of one, not {describe_type(model)}")
        if not isinstance(self.model, Model):
            from .huggingface.router import Router

            self._router = Router(self.model, report)
        self.facts = ModelFacts.read(self.model)

    def __enter__(self) -> Lens:
        if self._is_open:
            raise ArgumentError("this lens is already open")
        self._is_open = True
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_open = False

    def __repr__(self) -> str:
        return f"<Lens on {type(self.model).__name__}, {'open' if self._is_open else 'closed'}>"

    @property
    def support(self) -> Support | None:
        """What the lens can do with a model of transformers: its level "editable" or "maps only", and the reason; None
        before the first run, and for models of Jumok, which are always editable."""
        return None if self._router is None else self._router.support

    def run(
        self,
        *inputs: Any,
        edits: Edit | Sequence[Edit] = (),
        keep: str | Sequence[str] = (),
        logits: bool = False,
        labels: Labels = None,
        name: str = "run",
        gradients: bool = False,
        reusable: int = False,
        reuse: Capture | None = None,
        progress: Progress | None = None,
        **settings: Any,
    ) -> Capture:
        """Run the model's forward pass and record its attentions.

            clean = lens.run(text, reusable=True)
            edited = lens.run(text, edits=edits, reuse=clean)

        Args:
            inputs: The model's inputs: tensors, a list or a numpy array of token ids, or a text where the lens has a
                tokenizer. Two texts are the source and the target of an encoder-decoder.
            edits: The edits to apply; default: none.
            keep: Further tensors to record: "output" (of each head), "value", "block_output", "feedforward_output",
                "input".
            logits: Whether to keep the model's output. Otherwise a model that can omit logits computes only the last.
            labels: The label of each position; for an encoder-decoder a pair ``(source labels, target labels)``, as one
                list labels only the source. Default: the tokens, where there is a tokenizer.
            name: The name by which a ``Patch`` refers to this capture in JSON.
            gradients: Whether to record gradients.
            reusable: Whether later runs of the same inputs with edits may reuse this one. The capture then also keeps
                the output of every block: a vector of the model's width for each position and block (SmolLM2 at 4,096
                tokens: 270 MiB). A model of transformers builds no key/value cache. A number n keeps only the output of
                every n-th block; up to n - 1 blocks before an edit are then computed again.
            reuse: A reusable capture of the same inputs. Blocks before the first edited one are not computed again;
                their attentions and activations are those of this capture. The result is the same.
            progress: Called at every tap (several in each attention, one in each MLP) with the number of finished
                attentions and their total; the total is 0 before the first run. An exception that it raises stops the
                run at once; model and lens stay usable.
            settings: Further keyword arguments of the model's ``forward``.

        Returns:
            The capture: weights, activations and output of this forward pass.

        Raises:
            ArgumentError: If the lens is closed, or an input or edit does not fit the model.
        """
        self._check_open()
        if not inputs and not settings:
            raise ArgumentError("lens.run needs an input: a text, token ids or tensors")
        keep = check_keep(keep)
        edits = check_edits(edits)
        input_count = len(inputs) + len(settings)
        prepared, settings = convert_inputs(self, inputs, settings)
        if prepared:
            check_token_tensor(prepared[0], self.model)
        if not logits:
            settings = {**self.facts.build_last_logits_arguments(1), **settings}
        if reusable or reuse is not None:
            settings = {**self.facts.build_no_cache_arguments(), **settings}
        arguments = ModelArguments(prepared, settings)
        blocks = prepare_reuse(
            self, arguments, keep, reusable=reusable, reuse=reuse, has_edits=bool(edits), gradients=gradients
        )

        recorder, listener = Recorder(keep), ProgressListener(progress)
        with listener.keep_error():
            support = self._prepare_route(arguments, listener)
            if support is not None and support.route is None:
                if edits or keep or blocks is not None:
                    raise ArgumentError(
                        f"of {type(self.model).__name__} the lens has only the maps that the model returns, so there "
                        f"are no edits and nothing else to keep or reuse: {support.reason}"
                    )
                from .huggingface.router import run_with_maps

                with listener.follow(self.model):
                    recorder.attentions, output = run_with_maps(self.model, *arguments)
            else:
                output = self._forward(recorder, edits, gradients, arguments, listener, blocks, reuse)
        if not recorder.attentions:
            raise ArgumentError(f"{type(self.model).__name__} computes no attention that the lens can record")
        if labels is None:
            labels = label_arguments(self.model, self.tokenizer, arguments, recorder.attentions)
        elif input_count > 1:
            check_labels_are_unambiguous(Sites(list(recorder.attentions)))
        capture = Capture(
            recorder.attentions, recorder.activations, output if logits else None, tuple(edits), labels, name
        )
        capture.reusable = blocks if reusable else None
        for edit in edits:
            edit.check_capture(capture)
        return capture

    def generate(
        self,
        *inputs: Any,
        edits: Edit | Sequence[Edit] = (),
        limit: int = NEW_TOKENS,
        keep: str | Sequence[str] = (),
        name: str = "generation",
        progress: Progress | None = None,
        **settings: Any,
    ) -> Generation:
        """Generate text with the model's own decoding, and record the attentions of every token that it reads.

        Edits hold at every step: positions count on through the new tokens.

        Args:
            inputs: The prompt, or the source of an encoder-decoder: a text, token ids or a tensor.
            edits: The edits to apply; default: none.
            limit: The largest number of new tokens. A text stops at the model's context length, with a
                ``ContextWarning``.
            keep: Further tensors to record, as in ``run``.
            name: The name by which a ``Patch`` refers to the capture in JSON.
            progress: Called at every tap with the number of new tokens and ``limit``; an exception that it raises
                stops the generation, as in ``run``.
            settings: For models of Jumok the fields of ``Sampling`` (temperature, top_k, seed ...); for models of
                transformers the arguments of ``model.generate``, and ``seed``. By default the most probable token is
                chosen.

        Returns:
            The new tokens, their text, and the capture.

        Raises:
            ArgumentError: If the lens is closed, or an input, setting or edit does not fit the model.

        >>> import jumok
        >>> with jumok.Lens("tiny") as lens:
        ...     generation = lens.generate("the cat sat; the cat", limit=4)
        >>> generation.text, generation.capture.weights(layer=1, head=0).shape
        (' sat', torch.Size([23, 23]))
        """
        self._check_open()
        if not inputs and not settings:
            raise ArgumentError("lens.generate needs an input: a text, token ids or a tensor")
        return generate_with_edits(
            self,
            inputs,
            settings,
            edits=check_edits(edits),
            limit=limit,
            keep=check_keep(keep),
            name=name,
            progress=progress,
        )

    def find_sites(self, *inputs: Any, **settings: Any) -> Sites:
        """Return the model's attention sites in execution order; the model runs once if no run has found them yet.

        Args:
            inputs: The model's inputs, as in ``run``.
            settings: Further keyword arguments of the model's ``forward``.
        """
        prepared = tuple(convert_input(self, model_input) for model_input in inputs)
        return self._find_sites(ModelArguments(prepared, settings), ProgressListener())

    def _find_sites(self, arguments: ModelArguments, progress: ProgressListener) -> Sites:
        """Return the attention sites of a forward pass; the model runs once if they are not known."""
        key = _list_argument_names(arguments)
        if key not in self._sites:
            self._forward(Recorder(), (), False, arguments, progress)
        return self._sites[key]

    def _check_open(self) -> None:
        if not self._is_open:
            raise ArgumentError("the lens is closed; open it: with jumok.Lens(model) as lens: ...")

    def _forward(
        self,
        recorder: Recorder,
        edits: Sequence[Edit],
        gradients: bool,
        arguments: ModelArguments,
        progress: ProgressListener,
        blocks: ReusableRun | None = None,
        reuse: Capture | None = None,
    ) -> Any:
        """Run the model in evaluation mode with the recorder and the edits, and return its output."""
        key = _list_argument_names(arguments)
        edit_listener = None
        if reuse is not None:
            self._sites.setdefault(key, reuse.sites)
        if edits:
            edit_listener = EditListener(edits, self._find_sites(arguments, progress), self.model)
        skipped: list[str] = []
        if blocks is not None and reuse is not None and not may_change_values():  # a listener may edit any block
            taps = () if edit_listener is None else edit_listener.edits_by_tap
            skipped = blocks.restart.list_blocks_before(remove_call_suffix(tap.rpartition(".")[0]) for tap in taps)
        site_names = self._sites[key].names if key in self._sites else []
        progress.begin(
            site_names, [site for site in site_names if any(site.startswith(f"{block}.") for block in skipped)]
        )

        with contextlib.ExitStack() as stack:
            stack.enter_context(explain_index_errors(self.model, self.facts.context_length))
            stack.enter_context(self.prepare_model())
            stack.enter_context(torch.enable_grad() if gradients else torch.no_grad())
            if blocks is not None:
                stack.enter_context(blocks.restart.record() if reuse is None else blocks.restart.skip(skipped))
            stack.enter_context(listen(progress))
            if edit_listener is not None:
                stack.enter_context(listen(edit_listener))
            stack.enter_context(listen(recorder))
            output = self.model(*arguments.inputs, **arguments.settings)
        if reuse is not None:
            merge_reused(reuse, recorder)
        self._sites[key] = Sites(list(recorder.attentions))
        if edit_listener is not None:
            edit_listener.check_applied()
        return output

    @contextlib.contextmanager
    def prepare_model(self) -> Iterator[None]:
        """Prepare the model for forward passes of a run while the context is open: evaluation mode, and a model of
        transformers computes its attentions with ``attend()``. Outside of it, and in other threads, nothing changes."""
        with evaluation_mode(self.model):
            if self._router is None:
                yield
                return
            with self._router.open_route():
                yield

    def prepare_route(self, progress: ProgressListener | None = None, /, **settings: Any) -> None:
        """Compare a model of transformers with itself without the lens, unless that is done already.

        Args:
            progress: Called at every module, and can stop the comparison; or None.
            settings: The arguments of ``forward``.

        Raises:
            ArgumentError: If the model's attentions cannot be routed through ``attend()``.
        """
        support = self._prepare_route(ModelArguments((), settings), progress or ProgressListener())
        if support is not None and support.route is None:
            raise ArgumentError(
                f"of {type(self.model).__name__} the lens has only the maps that the model returns: {support.reason}"
            )

    def _prepare_route(self, arguments: ModelArguments, progress: ProgressListener) -> Support | None:
        """Find out how a model of transformers can be recorded; None for models of Jumok."""
        if self._router is None:
            return None
        with explain_index_errors(self.model, self.facts.context_length):
            return self._router.prepare(*arguments, self._check, progress)


def _list_argument_names(arguments: ModelArguments) -> tuple[int, frozenset[str]]:
    """Return what decides which attentions a forward pass has: which arguments are given."""
    names = (name for name, setting in arguments.settings.items() if setting is not None)
    return len(arguments.inputs), frozenset(names) - {*LAST_LOGITS_ARGUMENTS, "use_cache"}
