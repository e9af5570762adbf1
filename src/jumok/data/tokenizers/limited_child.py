"""Render chat templates and run tokenizers with limits on time and memory: a program in a process of its own.

A template is a program from an untrusted file, and so is a regular expression of a tokenizer.json: the one writes a
billion characters, the other searches for hours, and Python can interrupt neither. The system can end a process.
`limited_process.py` starts this file as a program. It imports jinja2 or tokenizers and nothing of Jumok, so that it
starts quickly.

Requests and replies are JSON objects on standard input and output, each preceded by its length in 8 bytes. A reply is
an answer, or {"rejected": reason}, {"failed": reason} or {"limit": the limit that was exceeded}.
"""

from __future__ import annotations

import contextlib
import json
import signal
import struct
import sys
import time
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from jinja2 import Template, nodes
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_SECONDS = 2.0  # of processor time for one conversation
MAX_MEMORY = 256 * 2**20  # bytes of the process that renders templates, including Python itself
TOKENIZER_MEMORY = 3 * 2**30  # a vocabulary of 8 million letters needs 800 MB
MAX_OUTPUT = 1_000_000  # bytes of the rendered text in UTF-8
MAX_REASON = 300  # characters of an error that the template raises
# Modules that Python imports on first use; after the limits are set, no file can be opened.
LATE_IMPORTS = (
    "ast", "html", "jinja2.constants", "jinja2.debug", "pprint", "textwrap", "unicodedata", "encodings.unicode_escape",
)  # fmt: skip
WARM_UP = "{{ 'a\\u0041' | tojson | title }}{{ strftime_now('%d %B %Y') }}{{ lipsum(1, false, 1, 2) | striptags }}"


def build_environment() -> ImmutableSandboxedEnvironment:
    """Return the sandbox with the functions and tags that chat templates of Hugging Face models use."""
    from jinja2 import TemplateError
    from jinja2.ext import Extension, LoopControlExtension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class GenerationTag(Extension):
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
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, LoopControlExtension]
    )
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    environment.filters["tojson"] = dump_json
    return environment


@lru_cache(maxsize=1)  # a conversation is rendered again after every turn
def compile_template(template: str) -> Template:
    """Return a compiled template."""
    return build_environment().from_string(template)


def render(template: str, variables: dict[str, Any]) -> dict[str, str]:
    """Render a template."""
    from jinja2 import TemplateError

    chunks: list[str] = []
    length = 0
    try:
        for chunk in compile_template(template).generate(variables):
            chunks.append(chunk)
            length += len(chunk.encode("utf-8", "surrogatepass"))
            if length > MAX_OUTPUT:
                return {"limit": f"renders more than {MAX_OUTPUT:,} bytes of text"}
        return {"text": "".join(chunks)}
    except TemplateError as error:
        return {"rejected": str(error)[:MAX_REASON]}
    except MemoryError:
        return {"limit": f"needs more than {MAX_MEMORY // 2**20} MB of memory"}
    except Exception as error:  # a template is a program that can fail in any way
        return {"failed": f"{type(error).__name__}: {str(error)[:MAX_REASON]}"}


class TokenizerServer:
    """Load a tokenizer of the library, and encode and decode with it."""

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a request to load a file, to encode a text or to decode ids."""
        try:
            if "load" in request:
                from tokenizers import Tokenizer

                self._tokenizer = Tokenizer.from_str(request["load"])
                self._tokenizer.no_padding()
                self._tokenizer.no_truncation()
                return {}
            if "ids" in request:
                return {"text": self._tokenizer.decode(request["ids"], skip_special_tokens=request["skip_special"])}
            encoding = self._tokenizer.encode(request["text"], add_special_tokens=request["add_special"])
            return {"ids": encoding.ids, "offsets": encoding.offsets}
        except BaseException as error:  # a panic of the library is a BaseException
            return {"failed": str(error)[:MAX_REASON]}


def read_message(stream: BinaryIO) -> dict[str, Any] | None:
    """Return the next JSON object of a stream; None at its end, also in the middle of an object."""
    head = stream.read(8)
    if len(head) < 8:
        return None
    length = struct.unpack(">Q", head)[0]
    body = stream.read(length)
    if len(body) < length:
        return None
    message: dict[str, Any] = json.loads(body)
    return message


def write_message(stream: BinaryIO, message: dict[str, Any]) -> None:
    """Write a JSON object to a stream."""
    body = json.dumps(message).encode()
    stream.write(struct.pack(">Q", len(body)) + body)
    stream.flush()


def limit_process(memory: int) -> None:
    """Limit the memory of this process, and let it open no files and write none."""
    # as in retrieval/files/pdf_child.py: each child is one file that imports nothing of Jumok
    try:
        import resource
    except ImportError:  # Windows: only the parent's deadline applies
        return
    limits = {"RLIMIT_AS": memory, "RLIMIT_NOFILE": 0, "RLIMIT_FSIZE": 0, "RLIMIT_CORE": 0}
    for name, limit in limits.items():
        with contextlib.suppress(ValueError, OSError):  # macOS knows RLIMIT_AS but does not accept every limit
            resource.setrlimit(getattr(resource, name), (limit, limit))


def set_deadline(seconds: float) -> None:
    """Let the system end this process after some processor time (wall-clock time depends on the load); 0 = never."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)


def main() -> None:
    """Serve requests until standard input ends. The arguments are "jinja2" or "tokenizers", and folders of modules."""
    kind = sys.argv[1]
    sys.path.extend(sys.argv[2:])
    if kind == "jinja2":
        for name in ("jinja2.sandbox", "jinja2.ext", *LATE_IMPORTS):
            __import__(name)
        time.localtime()  # reads the file of the time zone
        render(WARM_UP, {})
        render("{{ 1 / 0 }}", {})
    else:
        __import__("tokenizers")
        server = TokenizerServer()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGPROF])
    memory = MAX_MEMORY if kind == "jinja2" else TOKENIZER_MEMORY
    limit_process(memory)
    write_message(sys.stdout.buffer, {"ready": True})

    while True:
        try:
            request = read_message(sys.stdin.buffer)
            if request is None:
                return
            set_deadline(request["seconds"])
            if kind == "jinja2":
                reply: dict[str, Any] = render(request["template"], request["variables"])
            else:
                reply = server.answer(request)
            set_deadline(0)
        except MemoryError:
            reply = {"limit": f"needs more than {memory // 2**20} MB of memory"}
        write_message(sys.stdout.buffer, reply)
        if "limit" in reply:  # its memory may be fragmented; the parent starts another process
            return


if __name__ == "__main__":
    main()
