"""Synthesise speech whose word times are known, with espeak-ng and flite, to train and to calibrate speech models."""

from .utterance import SpokenWord, Utterance

__all__ = ["SpokenWord", "Utterance"]
