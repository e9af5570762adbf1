"""Hostile chat templates end within their limits with one sentence; templates of real models render as before.

``make test`` renders the quick ones, ``make faults`` all of them.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from hostile_files.chat_templates import QUICK, REAL, SLOW
from jumok.data.tokenizers import chat_template, limited_child, limited_process
from jumok.data.tokenizers.chat_template import render_chat
from jumok.errors import ArgumentError

ALL = int(os.environ.get("JUMOK_FAULTS", "0")) > 50
CASES = {**QUICK, **(SLOW if ALL else {})}
CONVERSATION = [
    {"role": "user", "content": " Hi, 주목! <b>\\n</b> "},
    {"role": "assistant", "content": "Hello"},
    {"role": "user", "content": "a" * 300},
]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}

pytestmark = pytest.mark.xdist_group("hostile templates")


@pytest.mark.parametrize("name", CASES)
def test_hostile_template_is_refused(name: str) -> None:
    template, words = CASES[name]
    before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ArgumentError) as refused:
        render_chat(template, CONVERSATION, TOKENS)
    message = str(refused.value)
    assert any(word in message for word in words.split("|")), message
    assert message.startswith("the chat template ") and len(message) < 450 and "\n" not in message
    assert time.process_time() - before[0] < 1  # of this process; the child's time is limited to 2 s
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before[1] < 64 * 1024
    assert render_chat("{{ messages[0].role }}", CONVERSATION, TOKENS) == "user"  # a new child has been started


def test_a_child_stays_below_256_mb() -> None:
    program = (
        "import resource, sys\n"
        "from jumok.data.tokenizers.chat_template import render_chat\n"
        "from jumok.data.tokenizers.limited_process import stop_processes\n"
        "from hostile_files.chat_templates import QUICK\n"
        "for name in sys.argv[1:]:\n"
        "    try: render_chat(QUICK[name][0], [], {})\n"
        "    except ValueError: pass\n"
        "stop_processes()\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
    )
    names = ["a text of 10^9 characters", "doubling a hundred times", "a million lines indented by a million"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", program, *names]
    completed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    assert 20_000 < int(completed.stdout) <= 256 * 1024


@pytest.mark.parametrize("reply", [True, False])
@pytest.mark.parametrize("name", REAL)
def test_real_template_renders_as_in_transformers(name: str, reply: bool) -> None:
    rendered, _ = render_jinja_template(
        [CONVERSATION], chat_template=REAL[name], add_generation_prompt=reply, tools=None, documents=None, **TOKENS
    )
    assert render_chat(REAL[name], CONVERSATION, TOKENS, reply=reply) == rendered[0]


def test_one_child_serves_many_conversations_and_threads() -> None:
    render_chat("x", [], {})
    process = chat_template._process._process
    rendered: list[str] = []

    def render_often(number: int) -> None:
        for _ in range(20):
            rendered.append(render_chat("{{ messages[0].content }}", [{"role": "user", "content": str(number)}], {}))

    threads = [threading.Thread(target=render_often, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(rendered) == sorted(str(number) for number in range(4) for _ in range(20))
    assert chat_template._process._process is process


def test_a_dead_child_is_replaced() -> None:
    render_chat("x", [], {})
    process = chat_template._process._process
    assert process is not None
    process.kill()
    process.wait()
    assert render_chat("y", [], {}) == "y"


def test_a_stopped_child_ends_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited_process, "WALL_SECONDS", -1.8)  # 0.2 s together with the limit of 2 s
    render_chat("x", [], {})
    process = chat_template._process._process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    with pytest.raises(ArgumentError, match="runs longer than 2 seconds"):
        render_chat("y", [], {})
    assert render_chat("z", [], {}) == "z"


def test_messages_must_be_plain() -> None:
    cases: list[tuple[Any, str]] = [
        ({"role": "user", "content": object()}, "message 0 must consist of text, numbers, lists and dictionaries"),
        ({"x" * 10**6: 1}, "message 0 needs the keys role and content"),
    ]
    for message, words in cases:
        with pytest.raises(ArgumentError, match=words) as refused:
            render_chat("x", [message], {})
        assert len(str(refused.value)) < 400


def test_limits_are_those_of_the_documents() -> None:
    assert (limited_child.MAX_SECONDS, limited_child.MAX_MEMORY, limited_child.MAX_OUTPUT) == (2, 2**28, 10**6)
    assert len(QUICK) + len(SLOW) >= 30
