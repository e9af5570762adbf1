"""The prompt of a language model that answers from passages: the instruction, the passages and the question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jumok.data.tokenizers.tokenizer import Tokenizer

INSTRUCTION = "Answer the question with a short phrase from the text."
# Stand for the passages while a chat template is rendered. Private-use characters occur in no template.
_PASSAGES = "\ue000"
_QUESTION = "\ue001"


@dataclass(frozen=True)
class Prompt:
    """A prompt as tokens, with the positions of each passage.

    Args:
        passages: For each passage, the positions of its tokens, in the order of the passages that were given.
    """

    token_ids: list[int]
    passages: tuple[range, ...]
    question: range


def build_prompt(tokenizer: Tokenizer, question: str, passages: Sequence[str]) -> Prompt:
    """Return a prompt that contains passages and a question.

    The passages are written in reverse order: the first one, which fits best, stands directly before the question. A
    model of instructions reads them in its chat template; another one reads plain text that ends with "Answer:".
    """
    token_ids: list[int] = []
    ranges: list[range] = []

    def append(text: str, *, special: bool = False) -> range:
        start = len(token_ids)
        token_ids.extend(tokenizer.encode(text, special=special))
        return range(start, len(token_ids))

    before, between, after = _render_frame(tokenizer)
    append(before, special=True)
    for text in reversed(passages):
        ranges.append(append(f"{text}\n\n"))
    append(between)
    question_range = append(question)
    append(after)
    return Prompt(token_ids, tuple(reversed(ranges)), question_range)


def _render_frame(tokenizer: Tokenizer) -> tuple[str, str, str]:
    """Return the text before the passages, between them and the question, and after the question."""
    request = f"{_PASSAGES}Question: {_QUESTION}"
    if tokenizer.chat_template is None:
        rendered = f"{INSTRUCTION}\n\n{request}\nAnswer:"
    else:
        messages = [
            {"role": "system", "content": INSTRUCTION},
            {"role": "user", "content": f"{request}\nAnswer briefly."},
        ]
        rendered = tokenizer.apply_chat_template(messages)
    before, after_passages = rendered.split(_PASSAGES)
    between, after = after_passages.split(_QUESTION)
    return before, between, after
