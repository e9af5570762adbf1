"""The backends of ``attend()``: each module has ``explain_refusal(request)`` and ``compute(request)``."""
