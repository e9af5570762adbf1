"""Render a conversation with a model's chat template.

Templates come with models and are untrusted programs: they run in jinja2's sandbox, without access to the system.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from jumok.errors import ArgumentError

if TYPE_CHECKING:
    from jinja2 import nodes
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_CHARACTERS = 10_000_000  # limit for the text that a template renders


def render_chat(
    template: str, messages: Sequence[Mapping[str, Any]], tokens: Mapping[str, str], *, reply: bool = True
) -> str:
    """Render a conversation as text.

    Args:
        template: The Jinja template.
        messages: The conversation, such as [{"role": "user", "content": "Hi"}].
        tokens: Special tokens by the names that templates use, such as "bos_token".
        reply: End the text where the model's answer begins.

    Raises:
        ArgumentError: If a message has no role or content, or the template rejects the conversation or fails.
    """
    for index, message in enumerate(messages):
        if not {"role", "content"} <= message.keys():
            raise ArgumentError(
                f"message {index} needs the keys role and content; it has {', '.join(message) or 'no keys'}"
            )
    environment = _build_environment()
    from jinja2 import TemplateError

    copies = [dict(message) for message in messages]
    chunks: list[str] = []
    length = 0
    try:
        compiled = environment.from_string(template)
        # templates check whether tools and documents are none, so they must be defined
        stream = compiled.generate(messages=copies, add_generation_prompt=reply, tools=None, documents=None, **tokens)
        for chunk in stream:
            chunks.append(chunk)
            length += len(chunk)
            if length > MAX_CHARACTERS:
                raise TemplateError(f"it renders more than {MAX_CHARACTERS:,} characters")
    except TemplateError as error:
        raise ArgumentError(f"the chat template rejects this conversation: {error}") from error
    except Exception as error:  # a template is a program that can fail in any way
        raise ArgumentError(f"the chat template fails with {type(error).__name__}: {error}") from error
    return "".join(chunks)


def _build_environment() -> ImmutableSandboxedEnvironment:
    try:
        from jinja2 import TemplateError
        from jinja2.ext import Extension, LoopControlExtension
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as error:
        raise ArgumentError("chat templates need jinja2; install it with: pip install 'jumok[chat]'") from error

    class Generation(Extension):
        """Support {% generation %}, which marks the model's text for training; its content is written unchanged."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def raise_exception(message: object) -> None:
        raise TemplateError(str(message))

    def dump_json(document: object, indent: int | None = None) -> str:
        return json.dumps(document, ensure_ascii=False, indent=indent)  # jinja2's own filter escapes HTML

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, LoopControlExtension]
    )
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    environment.filters["tojson"] = dump_json
    return environment
