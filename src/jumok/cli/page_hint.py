"""Print which command shows the same in the browser: the last line of commands about attention, in a terminal only."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

import click

from jumok.bilingual_text import Text
from jumok.reporting import get_reader_language

MAX_TEXT = 80  # letters of an input that the line repeats
EXAMPLE = ("tiny", "the cat sat; the cat")

LOOK = Text("In the browser, where it can be edited", "브라우저에서 보고 편집하기")
EFFECT = Text("In the browser (tab “Does it matter?”)", "브라우저에서 보기(“정말 중요한가?” 탭)")
STEPS = Text("In the browser (tab “Computation”)", "브라우저에서 보기(“계산 과정” 탭)")
TRAINED_STEPS = Text(
    "The same steps of a trained model in the browser (tab “Computation”)",
    "학습된 모델의 같은 단계를 브라우저에서 보기(“계산 과정” 탭)",
)
EXPERIMENT_HINTS = {
    "scale": Text("Try it in the browser (“Remove the 1/√d”)", "브라우저에서 해 보기(“1/√d 제거”)"),
    "mask": Text("Try it in the browser (“Remove the causal mask”)", "브라우저에서 해 보기(“인과 마스크 제거”)"),
    "heads": Text("Try it in the browser (“Ablate this head”)", "브라우저에서 해 보기(“이 헤드 제거”)"),
}


def print_page_hint(arguments: Sequence[str], purpose: Text) -> None:
    """Print the command that shows the page. Nothing is printed into a pipe or a file, whose readers expect no hints.

    Args:
        arguments: The model and its input, as ``jumok look`` takes them.
    """
    is_terminal = sys.stdout is not None and sys.stdout.isatty()  # a closed standard output is None
    if not is_terminal or "-" in arguments:  # standard input cannot be read again
        return
    words = [shlex.quote(word) if len(word) <= MAX_TEXT else '"..."' for word in arguments]
    click.echo(f"{purpose.select(get_reader_language())}: jumok look {' '.join(words)} --open")
