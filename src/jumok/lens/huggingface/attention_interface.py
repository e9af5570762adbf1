"""Models of transformers, led to our door while a lens is open.

Their attention registry names a function for attention and one that makes masks. Ours go there under one name: the mask
function gives one of our mask expressions instead of a table of n x n numbers, the attention function hands everything
to ``attend``. What neither understands is refused by name, never left out.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from jumok.attention import bias as biases
from jumok.attention import mask as masks
from jumok.attention.attend import attend
from jumok.attention.grid import BlockGrid, Grid
from jumok.attention.mask import Mask
from jumok.attention.mask.base import PARTIAL
from jumok.attention.score import ScaledDot
from jumok.errors import ArgumentError
from jumok.tap import tap

NAME = "jumok"
# what models pass along and attention need not know: it is in the mask, or of no meaning here
PASSED_ALONG = frozenset(
    {
        "sliding_window", "position_ids", "cache_position", "use_cache", "output_attentions", "output_hidden_states",
        "return_dict", "num_items_in_batch", "layer_idx", "token_type_ids", "is_causal", "head_mask",
    }
)  # fmt: skip
MLPS = frozenset({"mlp", "feed_forward", "ffn", "DenseReluDense"})  # what models call them
# and what their attentions call the map behind the heads
OUTPUT_PROJECTIONS = ("c_proj", "o_proj", "out_proj", "out_lin", "o")


class MaskRequest(NamedTuple):
    """What a mask function of transformers is asked for, as an expression and the positions it is about."""

    mask: Mask | None
    queries: range
    keys: range


class MaskTensor(Tensor):
    """A mask as models pass it on: to them a tensor of [1, 1, query, key], which takes no memory; ``meant`` says what
    it is. Whoever computes with it loses that, and is refused at the door."""

    meant: MaskRequest | None = None

    @staticmethod
    def of(meant: MaskRequest, device: Any) -> MaskTensor:
        nothing = torch.zeros((), dtype=torch.bool, device=device)
        made = nothing.expand(1, 1, len(meant.queries), len(meant.keys)).as_subclass(MaskTensor)
        made.meant = meant
        return made

    def contiguous(self, *_: Any, **__: Any) -> MaskTensor:  # generation with a static cache asks for it
        return self

    def to(self, *_: Any, **__: Any) -> MaskTensor:
        return self


@dataclass(frozen=True, eq=False, repr=False)
class PredicateMask(Mask):
    """A mask function that is none of those we know by name; asked cell by cell."""

    function: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    needs_check = False

    def evaluate(self, grid: Grid) -> Tensor:
        four = torch.broadcast_tensors(grid.batch, grid.head, grid.query, grid.key)
        return self.function(*four).to(torch.bool)

    def classify_blocks(self, blocks: BlockGrid) -> Tensor:
        return torch.full((1, 1, 1, 1), PARTIAL, dtype=torch.int8, device=blocks.keys.device)

    def __repr__(self) -> str:
        return getattr(self.function, "__qualname__", "predicate").partition(".")[0]


def require_transformers_model(model: nn.Module) -> tuple[Any, Any]:
    """transformers and its module of masks, where this is one of its models; a sentence where not."""
    try:
        library: Any = importlib.import_module("transformers")
        masking: Any = importlib.import_module("transformers.masking_utils")
    except ImportError:
        library = masking = None
    if library is None or not isinstance(model, library.PreTrainedModel):
        raise ArgumentError(
            f"a lens is opened on our models, on what jumok.load gives, and on models of transformers; "
            f"{type(model).__name__} is none of them"
        )
    return library, masking


@contextmanager
def route_attention(model: nn.Module) -> Iterator[None]:
    """While open, the model's attention is ``attend``."""
    library, masking = require_transformers_model(model)
    parts = [one for one in model.modules() if isinstance(one, library.PreTrainedModel)]
    before = [(one.config, one.config._attn_implementation) for one in parts]
    sites = {id(module): name for name, module in model.named_modules()}
    name = f"{NAME}-{id(model)}"  # two lenses at once do not hear each other
    interface, mask_interface = library.AttentionInterface, masking.AttentionMaskInterface
    interface.register(name, _attention(sites))
    mask_interface.register(name, _mask_function(masking))
    hooks: list[Any] = []
    try:
        if not all(one._can_set_attn_implementation() for one in parts):
            raise ArgumentError(
                f"{type(model).__name__} does not use the attention registry of transformers, and cannot be seen"
            )
        for config, _ in before:
            config._attn_implementation_internal = name
        hooks += _taps(model)
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for config, implementation in before:
            config._attn_implementation_internal = implementation
        for registry in (interface, mask_interface):
            registry._global_mapping.pop(name, None)


def _taps(model: nn.Module) -> list[Any]:
    """Blocks and MLPs have no registry: while the lens is open, hooks tell of what they give."""

    def told(site: str) -> Callable[[nn.Module, Any, Any], Any]:
        def hook(module: nn.Module, inputs: Any, output: Any) -> Any:
            if isinstance(output, tuple):
                return (tap(site, output[0]), *output[1:])
            return tap(site, output)

        return hook

    hooks = [
        module.register_forward_hook(told(f"{name}.feedforward_output")) for name, module in find_feedforwards(model)
    ]
    modules = dict(model.named_modules())
    for name, module in modules.items():
        if any(isinstance(getattr(module, one, None), nn.Module) for one in OUTPUT_PROJECTIONS):
            hooks.append(module.register_forward_hook(told(f"{name}.block_output")))
        beside = modules.get(f"{name.rpartition('.')[0]}.output.dense")
        if name.rpartition(".")[2] in ("self", "attention") and beside is not None:  # BERT: heads here, their map there
            hooks.append(beside.register_forward_hook(told(f"{name}.block_output")))
    return hooks


def find_feedforwards(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Every MLP: the name of what it is a part of, and the module that gives what it adds to the path."""
    found: list[tuple[str, nn.Module]] = []
    modules = dict(model.named_modules())
    for name, module in modules.items():
        block, _, word = name.rpartition(".")
        if word in MLPS:
            found.append((block, module))
        elif hasattr(module, "intermediate") and f"{name}.output.dense" in modules:  # BERT, Swin
            found.append((name, modules[f"{name}.output.dense"]))
        elif all(f"{name}.{part}" in modules for part in ("self_attn", "fc1", "fc2")):  # BART
            found.append((name, modules[f"{name}.fc2"]))
    return found


# attention


def _attention(sites: dict[int, str]) -> Callable[..., tuple[Tensor, None]]:
    def attention(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Any,
        dropout: float = 0.0,
        scaling: float | None = None,
        is_causal: bool | None = None,
        softcap: float | None = None,
        s_aux: Tensor | None = None,
        position_bias: Tensor | None = None,
        **rest: Any,
    ) -> tuple[Tensor, None]:
        site = sites[id(module)]
        odd = sorted(name for name, given in rest.items() if given is not None and name not in PASSED_ALONG)
        if odd:
            raise ArgumentError(
                f"{site} ({type(module).__name__}) passes {', '.join(odd)}, which the lens does not know"
            )
        if rest.get("sliding_window") is not None:  # a static cache with a window overwrites its keys in place
            key = key.clone()
        mask, bias, queries, keys = _read(module, query, key, attention_mask, is_causal)
        if position_bias is not None:
            # made for every key that there will be; in one step only the last rows are asked for
            table = position_bias[..., -query.shape[2] :, : key.shape[2]]
            added = TableBias(_finite(table), queries.start, keys.start)
            bias = added if bias is None else bias + added
        output = attend(
            query,
            key,
            value,
            mask=mask,
            bias=bias,
            score=ScaledDot(scale=scaling, softcap=softcap, sink=s_aux),
            dropout=dropout if module.training else 0.0,
            site=site,
            query_positions=queries,
            key_positions=keys,
        )
        return output.transpose(1, 2).contiguous(), None

    return attention


def _read(
    module: nn.Module, query: Tensor, key: Tensor, given: Any, is_causal: bool | None
) -> tuple[Mask | None, biases.Bias | None, range, range]:
    """A mask, a bias and positions from whatever came as attention_mask."""
    plain = range(query.shape[2]), range(key.shape[2])
    if isinstance(given, MaskTensor):
        if given.meant is None:
            raise ArgumentError(f"{type(module).__name__} computes with its mask; the lens cannot read what it becomes")
        mask, queries, keys = given.meant
        if len(queries) != query.shape[2] or len(keys) != key.shape[2]:
            raise ArgumentError(
                f"{type(module).__name__} made a mask of {len(queries)} x {len(keys)} for {query.shape[2]} queries and "
                f"{key.shape[2]} keys; the lens does not know how to read it"
            )
        return mask, None, queries, keys
    if given is None:
        causal = getattr(module, "is_causal", False) if is_causal is None else is_causal
        # as the library's own function reads it: one row alone, or a source, is not masked
        return (masks.causal if causal and query.shape[2] > 1 else None), None, *plain
    if isinstance(given, Tensor) and given.dim() == 4:
        if given.dtype == torch.bool:
            return masks.given(given), None, *plain
        return None, TableBias(_finite(given), 0, 0), *plain
    raise ArgumentError(
        f"{type(module).__name__} passes a {type(given).__name__} as its mask, which the lens cannot read"
    )


def _finite(table: Tensor) -> Tensor:
    """Where numbers to add forbid (by the least number there is), they stay so, but leave room for scores."""
    return table.clamp(min=torch.finfo(table.dtype).min / 2)


@dataclass(frozen=True, eq=False)
class TableBias(biases.Bias):
    """Numbers to add, [batch or 1, head or 1, query, key], of a piece that begins at these positions."""

    table: Tensor
    query: int
    key: int

    def evaluate(self, grid: Grid) -> Tensor:
        batch = grid.batch if self.table.shape[0] > 1 else torch.zeros_like(grid.batch)
        head = grid.head if self.table.shape[1] > 1 else torch.zeros_like(grid.head)
        return self.table[batch, head, grid.query - self.query, grid.key - self.key]

    def gradient_tensors(self) -> tuple[Tensor, ...]:
        return (self.table,)


# masks


def _mask_function(masking: Any) -> Callable[..., MaskTensor]:
    def mask_function(
        batch_size: int,
        q_length: int,
        kv_length: int,
        q_offset: Any = 0,
        kv_offset: Any = 0,
        mask_function: Callable[..., Any] | None = None,
        attention_mask: Tensor | None = None,
        device: Any = "cpu",
        **_: Any,
    ) -> MaskTensor:
        function = masking.causal_mask_function if mask_function is None else mask_function
        found = expression(function, masking)
        padding = masking.prepare_padding_mask(attention_mask, kv_length, int(kv_offset))
        if padding is not None and not bool(padding.all()):
            real = masks.padding(padding.to(torch.bool))
            found = real if found is None else found & real
        first, begin = int(q_offset), int(kv_offset)
        return MaskTensor.of(
            MaskRequest(found, range(first, first + q_length), range(begin, begin + kv_length)), device
        )

    return mask_function


def expression(function: Callable[..., Any], masking: Any) -> Mask | None:
    """A mask function of transformers as one of our expressions; None where it allows everything."""
    if function is masking.causal_mask_function:
        return masks.causal
    if function is masking.bidirectional_mask_function:
        return None
    word = getattr(function, "__qualname__", "").partition(".")[0]
    held = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    if word == "and_masks":
        return _all(held[0], masking)
    if word == "sliding_window_bidirectional_overlay":
        return masks.window(int(held[0]) + 1)
    return PredicateMask(function)


def _all(functions: Any, masking: Any) -> Mask | None:
    found: Mask | None = None
    causal = masking.causal_mask_function in functions
    for function in functions:
        word = getattr(function, "__qualname__", "").partition(".")[0]
        if word == "sliding_window_overlay" and causal:  # it looks back alone; with causality that is a window
            one: Mask | None = masks.window(int(function.__closure__[0].cell_contents))
        else:
            one = expression(function, masking)
        if one is not None:
            found = one if found is None else found & one
    return found
