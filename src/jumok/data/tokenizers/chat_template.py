"""Chat templates: a conversation as the one text that a model was trained on.

Templates come with models and are programs: they run in jinja2's sandbox, where they cannot reach the machine.
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

LONGEST = 10_000_000  # characters that a template may write


def render(
    template: str, messages: Sequence[Mapping[str, Any]], tokens: Mapping[str, str], *, reply: bool = True
) -> str:
    """The conversation as text; with `reply`, it ends where the model's answer begins."""
    for place, message in enumerate(messages):
        if not {"role", "content"} <= message.keys():
            raise ArgumentError(f"message {place} needs a role and a content; it has {', '.join(message) or 'nothing'}")
    environment = _environment()
    from jinja2 import TemplateError

    given = [dict(message) for message in messages]
    written, length = [], 0
    try:
        ready = environment.from_string(template)
        # tools and documents: templates ask whether they are none, not whether they are defined
        pieces = ready.generate(messages=given, add_generation_prompt=reply, tools=None, documents=None, **tokens)
        for piece in pieces:
            written.append(piece)
            length += len(piece)
            if length > LONGEST:
                raise TemplateError(f"it writes more than {LONGEST:,} characters")
    except TemplateError as error:
        raise ArgumentError(f"the chat template refuses this conversation: {error}") from error
    except Exception as error:  # a template is a program: it can fail in any way
        raise ArgumentError(f"the chat template fails with {type(error).__name__}: {error}") from error
    return "".join(written)


def _environment() -> ImmutableSandboxedEnvironment:
    try:
        from jinja2 import TemplateError
        from jinja2.ext import Extension, LoopControlExtension
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as error:
        raise ArgumentError("chat templates need jinja2; install it with: pip install 'jumok[chat]'") from error

    class Generation(Extension):
        """{% generation %} marks what the model wrote, for training; here its inside is simply written."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def refuse(reason: object) -> None:
        raise TemplateError(str(reason))

    def tojson(value: object, indent: int | None = None) -> str:
        return json.dumps(value, ensure_ascii=False, indent=indent)  # jinja2's own escapes for HTML

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, LoopControlExtension]
    )
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    environment.filters["tojson"] = tojson
    return environment
