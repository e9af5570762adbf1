"""Compute the attention of Longformer and LED (Beltagy et al. 2020) with ``attend()``.

transformers computes it in overlapping chunks, which the recognizer cannot read. It is two attentions: every token
attends to the tokens in a window and to the global tokens; a global token attends to all tokens, with projections of
its own. Here both are masks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from jumok.attention import mask as masks
from jumok.attention.mask import Mask
from jumok.lens.model_state import replace_forward

from .forward_scope import ForwardScope
from .score_tables import TableMask

CLASS_NAMES = frozenset({"LongformerSelfAttention", "LEDEncoderSelfAttention"})


@contextmanager
def replace_longformer_attention(model: nn.Module, scope: ForwardScope) -> Iterator[None]:
    """Replace the forward pass of Longformer's attentions while the context is open."""
    with ExitStack() as stack:
        for module in model.modules():
            if _is_longformer_attention(module):
                stack.enter_context(replace_forward(module, _create_forward(module, scope), scope))
        yield


def _is_longformer_attention(module: nn.Module) -> bool:
    kind = type(module)
    return kind.__name__ in CLASS_NAMES and kind.__module__.startswith("transformers.")


def _create_forward(module: Any, scope: ForwardScope) -> Callable[..., tuple[Tensor]]:
    """Create the forward pass of one attention, with the arguments of the original."""

    def forward(hidden_states: Tensor, attention_mask: Tensor, *_: Any, **__: Any) -> tuple[Tensor]:
        # -10,000 = padding, 0 = local, 10,000 = global
        is_real, is_global = attention_mask >= 0, attention_mask > 0
        length = hidden_states.shape[1]
        window = masks.window(module.one_sided_attn_window_size + 1)
        local_mask = (window & _select_keys(is_real & ~is_global)) | _select_keys(is_global)
        site = scope.sites.name_call(scope.sites.get_name(module), range(length))

        def compute(suffix: str, mask: Mask, query: nn.Module, key: nn.Module, value: nn.Module) -> Tensor:
            heads = (_split_heads(layer(hidden_states), module.num_heads) for layer in (query, key, value))
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


def _split_heads(hidden: Tensor, heads: int) -> Tensor:
    """Return ``[batch, head, length, head_width]``."""
    return hidden.unflatten(-1, (heads, -1)).transpose(1, 2)


def _select_keys(selected: Tensor) -> Mask:
    """Return a mask that allows the selected keys, ``[batch, key]``."""
    return TableMask(selected[:, None, None, :], 0, 0)


def _select_queries(selected: Tensor) -> Mask:
    """Return a mask that allows the selected queries to attend, ``[batch, query]``."""
    return TableMask(selected[:, None, :, None], 0, 0)
