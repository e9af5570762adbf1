"""Tables of models whose embedding has several names. Files hold some of them, and configs do not say which."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor, nn

from jumok.checkpoint.name_table import Rule, Table
from jumok.errors import CheckpointError


class CopiesTable(Table):
    """copies: names that hold another tensor once more, where a file has them; refused where they differ, because
    transformers then goes by the copy. stand_ins: what is read in place of a name that the file lacks."""

    def __init__(
        self,
        rules: Iterable[Rule],
        ignored: Iterable[str] = (),
        base: str = "",
        *,
        copies: Mapping[str, str],
        stand_ins: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(rules, [*ignored, *copies], base)
        self.copies, self.stand_ins = copies, stand_ins or {}

    def load(self, model: nn.Module, names: Iterable[str], read: Callable[[str], Tensor], what: str) -> None:
        theirs = self._full(names)
        for copy, original in self.copies.items():
            both = copy in theirs and original in theirs
            if both and not torch.equal(read(theirs[copy]), read(theirs[original])):
                raise CheckpointError(f"{what}: by its config {copy!r} is {original!r} once more, but the two differ")
        missing = {
            name: original for name, original in self.stand_ins.items() if name not in theirs and original in theirs
        }

        def read_full(name: str) -> Tensor:
            # a clone: two parameters may not share their memory
            return read(theirs[missing[name]]).clone() if name in missing else read(theirs[name])

        super().load(model, [*theirs, *missing], read_full, what)
