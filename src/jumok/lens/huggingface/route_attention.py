"""Route a transformers model through ``attend()`` while a context is open, and restore it afterwards.

transformers looks up its attention and mask functions by name in two registries. Jumok's functions are registered under
names of their own for each model, and the configs of the model and its parts select these names. Attentions outside the
registry are found by the recognizer.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from jumok.attention import mask as masks
from jumok.attention.attend import attend
from jumok.attention.score import ScaledDot
from jumok.errors import ArgumentError

from .attention_function import create_attention_function
from .forward_scope import ForwardScope
from .longformer import replace_longformer_attention
from .mask_functions import create_mask_function
from .module_taps import register_taps
from .recognizer import AttentionRecognizer, RecognizedAttention
from .score_tables import TableArguments, read_added_table, read_boolean_table, split_scores
from .site_names import SiteNames

#: who computes the attentions in transformers' registry
REGISTRY, OWN, EAGER = "registry", "own", "eager"


class TransformersModules(NamedTuple):
    """The package ``transformers`` and its module ``masking_utils``."""

    package: ModuleType
    masking: ModuleType


def import_transformers(model: nn.Module) -> TransformersModules:
    """Import transformers if the model is one of its models.

    Args:
        model: The model to check.

    Raises:
        ArgumentError: If the model is not a model of transformers, or transformers is not installed.
    """
    try:
        package = importlib.import_module("transformers")
        masking = importlib.import_module("transformers.masking_utils")
    except ImportError:
        modules = None
    else:
        modules = TransformersModules(package, masking)
    if modules is None or not isinstance(model, modules.package.PreTrainedModel):
        raise ArgumentError(
            f"the lens does not support {type(model).__name__}; use a model of Jumok, what jumok.load returns, or a "
            "model of transformers"
        )
    return modules


def list_parts(model: nn.Module) -> list[Any]:
    """Return a model of transformers and the models of transformers inside it.

    Args:
        model: A model of transformers.
    """
    package = import_transformers(model).package
    return [module for module in model.modules() if isinstance(module, package.PreTrainedModel)]


@contextmanager
def route_attention(
    model: nn.Module, *, functions: str = REGISTRY, recognize: bool = True
) -> Iterator[AttentionRecognizer | None]:
    """Compute the model's attentions with ``attend()`` while the context is open.

    Args:
        model: A model of transformers.
        functions: Who computes the attentions in transformers' registry: "registry" (the function registered here),
            "own" (the model's own implementation) or "eager" (its eager functions). The recognizer finds attentions in
            the last two.
        recognize: Whether to look for attentions outside the registry.

    Yields:
        The recognizer, which counts the attentions that it finds; None without one.
    """
    sites = SiteNames(model)
    parts = list_parts(model)
    recognizer = AttentionRecognizer(lambda attention: _compute_recognized(attention, scope)) if recognize else None
    scope = ForwardScope(sites, recognizer)
    with ExitStack() as stack:
        if functions == REGISTRY:
            stack.enter_context(_register_functions(model, sites))
        elif functions == EAGER:
            stack.enter_context(select_implementation(model, lambda _: "eager"))
        stack.enter_context(replace_longformer_attention(model, sites))
        for handle in register_taps(model, sites.name_module_call, sites.name_input):
            stack.callback(handle.remove)
        stack.enter_context(scope.follow(model, parts))
        yield recognizer


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Switch a model to evaluation mode while the context is open.

    Args:
        model: The model.
    """
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


@contextmanager
def select_implementation(model: nn.Module, choose: Callable[[str], str]) -> Iterator[None]:
    """Change the implementation of attention of a model and its parts while the context is open.

    Args:
        model: A model of transformers.
        choose: Returns the new implementation for the present one.
    """
    configs = {id(part.config): part.config for part in list_parts(model)}.values()
    previous = [(config, config._attn_implementation) for config in configs]
    try:
        for config, implementation in previous:
            config._attn_implementation_internal = choose(implementation)
        yield
    finally:
        for config, implementation in previous:
            config._attn_implementation_internal = implementation


@contextmanager
def _register_functions(model: nn.Module, sites: SiteNames) -> Iterator[None]:
    """Register Jumok's attention and mask functions for a model, and select them in its configs."""
    package, masking = import_transformers(model)
    registries = (package.AttentionInterface, masking.AttentionMaskInterface)
    implementations = {str(part.config._attn_implementation) for part in list_parts(model)}
    # unique for each model, so that two open lenses do not interfere
    names = {implementation: f"jumok-{id(model)}-{implementation}" for implementation in implementations}
    try:
        for implementation, name in names.items():
            registries[0].register(name, create_attention_function(sites, implementation))
            registries[1].register(name, create_mask_function(masking, implementation))
        with select_implementation(model, lambda implementation: names[str(implementation)]):
            yield
    finally:
        for registry in registries:
            for name in names.values():
                registry._global_mapping.pop(name, None)


def _compute_recognized(attention: RecognizedAttention, scope: ForwardScope) -> Tensor:
    """Compute a recognised attention with ``attend()``."""
    query, key = attention.query, attention.key
    queries = scope.sites.locate_queries(query.shape[2])
    keys = range(key.shape[2])
    score = ScaledDot(scale=attention.scale)
    if attention.scores is not None:
        product = score.evaluate(query, key).to(attention.scores.dtype)
        mask, bias = split_scores(attention.scores, product, queries, keys)
    elif attention.added is not None:
        mask, bias = _read_kernel_mask(attention.added, queries, keys)
    else:
        mask, bias = None, None
    if attention.is_causal:
        # PyTorch's kernels count both positions from 0
        queries = range(query.shape[2])
        mask = masks.causal if mask is None else mask & masks.causal
    return attend(
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


def _read_kernel_mask(added: Tensor, queries: range, keys: range) -> TableArguments:
    """Convert the mask of a call of PyTorch's fused attention: booleans, or numbers to add."""
    table = added.expand(-1, -1, -1, len(keys))
    if table.dtype == torch.bool:
        return read_boolean_table(table, queries, keys)
    return read_added_table(table, queries, keys)
