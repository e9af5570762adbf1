"""Test chat templates: features, failures and attacks."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from catalogue_cache import download_or_skip
from jumok.data.tokenizers import chat_template
from jumok.data.tokenizers.limited_process import LimitedProcess
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError


def build_with_template(template: str | None) -> Tokenizer:
    return Tokenizer(Tokenizer.for_characters("abc<>/sunk")._inner, {"unknown": "<unk>", "end": "a"}, template)


def test_template_features() -> None:
    messages = [{"role": "user", "content": "Hi"}]
    assert (
        build_with_template("{{ messages[0].content }}{{ eos_token }}{{ bos_token }}").apply_chat_template(messages)
        == "Hia"
    )
    assert build_with_template("{% if tools is not none %}x{% endif %}y").apply_chat_template(messages) == "y"
    assert build_with_template("{{ messages | tojson }}").apply_chat_template([{"role": "u", "content": "<가>"}]) == (
        '[{"role": "u", "content": "<가>"}]'
    )
    assert build_with_template("{% generation %}{{ 1 }}{% endgeneration %}").apply_chat_template(messages) == "1"
    assert build_with_template("{% for m in messages %}{% break %}{% endfor %}z").apply_chat_template(messages) == "z"
    assert len(build_with_template("{{ strftime_now('%Y') }}").apply_chat_template(messages)) == 4


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (None, "no chat template"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ messages[0].update({'a': 1}) }}", "unsafe"),
        ("{% for i in range(10000000) %}a{% endfor %}", "Range too big"),
        ("{% if %}", "rejects this conversation"),
        ("{{ raise_exception('roles must take turns') }}", "rejects this conversation: roles must take turns"),
        ("{{ 1 / 0 }}", "fails with ZeroDivisionError"),
        ("{% include 'secrets' %}", "the chat template"),
    ],
)
def test_failing_or_hostile_templates(template: str | None, message: str) -> None:
    with pytest.raises(ArgumentError) as refused:
        build_with_template(template).apply_chat_template([{"role": "user", "content": "Hi"}])
    assert message in str(refused.value)


def test_messages_need_a_role_and_a_content() -> None:
    with pytest.raises(ArgumentError, match="message 1 needs the keys role and content; it has role"):
        build_with_template("x").apply_chat_template([{"role": "user", "content": "Hi"}, {"role": "user"}])


def test_template_is_read_from_files(tmp_path: Path) -> None:
    shutil.copy(download_or_skip("minilm") / "vocab.txt", tmp_path)
    templates = [{"name": "tool", "template": "t"}, {"name": "default", "template": "d"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": templates}))
    assert Tokenizer.load(tmp_path).chat_template == "d"
    (tmp_path / "chat_template.jinja").write_text("own file")
    assert Tokenizer.load(tmp_path).chat_template == "own file"


def test_missing_jinja_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    # a new process: another one may have imported jinja2 already
    monkeypatch.setattr(chat_template, "_process", LimitedProcess("jinja2", "renders chat templates"))
    with pytest.raises(
        ArgumentError, match=r'chat templates need jinja2; install it with: pip install "jumok\[chat\]"'
    ):
        chat_template.render_chat("x", [], {})
