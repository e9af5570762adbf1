"""Recipes: complete training runs by name, from the data to the report."""

from .dry_run import format_preview, preview_training
from .recipe import Defaults, Options, Recipe, describe_fields, describe_recipes, get_recipe
from .request import TrainingRequest, parse_changes
from .training_run import resume_run, start_run, train

__all__ = [
    "Defaults",
    "Options",
    "Recipe",
    "TrainingRequest",
    "describe_fields",
    "describe_recipes",
    "format_preview",
    "get_recipe",
    "parse_changes",
    "preview_training",
    "resume_run",
    "start_run",
    "train",
]
