"""A name table for models whose embedding is stored under one or more of several names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor, nn

from jumok.checkpoint.name_table import NameTable, Rule
from jumok.errors import CheckpointError


class TiedTable(NameTable):
    """A name table that knows which tensors are copies of others.

    Args:
        rules: One rule for each parameter name.
        ignored: Names in the file that the model does not need.
        base: The prefix that is missing from every name in files saved without a head.
        copies: Names that may repeat another tensor, with the name of that tensor. If the two differ the file is
            refused, because transformers would use the copy.
        substitutes: For a name that the file may lack, the name to read instead.
    """

    def __init__(
        self,
        rules: Iterable[Rule],
        ignored: Iterable[str] = (),
        base: str = "",
        *,
        copies: Mapping[str, str],
        substitutes: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(rules, [*ignored, *copies], base)
        self.copies = copies
        self.substitutes = substitutes or {}

    def load_parameters(
        self, model: nn.Module, names: Iterable[str], read: Callable[[str], Tensor], origin: str
    ) -> None:
        """Fill ``model``, after comparing all copies; see ``NameTable.load_parameters``."""
        stored = self._find_stored_names(names)
        for copy, original in self.copies.items():
            if copy not in stored or original not in stored:
                continue
            if not torch.equal(read(stored[copy]), read(stored[original])):
                raise CheckpointError(
                    f"{origin}: config.json ties {copy!r} to {original!r}, but the two tensors differ"
                )

        missing = {
            name: original for name, original in self.substitutes.items() if name not in stored and original in stored
        }

        def read_or_substitute(name: str) -> Tensor:
            # a clone: two parameters may not share memory
            return read(stored[missing[name]]).clone() if name in missing else read(stored[name])

        super().load_parameters(model, [*stored, *missing], read_or_substitute, origin)
