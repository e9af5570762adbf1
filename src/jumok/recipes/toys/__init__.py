"""Recipes on generated data, small enough to train in minutes: numbers, copy, reverse, sort, add and induction."""
