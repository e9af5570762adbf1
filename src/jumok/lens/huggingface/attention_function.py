"""Compute the attentions of transformers models with ``attend()``: the function in their registry, and Longformer's.

An argument that ``attend()`` has no equivalent for is refused if the model's own attention function reads it. Other
arguments concern other parts of the model (the router of a mixture of experts, the logits) and are ignored.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from jumok.attention import mask as masks
from jumok.attention.bias import Bias
from jumok.attention.mask import Mask
from jumok.attention.mask.table_masks import PaddingTable
from jumok.attention.score import ScaledDot
from jumok.errors import ArgumentError, describe_type
from jumok.lens.running.model_state import replace_forward
from jumok.tap import find_listener

from .forward_scope import ForwardScope, SiteNames
from .mask_functions import MaskTensor, TableBias, TableMask, read_table

#: the mask contains the window already
CONTAINED_IN_MASK = frozenset({"sliding_window", "is_causal"})
LONGFORMER_CLASSES = frozenset({"LongformerSelfAttention", "LEDEncoderSelfAttention"})


class MaskArguments(NamedTuple):
    """The arguments of ``attend()`` that follow from an attention mask of transformers."""

    mask: Mask | None
    bias: Bias | None
    queries: range
    keys: range


def create_attention_function(implementation: str) -> Callable[..., tuple[Tensor, None]]:
    """Create the function that is registered with transformers in place of an implementation ("sdpa", "eager", ...).

    It belongs to the run that executes. Other calls of a model, in a callback or in another thread, pass it too while
    a run executes; they have no sites.
    """

    def compute_attention(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: object,
        dropout: float = 0.0,
        scaling: float | None = None,
        is_causal: bool | None = None,
        softcap: float | None = None,
        s_aux: Tensor | None = None,
        position_bias: Tensor | None = None,
        indices: Tensor | None = None,
        **arguments: Any,
    ) -> tuple[Tensor, None]:
        scope = find_listener(ForwardScope)
        is_recorded = scope is not None and scope.sites.knows(module)
        if scope is None or not is_recorded:
            scope = ForwardScope({id(module): type(module).__name__})
        sites = scope.sites
        name = sites.get_name(module)
        _check_arguments(module, name, arguments)
        if arguments.get("sliding_window") is not None:  # a static cache with a window overwrites its keys in place
            key = key.clone()
        # without a mask, the eager functions of transformers allow everything, and the others what the module says
        causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
        causal = causal and implementation != "eager"
        mask, bias, queries, keys = read_mask(module, query, key, attention_mask, causal, sites)
        if indices is not None:  # [batch, query, selected]: the keys that the model selected for each query
            table = torch.zeros(*indices.shape[:2], len(keys), dtype=torch.bool, device=indices.device)
            table.scatter_(-1, indices.long(), True)
            selected = TableMask(table[:, None], queries.start, keys.start)
            mask = selected if mask is None else mask & selected
        if position_bias is not None:
            # the table covers all keys of the cache; a decoding step needs the last rows and the keys so far
            table = position_bias[..., -query.shape[2] :, : key.shape[2]]
            lowest = torch.finfo(table.dtype).min / 2  # so that adding scores cannot overflow
            position_table = TableBias(table.clamp(min=lowest), queries.start, keys.start)
            bias = position_table if bias is None else bias + position_table
        output = scope.attend(
            query,
            key,
            value,
            mask=mask,
            bias=bias,
            score=ScaledDot(scale=scaling, softcap=softcap, sink=s_aux),
            dropout=dropout if module.training else 0.0,
            site=sites.name_call(name, queries) if is_recorded else None,
            query_positions=queries,
            key_positions=keys,
        )
        return output.transpose(1, 2).contiguous(), None

    return compute_attention


def _check_arguments(module: nn.Module, name: str, arguments: dict[str, Any]) -> None:
    """Raise an ArgumentError for an argument that the model's own attention function reads and ``attend()`` lacks."""
    names = {argument for argument, content in arguments.items() if content is not None} - CONTAINED_IN_MASK
    needed = sorted(names & list_own_arguments(type(module).__module__))
    if needed:
        raise ArgumentError(
            f"{name} ({type(module).__name__}) passes {', '.join(needed)}, which the lens does not support"
        )


@cache
def list_own_arguments(module_name: str) -> frozenset[str]:
    """Return the names of the arguments that the attention functions of a model's own Python module read."""
    module = sys.modules[module_name]
    functions = [
        function
        for name, function in vars(module).items()
        if name.endswith("attention_forward") and isinstance(function, FunctionType)
    ]
    return frozenset(name for function in functions for name in _list_read_names(function.__code__))


def _list_read_names(code: CodeType) -> set[str]:
    """Return the parameters of a function, and the texts in its body, with which it may read further arguments."""
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    texts = {constant for constant in code.co_consts if isinstance(constant, str) and constant.isidentifier()}
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return {*parameters, *texts}.union(*(_list_read_names(function) for function in inner))


def read_mask(
    module: nn.Module, query: Tensor, key: Tensor, attention_mask: object, causal: bool, sites: SiteNames
) -> MaskArguments:
    """Convert an attention mask of transformers into a mask, a bias and positions.

    Args:
        attention_mask: A MaskTensor, a table of booleans or of numbers to add that can be broadcast to
            ``[batch, head, query, key]``, or None.
        causal: Whether the attention is causal if ``attention_mask`` is None.
    """
    query_count, key_count = query.shape[2], key.shape[2]
    if isinstance(attention_mask, MaskTensor):
        mask, queries, keys = attention_mask.positioned
        # A query that may attend to nothing has output 0 in ``attend()`` and in PyTorch's kernels. Where a model adds
        # numbers to its scores, it attends to all keys equally; the table of numbers says so.
        is_exact = attention_mask.dtype == torch.bool or not attention_mask.has_empty_rows()
        if is_exact and len(queries) == query_count and len(keys) == key_count:
            if mask is None or isinstance(mask, PaddingTable):  # cross-attentions get no positions when they decode
                queries = sites.locate_queries(query_count)
            return MaskArguments(mask, None, queries, keys)
        attention_mask = attention_mask.build_table()

    queries, keys = sites.locate_queries(query_count), range(key_count)
    if attention_mask is None:
        # as transformers does: a single query, as in a decoding step, is not masked, and positions count from 0
        if causal and query_count > 1:
            return MaskArguments(masks.causal, None, range(query_count), keys)
        return MaskArguments(None, None, queries, keys)
    name = type(module).__name__
    if not isinstance(attention_mask, Tensor) or attention_mask.dim() > 4:
        raise ArgumentError(
            f"{name} passes {describe_type(attention_mask)} as its mask, which the lens does not support"
        )
    table = attention_mask[(None,) * (4 - attention_mask.dim())]
    cells = (*query.shape[:3], key_count)
    if any(size not in (1, expected) for size, expected in zip(table.shape, cells, strict=True)):
        raise ArgumentError(
            f"{name} passes a mask {list(attention_mask.shape)} for scores {list(cells)}, "
            "which the lens does not support"
        )
    return MaskArguments(*read_table(table, queries, keys), queries, keys)


@contextmanager
def replace_longformer_attention(model: nn.Module, scope: ForwardScope) -> Iterator[None]:
    """Replace the attentions of Longformer and LED (Beltagy et al. 2020) while the context is open.

    transformers computes them in overlapping chunks, which the recognizer cannot read. They are two attentions: every
    token attends to the tokens in a window and to the global tokens; a global token attends to all tokens, with
    projections of its own. Here both are masks.
    """
    with ExitStack() as stack:
        for module in model.modules():
            kind = type(module)
            if kind.__name__ in LONGFORMER_CLASSES and kind.__module__.startswith("transformers."):
                stack.enter_context(replace_forward(module, _create_longformer_forward(module, scope), scope))
        yield


def _create_longformer_forward(module: Any, scope: ForwardScope) -> Callable[..., tuple[Tensor]]:
    """Create the forward pass of one attention of Longformer, with the arguments of the original."""

    def forward(hidden_states: Tensor, attention_mask: Tensor, *_: Any, **__: Any) -> tuple[Tensor]:
        # -10,000 = padding, 0 = local, 10,000 = global
        is_real, is_global = attention_mask >= 0, attention_mask > 0
        length = hidden_states.shape[1]
        window = masks.window(module.one_sided_attn_window_size + 1)
        local_mask = (window & _select_keys(is_real & ~is_global)) | _select_keys(is_global)
        site = scope.sites.name_call(scope.sites.get_name(module), range(length))

        def compute(suffix: str, mask: Mask, query: nn.Module, key: nn.Module, value: nn.Module) -> Tensor:
            # [batch, head, length, head_width]
            heads = (
                layer(hidden_states).unflatten(-1, (module.num_heads, -1)).transpose(1, 2)
                for layer in (query, key, value)
            )
            return scope.attend(*heads, mask=mask, site=f"{site}{suffix}")

        local_rows = _select_queries(is_real & ~is_global)
        output = compute("", local_mask & local_rows, module.query, module.key, module.value)
        if bool(is_global.any()):
            global_mask = _select_queries(is_global) & _select_keys(is_real)
            # a row belongs to one of the two attentions and is 0 in the other
            output = output + compute(
                ".global", global_mask, module.query_global, module.key_global, module.value_global
            )
        return (output.transpose(1, 2).flatten(2),)

    return forward


def _select_keys(selected: Tensor) -> Mask:
    """Return a mask that allows the selected keys, ``[batch, key]``."""
    return TableMask(selected[:, None, None, :], 0, 0)


def _select_queries(selected: Tensor) -> Mask:
    """Return a mask that allows the selected queries to attend, ``[batch, query]``."""
    return TableMask(selected[:, None, :, None], 0, 0)
