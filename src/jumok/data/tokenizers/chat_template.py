"""Render a conversation with a model's chat template.

Templates come with models and are untrusted programs: they run in jinja2's sandbox, in a child process with limits on
time, memory and output.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from jumok.data.tokenizers.limited_child import MAX_SECONDS
from jumok.data.tokenizers.limited_process import LimitedProcess
from jumok.errors import ArgumentError

_process = LimitedProcess("jinja2", "renders chat templates")


def render_chat(
    template: str, messages: Sequence[Mapping[str, Any]], tokens: Mapping[str, str], *, reply: bool = True
) -> str:
    """Render a conversation as text, which ends where the model's answer begins if ``reply`` is True.

    ``tokens`` are special tokens by the names that templates use, such as "bos_token".
    """
    for index, message in enumerate(messages):
        if not {"role", "content"} <= message.keys():
            names = ", ".join(map(str, message))[:200]
            raise ArgumentError(f"message {index} needs the keys role and content; it has {names or 'no keys'}")
        try:
            json.dumps(dict(message))
        except (TypeError, ValueError, RecursionError) as error:
            raise ArgumentError(
                f"message {index} must consist of text, numbers, lists and dictionaries: {str(error)[:200]}"
            ) from None
    # templates check whether tools and documents are none, so they must be defined
    variables = {
        "messages": [dict(message) for message in messages],
        "add_generation_prompt": reply,
        "tools": None,
        "documents": None,
        **tokens,
    }
    answer = _process.request({"template": template, "variables": variables}, MAX_SECONDS)
    if "text" in answer:
        return str(answer["text"])
    if "rejected" in answer:
        raise ArgumentError(f"the chat template rejects this conversation: {answer['rejected']}")
    if "limit" in answer:
        raise ArgumentError(
            f"the chat template {answer['limit']}, the limit for a template; use the model without its template"
        )
    raise ArgumentError(f"the chat template fails with {answer['failed']}")
