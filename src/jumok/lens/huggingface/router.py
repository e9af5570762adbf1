"""Find out how the attentions of a transformers model can be recorded, and verify it against the plain model.

The routes are tried in the order of the package's description. The result is cached for all models of the same class
and config.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from jumok.errors import ArgumentError, IncompleteWarning, JumokError
from jumok.lens.capture.captured_attention import CapturedAttention, WeightTable
from jumok.lens.capture.recorder import Recorder
from jumok.lens.running.model_state import change_lock, evaluation_mode
from jumok.lens.running.progress_listener import ProgressListener
from jumok.lens.sites import MAX_EXAMPLES
from jumok.reporting import Report
from jumok.tap import isolate, listen

from .attention_function import replace_longformer_attention
from .forward_scope import ForwardScope
from .module_names import find_attention_modules, find_tap_points, register_taps
from .route_attention import compute_recognized, list_parts, register_functions, select_implementation

EDITABLE, MAPS_ONLY, REFUSED = "editable", "maps only", "refused"
#: with more positions, only the logits of the last ones are compared: all of them would take gigabytes
MAX_COMPARED_POSITIONS, LAST_COMPARED_POSITIONS = 2048, 512
BOUND = 1e-5  # the largest difference in float32, as a share of the largest number, which counts as at least 1
EPSILONS = 16  # the bound is at least this many steps of the dtype around 1; in float32 these are fewer
#: the outputs that hold maps, and the site names they get; cross-attentions are recognised by their name
MAP_OUTPUTS = {
    "attentions": "attention",
    "encoder_attentions": "encoder.attention",
    "decoder_attentions": "decoder.attention",
    "cross_attentions": "decoder.cross",
    "text_attentions": "text.attention",
    "vision_attentions": "vision.attention",
    "image_attentions": "image.attention",
}
MAX_MAP_LENGTH = 2048  # a map of n x n weights of every head is kept in memory
ROW_SUM_BOUND = 1e-3


#: who computes the attentions in transformers' registry: Jumok's function, the model's own or its eager ones
REGISTRY, OWN, EAGER = "registry", "own", "eager"
IMPLEMENTATIONS: dict[str, Callable[[str], str]] = {REGISTRY: register_functions, OWN: str, EAGER: lambda _: "eager"}


class Route(NamedTuple):
    """A way to the attentions of a model."""

    functions: str  # who computes those in the registry; the recognizer finds those of the model's own functions
    recognize: bool  # look for attentions outside the registry too


class Support(NamedTuple):
    """What the lens can do with a model."""

    level: str  # "editable" (through attend()), "maps only" or "refused"; of a model of Jumok "own family"
    reason: str = ""  # why it is not editable, or which of its attentions are not recorded; "" if all are
    route: Route | None = None  # the way to its attentions, if it is editable


CacheKey = tuple[Any, ...]
_verified: dict[CacheKey, Support] = {}


class Router:
    """Routes the attentions of one model, and verifies this once for each kind of input."""

    def __init__(self, model: Any, report: Report | None = None) -> None:
        """Prepare a model; ``report`` receives a sentence before the verification, which takes two forward passes."""
        self.model = model
        self.support: Support | None = None  # what the lens can do with the model; None before the first run
        self._report = report
        self._parts = list_parts(model)
        self._config = model.config.to_json_string(use_diff=False)
        self._names = {id(module): name for name, module in model.named_modules()}
        self._tap_points = find_tap_points(model)
        self._attentions = find_attention_modules(model)
        self._warned = ""

    @contextmanager
    def route(self, route: Route) -> Iterator[ForwardScope]:
        """Compute the model's attentions with ``attend()`` while the context is open; the run's hooks act meanwhile."""
        scope = ForwardScope(self._names, compute_recognized if route.recognize else None)
        with ExitStack() as stack:
            stack.enter_context(select_implementation(self.model, IMPLEMENTATIONS[route.functions]))
            stack.enter_context(listen(scope))
            stack.enter_context(replace_longformer_attention(self.model, scope))
            for handle in register_taps(
                self._tap_points, scope.sites.name_module_call, scope.sites.name_input, scope.limit
            ):
                stack.callback(handle.remove)
            stack.enter_context(scope.follow(self.model, self._parts, self._attentions))
            yield scope

    @contextmanager
    def open_route(self) -> Iterator[None]:
        """Route the model's attentions through ``attend()``, as its last verification says, while the context is open.

        Only one thread at a time can do this.
        """
        route = None if self.support is None else self.support.route
        with self.route(route or self._guess_route()):
            yield

    def prepare(
        self, inputs: tuple[Any, ...], settings: dict[str, Any], check: bool, progress: ProgressListener
    ) -> Support:
        """Verify the route for these inputs, unless that is known already; without ``check``, take the most common one.

        ``progress`` is called at every module of the forward passes, which it can stop.
        """
        if not check:
            self.support = Support(EDITABLE, route=self._guess_route())
            return self.support
        key = self._build_cache_key(inputs, settings)
        with change_lock:  # another thread may be about to find out the same
            if key not in _verified:
                if self._report is not None:
                    self._report(f"comparing {type(self.model).__name__} under the lens with the plain model (once)")
                with isolate(), progress.follow(self.model):
                    _verified[key] = self._verify(inputs, settings, progress)
            self.support = _verified[key]
        if self.support.level == REFUSED:
            raise ArgumentError(self.support.reason)
        if self.support.level == EDITABLE and self.support.reason not in ("", self._warned):
            self._warned = self.support.reason
            warnings.warn(f"{type(self.model).__name__} is {self._warned}", IncompleteWarning, stacklevel=4)
        return self.support

    def _guess_route(self) -> Route:
        """Return the route of most models: the registry, and the recognizer where a part does not use the registry."""
        return Route(REGISTRY, recognize=not all(part._can_set_attn_implementation() for part in self._parts))

    def _build_cache_key(self, inputs: tuple[Any, ...], settings: Mapping[str, Any]) -> CacheKey:
        names = {name for name, setting in settings.items() if setting is not None} - {"logits_to_keep"}
        if inputs:
            names.add(self.model.main_input_name)
        arguments = (*inputs, *settings.values())
        lengths = [tensor.shape[1] for tensor in arguments if isinstance(tensor, Tensor) and tensor.dim() > 1]
        dtype = next(self.model.parameters()).dtype
        return type(self.model), self._config, dtype, len(inputs[1:]), frozenset(names), max([0, *lengths]).bit_length()

    def _verify(self, inputs: tuple[Any, ...], settings: dict[str, Any], progress: ProgressListener) -> Support:
        """Try the routes until one gives the outputs of the plain model.

        Where ``progress`` stops one forward pass, it also stops those that follow, and ``_try_maps`` raises its error.
        """
        settings = _request_all_logits(settings, inputs)
        token_masks = _collect_token_masks(settings)
        with select_implementation(self.model, str):
            expected = self._forward(inputs, settings)
        reasons: list[str] = []
        for functions in (REGISTRY, OWN, EAGER):
            route = Route(functions, recognize=True)
            recorder = Recorder()
            try:
                with self.route(route) as scope, listen(recorder):
                    actual = self._forward(inputs, settings)
            except Exception as error:
                message = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
                reasons.append(str(error) if isinstance(error, JumokError) else message)
                continue
            if not recorder.attentions:
                reasons.append("no attention was found in its forward pass")
                continue
            difference = compare_outputs(expected, actual, token_masks)
            if difference.is_allowed:
                # the recognizer looks at every operation, so it is used only where it finds something
                is_needed = scope.recognizer is not None and scope.recognizer.count > 0
                reason = _describe_incomplete(self.model, scope.list_incomplete_attentions(recorder.attentions))
                return Support(EDITABLE, reason, route._replace(recognize=is_needed))
            reasons.append(
                f"{difference.name} differs by {difference.size:.1e} from the model without the lens, more than "
                f"{difference.bound:.1e}"
            )
        return self._try_maps(inputs, settings, reasons, progress)

    def _try_maps(
        self, inputs: tuple[Any, ...], settings: dict[str, Any], reasons: list[str], progress: ProgressListener
    ) -> Support:
        """Find out whether the model returns maps."""
        name = type(self.model).__name__
        reason = "; ".join(dict.fromkeys(reasons))
        try:
            run_with_maps(self.model, inputs, _copy_state(settings))
        except Exception as error:
            progress.raise_error()  # a stopped verification has no result
            problem = error if isinstance(error, JumokError) else f"it returns no maps ({type(error).__name__})"
            return Support(REFUSED, f"the lens cannot record {name}: {reason}; {problem}")
        return Support(MAPS_ONLY, reason)

    def _forward(self, inputs: tuple[Any, ...], settings: dict[str, Any]) -> Any:
        """Run the model with a fixed seed; caches among the arguments are copied, because the model changes them."""
        with evaluation_mode(self.model), torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(0)
            return self.model(*_copy_state(inputs), **_copy_state(settings))


def _describe_incomplete(model: nn.Module, incomplete: list[str]) -> str:
    """Say which attention modules are not recorded completely; "" if all are."""
    if not incomplete:
        return ""
    classes = sorted({type(model.get_submodule(name)).__name__ for name in incomplete})
    names = ", ".join([*incomplete[:MAX_EXAMPLES], *["..."][: len(incomplete) > MAX_EXAMPLES]])
    return (
        f"incomplete: {' and '.join(classes)} compute{'s' if len(classes) == 1 else ''} something other than "
        f"softmax(q k^T) v, which is not recorded, in {names}"
    )


def _copy_state(arguments: Any) -> Any:
    """Copy everything but tensors: a model changes the caches that are passed to it."""
    if isinstance(arguments, Mapping):
        return {name: _copy_state(argument) for name, argument in arguments.items()}
    if isinstance(arguments, tuple | list):
        return type(arguments)(_copy_state(argument) for argument in arguments)
    return arguments if isinstance(arguments, Tensor) else copy.deepcopy(arguments)


def _request_all_logits(settings: dict[str, Any], inputs: tuple[Any, ...]) -> dict[str, Any]:
    """Return the arguments of ``forward`` with which all logits are compared, or the last ones of a long text."""
    if "logits_to_keep" not in settings:
        return settings
    tokens = [
        argument for argument in (*inputs, *settings.values()) if isinstance(argument, Tensor) and argument.dim() == 2
    ]
    is_long = max((tensor.shape[1] for tensor in tokens), default=0) > MAX_COMPARED_POSITIONS
    return {**settings, "logits_to_keep": LAST_COMPARED_POSITIONS if is_long else 0}


def _collect_token_masks(settings: Mapping[str, Any]) -> dict[int, Tensor]:
    """Return the token masks among the arguments by their lengths; a length with two masks has their intersection."""
    token_masks: dict[int, Tensor] = {}
    for name, mask in settings.items():
        if name.endswith("attention_mask") and isinstance(mask, Tensor) and mask.dim() == 2:
            length = mask.shape[1]
            real = mask.bool()
            earlier = token_masks.get(length)
            token_masks[length] = real & earlier if earlier is not None and earlier.shape == real.shape else real
    return token_masks


class OutputDifference(NamedTuple):
    """The largest difference between two outputs, such as "logits", relative to what is allowed."""

    name: str
    size: float
    bound: float

    @property
    def is_allowed(self) -> bool:
        """Whether the outputs count as equal."""
        return self.size <= self.bound


def compare_outputs(expected: object, actual: object, token_masks: Mapping[int, Tensor]) -> OutputDifference:
    """Compare all floating-point tensors of two outputs, and return the difference that exceeds its bound by most.

    ``token_masks`` say by length which tokens ``[batch, length]`` are real; only these are compared.
    """
    actual_tensors = dict(list_tensors(actual))
    worst = OutputDifference("output", 0.0, BOUND)
    for name, tensor in list_tensors(expected):
        other = actual_tensors.get(name)
        if other is None:
            continue  # weights, which the lens computes itself
        difference = _compare_tensors(name, tensor, other, token_masks)
        if difference.size / difference.bound > worst.size / worst.bound:
            worst = difference
    return worst


def list_tensors(output: object, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield the floating-point tensors of a model's output with their names; caches are left out."""
    if isinstance(output, Tensor):
        if output.is_floating_point() or output.is_complex():
            yield name or "output", output
    elif isinstance(output, Mapping):
        for key, part in output.items():
            if key != "past_key_values":
                yield from list_tensors(part, f"{name}.{key}" if name else str(key))
    elif isinstance(output, list | tuple):
        for index, part in enumerate(output):
            yield from list_tensors(part, f"{name}[{index}]")


def _compare_tensors(
    name: str, expected: Tensor, actual: Tensor, token_masks: Mapping[int, Tensor]
) -> OutputDifference:
    """Compare two tensors; infinities and NaN must stand at the same positions."""
    if expected.shape != actual.shape:
        return OutputDifference(f"{name} {list(actual.shape)}, not {list(expected.shape)},", float("inf"), BOUND)
    token_mask = token_masks.get(expected.shape[1]) if expected.dim() > 1 else None
    if token_mask is not None and token_mask.shape == expected.shape[:2]:
        expected, actual = expected[token_mask], actual[token_mask]
    if not expected.numel():
        return OutputDifference(name, 0.0, BOUND)
    precision = max(BOUND, EPSILONS * torch.finfo(expected.dtype).eps)
    size, largest = float((expected - actual).abs().max()), float(expected.abs().max())
    if not math.isfinite(size):  # rarely, so that logits of a large vocabulary are read as few times as possible
        is_finite = expected.isfinite()
        largest = float(expected[is_finite].abs().max()) if bool(is_finite.any()) else 0.0
        same = (expected == actual) | (expected.isnan() & actual.isnan())
        size = float((expected - actual).abs().masked_fill(same, 0.0).nan_to_num(float("inf")).max())
    return OutputDifference(name, size, precision * max(1.0, largest))


def run_with_maps(
    model: nn.Module, inputs: tuple[Any, ...], settings: Mapping[str, Any]
) -> tuple[dict[str, CapturedAttention], Any]:
    """Run a model whose attention cannot be routed; return the maps that it returns itself, and its output."""
    tokens = settings.get("input_ids", inputs[0] if inputs else None)
    length = tokens.shape[1] if isinstance(tokens, Tensor) and tokens.dim() == 2 else 0
    if length > MAX_MAP_LENGTH:
        raise ArgumentError(
            f"{type(model).__name__} returns its complete maps, which the lens keeps for at most {MAX_MAP_LENGTH:,} "
            f"tokens; the input has {length:,}"
        )
    with select_implementation(model, lambda _: "eager"), evaluation_mode(model), torch.no_grad():
        output = model(*inputs, **{**settings, "output_attentions": True, "return_dict": True})
    attentions: dict[str, CapturedAttention] = {}
    for name, site in MAP_OUTPUTS.items():
        maps = output.get(name) if isinstance(output, Mapping) else None
        for layer, table in enumerate(maps if isinstance(maps, list | tuple) else ()):
            if isinstance(table, Tensor):
                _check_map(model, f"{name}[{layer}]", table)
                block, _, word = site.rpartition(".")
                full_site = f"{block}.{layer}.{word}" if block else f"layers.{layer}.{word}"
                attentions[full_site] = CapturedAttention(full_site, [WeightTable(table.detach())])
    if not attentions:
        raise ArgumentError(f"{type(model).__name__} returns no attention maps")
    return attentions, output


def _check_map(model: nn.Module, name: str, table: Tensor) -> None:
    """Raise an ArgumentError for a tensor that is not a map of weights: not query x key, or rows without sum 1 or 0."""
    windows = getattr(model.config, "attention_window", None)
    sums = table.detach().float().sum(-1)
    is_weight = bool((((sums - 1).abs() < ROW_SUM_BOUND) | (sums.abs() < ROW_SUM_BOUND)).all()) and bool(
        (table >= 0).all()
    )
    if table.dim() != 4 or not is_weight or windows is not None:
        raise ArgumentError(
            f"{type(model).__name__} returns {name} {list(table.shape)}, which are not weights "
            "[batch, head, query, key]"
        )
