"""The interface between ``jumok.load``/``jumok.save`` and the modules of this folder."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from jumok.checkpoint.name_table import NameTable
from jumok.fields import JSONObject
from jumok.models import Config, Model


@runtime_checkable
class Dialect(Protocol):
    """How Hugging Face stores one of our families. Each module listed in ``DIALECTS`` implements this protocol with
    module-level functions and constants. It converts names and configs and contains no model arithmetic.

    Attributes:
        MODEL_TYPES: The values of "model_type" in config.json that this module reads.
    """

    MODEL_TYPES: tuple[str, ...]
    MODEL_CLASS: type[Model]

    def from_hf_config(self, hf_config: JSONObject) -> Config:
        """Convert Hugging Face's config to ours.

        Args:
            hf_config: The content of config.json; it may come from an untrusted file.

        Raises:
            CheckpointError: If a field is missing, or has a value that our model does not implement.
        """

    def can_express(self, config: Config) -> bool:
        """Return True if Hugging Face has a model that computes the same outputs as ours."""

    def to_hf_config(self, config: Config) -> JSONObject:
        """Convert our config to the content of config.json.

        Args:
            config: A config for which ``can_express`` is True.
        """

    def build_name_table(self, config: Config) -> NameTable:
        """Return the table of parameter names.

        Args:
            config: Our config, from ``from_hf_config`` or with ``can_express``.
        """
