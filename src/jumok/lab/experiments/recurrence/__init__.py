"""Experiment ``recurrence``: LSTMs with and without attention, a CNN and Transformers copy sequences."""
