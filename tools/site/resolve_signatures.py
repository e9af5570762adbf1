"""Griffe extension: show one signature per function, with real types and defaults.

A function with overloads shows the last one, which is the widest, because the implementation may accept anything.
``axes.Query`` is shown as the tensor type with its axes, and a private default as its value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from griffe import ExprAttribute, Extension, Function, GriffeLoader, Module, Object

AXES_MODULE = "axes"


def expand_axes(annotation: Any, axes: Module) -> Any:
    """Return the annotation with every name of ``jumok.axes`` replaced by its tensor type."""
    if isinstance(annotation, list):
        return [expand_axes(part, axes) for part in annotation]
    if isinstance(annotation, ExprAttribute) and str(annotation.first) == AXES_MODULE:
        return axes[annotation.last.name].value
    if is_dataclass(annotation):
        for field in fields(annotation):
            if field.name != "parent":
                setattr(annotation, field.name, expand_axes(getattr(annotation, field.name), axes))
    return annotation


def merge_overloads(function: Function) -> None:
    """Show the last overload as the signature of the function, and drop the overloads."""
    if not function.overloads:
        return
    widest = function.overloads[-1]
    defaults = {parameter.name: parameter.default for parameter in function.parameters}
    for parameter in widest.parameters:
        # the last overload has no default for the argument that selects an overload
        parameter.default = parameter.default or defaults.get(parameter.name)
    function.parameters = widest.parameters
    function.returns = widest.returns
    function.overloads = None


def resolve_defaults(function: Function) -> None:
    """Replace defaults that are private names of the function's module by their values."""
    for parameter in function.parameters:
        constant = function.module.members.get(str(parameter.default))
        if constant is not None and constant.name.startswith("_") and constant.is_attribute:
            parameter.default = constant.value


def list_functions(parent: Object) -> Iterator[Function]:
    """Yield all functions and methods below a module or class, without those that it imports."""
    for member in parent.members.values():
        if member.is_alias:
            continue
        if member.is_function:
            yield member
        else:
            yield from list_functions(member)


class ResolveSignatures(Extension):
    """Apply the three steps to every function of the package."""

    def on_package(self, *, pkg: Module, loader: GriffeLoader, **_: object) -> None:
        """Rewrite the signatures of a package that has been read completely."""
        for function in list_functions(pkg):
            merge_overloads(function)
            resolve_defaults(function)
            if AXES_MODULE in pkg.members:
                function.returns = expand_axes(function.returns, pkg[AXES_MODULE])
                for parameter in function.parameters:
                    parameter.annotation = expand_axes(parameter.annotation, pkg[AXES_MODULE])
