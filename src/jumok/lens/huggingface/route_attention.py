"""Route a transformers model through ``attend()`` while a run executes, and restore it afterwards.

transformers looks up its attention and mask functions by name in two registries. Jumok's functions are registered under
names of their own, and during a run the configs of the model and its parts select these names. Attentions outside the
registry are found by the recognizer. Everything that a run changes acts only in this run: the hooks and functions look
for its ``ForwardScope`` among the listeners of the context.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from torch import Tensor, nn

from jumok.attention import mask as masks
from jumok.attention.score import ScaledDot
from jumok.errors import ArgumentError
from jumok.lens.running.model_state import change_lock

from .attention_function import create_attention_function
from .forward_scope import ForwardScope
from .mask_functions import create_mask_function, read_table, split_scores
from .recognizer import RecognizedAttention

PREFIX = "jumok-"  # of the names of Jumok's functions in the registries


def import_transformers(model: nn.Module) -> ModuleType:
    """Import transformers if the model is one of its models."""
    try:
        package = importlib.import_module("transformers")
        importlib.import_module("transformers.masking_utils")  # an older version has none
    except ImportError:
        package = None
    if package is None or not isinstance(model, package.PreTrainedModel):
        raise ArgumentError(
            f"the lens does not support {type(model).__name__}; use a model of Jumok, what jumok.load returns, or a "
            "model of transformers"
        )
    return package


def list_parts(model: nn.Module) -> list[Any]:
    """Return a model of transformers and the models of transformers inside it."""
    package = import_transformers(model)
    return [module for module in model.modules() if isinstance(module, package.PreTrainedModel)]


@contextmanager
def select_implementation(model: nn.Module, choose: Callable[[str], str]) -> Iterator[None]:
    """Change the implementation of attention of a model and its parts while the context is open.

    Only one thread at a time can do this. ``choose`` returns the new implementation for the model's own one.
    """
    configs = {id(part.config): part.config for part in list_parts(model)}.values()
    with change_lock:
        previous = [(config, config._attn_implementation) for config in configs]
        try:
            for config, implementation in previous:
                # a run in a callback of another run finds the implementation of that run
                config._attn_implementation_internal = choose(str(implementation).removeprefix(PREFIX))
            yield
        finally:
            for config, implementation in previous:
                config._attn_implementation_internal = implementation


def register_functions(implementation: str) -> str:
    """Register Jumok's functions in place of an implementation, and return their name.

    They stay: a call in another thread may have read their name before the run restored the config.
    """
    package = importlib.import_module("transformers")
    masking = importlib.import_module("transformers.masking_utils")
    name = f"{PREFIX}{implementation}"
    if name not in package.AttentionInterface._global_mapping:
        masking.AttentionMaskInterface.register(name, create_mask_function(masking, implementation))
        package.AttentionInterface.register(name, create_attention_function(implementation))
    return name


def compute_recognized(attention: RecognizedAttention, scope: ForwardScope) -> Tensor:
    """Compute a recognised attention with ``attend()``."""
    query, key = attention.query, attention.key
    queries = scope.sites.locate_queries(query.shape[2])
    keys = range(key.shape[2])
    score = ScaledDot(scale=attention.scale)
    if attention.scores is not None:
        product = score.evaluate(query, key).to(attention.scores.dtype)
        mask, bias = split_scores(attention.scores, product, queries, keys)
    elif attention.added is not None:
        mask, bias = read_table(attention.added, queries, keys)
    else:
        mask, bias = None, None
    if attention.is_causal:
        # PyTorch's kernels count both positions from 0
        queries = range(query.shape[2])
        mask = masks.causal if mask is None else mask & masks.causal
    output = scope.attend(
        query,
        key,
        attention.value,
        mask=mask,
        bias=bias,
        score=score,
        site=scope.sites.name_call(scope.module, queries),
        query_positions=queries,
        key_positions=keys,
    )
    return output.clone()  # a model may go on to change it in place, as Nystromformer does, but not the recorded one
