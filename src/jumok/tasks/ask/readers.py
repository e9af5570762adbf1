"""Readers answer a question from passages: a language model reads them in its prompt, a Fusion-in-Decoder (Izacard and
Grave 2021) apart. A reading is what a reader wrote, with the log-probability of each token."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.attention import Cache
from jumok.checkpoint import Loaded
from jumok.data.tokenizers.passage_tokens import encode_passages
from jumok.data.tokenizers.token_labels import group_words
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError
from jumok.generate.decoding import CrossAttentionDecoder
from jumok.lens import KnockOut, Lens
from jumok.models.fusion import Fusion, find_passages, measure_passage_attention, score_without_passages
from jumok.models.gpt import COUNTED_POSITIONS, GPT
from jumok.retrieval.search.bm25 import has_paired_characters

MAX_TOKENS_PER_CHARACTER = 1.5  # smollm2 needs 2.5 tokens for a Korean syllable


@dataclass(frozen=True)
class Reading:
    """The text that a reader wrote for a question and passages."""

    question: str
    passages: tuple[str, ...]
    token_ids: tuple[int, ...]
    text: str
    log_probabilities: tuple[float, ...]  # of each token, given the tokens before it; natural logarithms
    words: tuple[str, ...]  # for each token, the word that it belongs to
    reached_limit: bool = False  # the text stopped because it had the largest number of tokens


class Reader(ABC):
    """A model that answers a question from passages.

    A passage is cut by removing its keys: no token outside of it may attend to it. Everything else stays, also the
    positions.
    """

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded
        self.tokenizer = loaded.require_tokenizer()

    @abstractmethod
    def read(self, question: str, passages: Sequence[str], limit: int, cut: Collection[int] = ()) -> Reading:
        """Return the most probable text of at most ``limit`` tokens; the passages with the indices ``cut`` are cut."""

    @abstractmethod
    def score(self, question: str, passages: Sequence[str], token_ids: Sequence[int]) -> Reading:
        """Return the log-probabilities of a text that is given, of at least one token."""

    @abstractmethod
    def score_cuts(self, reading: Reading) -> list[tuple[float, ...]]:
        """Return for each passage the log-probabilities of the text's tokens without that passage."""

    @abstractmethod
    def measure_attention(self, reading: Reading) -> list[float]:
        """Return for each passage the weights on its tokens while the text is written, added up, and averaged over
        layers, heads and tokens of the text."""

    def explain_unreadable(self, question: str) -> str | None:
        """Return why the model cannot read a question; None if it can.

        A tokenizer that was trained on Korean, Chinese or Japanese has a token for most of its syllables; any other one
        splits each of them into bytes.
        """
        characters = "".join(character for character in question if has_paired_characters(character))
        limit = MAX_TOKENS_PER_CHARACTER * len(characters)
        if not characters or len(self.tokenizer.encode(characters, special=False)) < limit:
            return None
        return (
            "this reader was not trained on the language of the question: its tokenizer splits each syllable into "
            "several bytes, so the passages are shown without an answer"
        )

    def _write(
        self, question: str, passages: Sequence[str], limit: int, logits: Tensor, step: Callable[[list[int]], Tensor]
    ) -> Reading:
        """Choose the most probable token again and again; ``logits`` [1, vocab] are those of the first one.

        ``step`` takes the tokens so far, reads the last one, and returns the logits of the next one.
        """
        tokens: list[int] = []
        log_probabilities: list[float] = []
        while True:
            token = int(logits[-1].argmax())
            has_ended = self._is_end(token, tokens)
            if not has_ended:
                tokens.append(token)
                log_probabilities += get_token_log_probabilities(logits, [token])
            if has_ended or len(tokens) == limit:
                return self._build_reading(question, passages, tokens, log_probabilities, not has_ended)
            logits = step(tokens)

    @abstractmethod
    def _is_end(self, token: int, tokens: list[int]) -> bool:
        """Return True if a token ends the text that consists of ``tokens``."""

    def _build_reading(
        self,
        question: str,
        passages: Sequence[str],
        token_ids: Sequence[int],
        log_probabilities: Sequence[float],
        reached_limit: bool = False,
    ) -> Reading:
        text = self.tokenizer.decode(token_ids).strip()
        words = list_words(self.tokenizer, token_ids)
        scores = tuple(log_probabilities)
        return Reading(question, tuple(passages), tuple(token_ids), text, scores, words, reached_limit)


def list_words(tokenizer: Tokenizer, token_ids: Sequence[int]) -> tuple[str, ...]:
    """Return for each token the word that it belongs to, without spaces and punctuation around it."""
    words = [""] * len(token_ids)
    for word, positions in group_words(tokenizer, token_ids):
        for position in positions:
            words[position] = word.strip().strip(".,;:!?\"'()") or word.strip()
    return tuple(words)


def get_token_log_probabilities(logits: Float[Tensor, "token vocab"], token_ids: Sequence[int]) -> tuple[float, ...]:
    """Return the log-probability of each token; there is one token for each position."""
    chosen = torch.tensor(token_ids, device=logits.device)[:, None]
    return tuple(logits.float().log_softmax(-1).gather(-1, chosen)[:, 0].tolist())


INSTRUCTION = "Answer the question with a short phrase from the text."
# Stand for the passages while a chat template is rendered. Private-use characters occur in no template.
_PASSAGES = "\ue000"
_QUESTION = "\ue001"


@dataclass(frozen=True)
class Prompt:
    """A prompt as tokens, with the positions of each passage, in the order of the passages that were given."""

    token_ids: list[int]
    passages: tuple[range, ...]
    question: range


class PromptReader(Reader):
    """Reads passages in the prompt of a model of the family gpt; a model of instructions answers best."""

    def __init__(self, loaded: Loaded) -> None:
        if not isinstance(loaded.model, GPT):
            raise ArgumentError(
                f"a {loaded.family} model cannot read passages in a prompt; choose a language model such as smollm2"
            )
        super().__init__(loaded)
        self.model = loaded.model
        # The tokens of the last reading with their keys and values: the cuts need those before each passage. A deque,
        # because only one of two threads may take the cache.
        self._last_reading: deque[tuple[list[int], Cache]] = deque(maxlen=1)

    def build_prompt(self, question: str, passages: Sequence[str], limit: int = 0) -> Prompt:
        """Return the prompt for a question and passages, the best one first, and check that the answer has room."""
        prompt = build_prompt(self.tokenizer, question, passages)
        needed, length = len(prompt.token_ids) + limit, self.model.config.length
        if needed > length:
            raise ArgumentError(
                f"question and passages need {needed:,} tokens, but this model reads at most {length:,}; ask for fewer "
                "passages, or ask a shorter question"
            )
        return prompt

    @torch.inference_mode()
    def read(self, question: str, passages: Sequence[str], limit: int, cut: Collection[int] = ()) -> Reading:
        prompt = self.build_prompt(question, passages, limit)
        if cut and not self._can_leave_keys_out:
            raise ArgumentError(
                "cutting a passage before the answer is written needs a model without a window and with learned, "
                "sinusoidal or rotary positions"
            )
        hidden = {position for index in cut for position in prompt.passages[index]}
        positions = [position for position in range(len(prompt.token_ids)) if position not in hidden]
        cache = Cache(capacity=len(positions) + limit)
        prompt_tokens = [prompt.token_ids[position] for position in positions]

        def step(tokens: list[int]) -> Tensor:
            position = len(prompt.token_ids) + len(tokens) - 1
            return self._forward(tokens[-1:], cache, 1, [position] if cut else None)

        logits = self._forward(prompt_tokens, cache, 1, positions if cut else None)
        reading = self._write(question, passages, limit, logits, step)
        if not cut:
            self._last_reading.append((prompt.token_ids, cache))
        return reading

    def _is_end(self, token: int, tokens: list[int]) -> bool:
        return token in self.tokenizer.ends or (bool(tokens) and "\n" in self.tokenizer.decode([token]))

    @torch.inference_mode()
    def score(self, question: str, passages: Sequence[str], token_ids: Sequence[int]) -> Reading:
        prompt = self.build_prompt(question, passages, len(token_ids))
        tokens = [*prompt.token_ids, *token_ids[:-1]]
        cache = Cache(capacity=len(tokens))
        logits = self._forward(tokens, cache, len(token_ids))
        self._last_reading.append((prompt.token_ids, cache))
        return self._build_reading(question, passages, token_ids, get_token_log_probabilities(logits, token_ids))

    @torch.inference_mode()
    def score_cuts(self, reading: Reading) -> list[tuple[float, ...]]:
        if not reading.token_ids:
            return [() for _ in reading.passages]
        prompt = self.build_prompt(reading.question, reading.passages, len(reading.token_ids))
        if self._can_leave_keys_out:
            return self._score_without_keys(prompt, reading.token_ids)
        return self._score_knocked_out(prompt, reading.token_ids)

    @torch.inference_mode()
    def measure_attention(self, reading: Reading) -> list[float]:
        if not reading.token_ids:
            return [0.0 for _ in reading.passages]
        prompt = self.build_prompt(reading.question, reading.passages, len(reading.token_ids))
        tokens = torch.tensor([[*prompt.token_ids, *reading.token_ids[:-1]]], device=self.model.device)
        # the row of the last prompt token is the first one, as it predicts the first token of the answer
        rows = slice(len(prompt.token_ids) - 1, tokens.shape[1])
        sums = torch.zeros(len(prompt.passages), dtype=torch.float64)
        with Lens(self.loaded) as lens:
            capture = lens.run(tokens)
            for site in capture.sites.names:
                for head in range(capture.heads(site)):
                    mean_row = capture.tile(site, head, rows, slice(None)).double().mean(0)
                    sums += torch.stack(
                        [mean_row[passage.start : passage.stop].sum() for passage in prompt.passages]
                    ).cpu()
            head_count = sum(capture.heads(site) for site in capture.sites.names)
        return (sums / head_count).tolist()

    @property
    def _can_leave_keys_out(self) -> bool:
        """Whether leaving keys out of the cache equals a knock-out: no mask or bias counts the keys in between."""
        return self.model.config.positions in COUNTED_POSITIONS and self.model.config.window is None

    def _score_without_keys(self, prompt: Prompt, answer: Sequence[int]) -> list[tuple[float, ...]]:
        """Score an answer without each passage; the tokens before a passage are computed once, as they stay the same.

        The keys of a passage are left out of the cache, and the tokens after it keep their positions.
        """
        tokens = [*prompt.token_ids, *answer[:-1]]
        scores: list[tuple[float, ...]] = [() for _ in prompt.passages]
        # The last passage of the prompt is cut first: truncating the cache keeps what the other cuts need.
        order = sorted(range(len(prompt.passages)), key=lambda index: -prompt.passages[index].start)
        cache = self._take_cache(tokens, prompt.passages[order[0]].start)
        for index in order:
            passage = prompt.passages[index]
            cache.truncate(passage.start)
            logits = self._forward(tokens[passage.stop :], cache, len(answer), range(passage.stop, len(tokens)))
            scores[index] = get_token_log_probabilities(logits, answer)
        return scores

    def _take_cache(self, tokens: list[int], length: int) -> Cache:
        """Return a cache with the first tokens, for the caller to change: that of the last reading if it began so."""
        try:
            last_tokens, cache = self._last_reading.pop()
        except IndexError:
            last_tokens, cache = [], Cache()
        if last_tokens[:length] == tokens[:length] and cache.length >= length:
            return cache
        cache = Cache()
        self._forward(tokens[:length], cache, 1)
        return cache

    def _score_knocked_out(self, prompt: Prompt, answer: Sequence[int]) -> list[tuple[float, ...]]:
        """Score an answer without each passage by edits of the lens, for a model of any kind."""
        tokens = torch.tensor([[*prompt.token_ids, *answer[:-1]]], device=self.model.device)
        scores = []
        with Lens(self.loaded) as lens:
            for passage in prompt.passages:
                logits = lens.run(tokens, edits=[KnockOut(key=passage)], logits=True).logits[0, -len(answer) :]
                scores.append(get_token_log_probabilities(logits, answer))
        return scores

    def _forward(
        self, tokens: Sequence[int], cache: Cache, last: int, positions: Sequence[int] | None = None
    ) -> Float[Tensor, "last vocab"]:
        """Return the logits of the last tokens. Without positions, the tokens follow those in the cache."""
        device = self.model.device
        new_positions = None if positions is None else torch.tensor(list(positions), device=device)
        output = self.model(
            torch.tensor([list(tokens)], device=device), cache=cache, last=last, positions=new_positions
        )
        assert output.logits is not None
        return output.logits[0]


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


class FusionReader(Reader):
    """Reads passages apart, with a model of the family fusion: a run of the recipe ``reader``.

    Passages never see each other in the encoder: cutting one removes its keys from the cross-attention, and nothing
    else changes.
    """

    def __init__(self, loaded: Loaded) -> None:
        if not isinstance(loaded.model, Fusion):
            raise ArgumentError(f"a {loaded.family} model does not read passages apart; train one: jumok train reader")
        super().__init__(loaded)
        self.model = loaded.model

    @torch.inference_mode()
    def read(self, question: str, passages: Sequence[str], limit: int, cut: Collection[int] = ()) -> Reading:
        source = self.encode_source(question, passages)
        numbers = find_passages(source, self.model.config.separator) - 1
        is_kept = ~torch.isin(numbers, torch.tensor(list(cut), device=source.device))
        decoder = CrossAttentionDecoder(self.model, self.model.encode(source), limit, is_kept, is_encoded=True)

        def step(tokens: list[int]) -> Tensor:
            return decoder.step(torch.tensor([tokens[-1:]], device=source.device))[0]

        return self._write(question, passages, limit, decoder.prefill()[0], step)

    def _is_end(self, token: int, tokens: list[int]) -> bool:
        return token == self.model.config.end

    def score(self, question: str, passages: Sequence[str], token_ids: Sequence[int]) -> Reading:
        (scores,) = self.score_without(question, passages, token_ids, [()])
        return self._build_reading(question, passages, token_ids, scores)

    def score_cuts(self, reading: Reading) -> list[tuple[float, ...]]:
        if not reading.token_ids:
            return [() for _ in reading.passages]
        cuts = [(index,) for index in range(len(reading.passages))]
        return self.score_without(reading.question, reading.passages, reading.token_ids, cuts)

    @torch.inference_mode()
    def score_without(
        self, question: str, passages: Sequence[str], token_ids: Sequence[int], cuts: Sequence[Collection[int]]
    ) -> list[tuple[float, ...]]:
        """Return the log-probabilities of a text's tokens without some passages, for each of several cuts."""
        source = self.encode_source(question, passages)
        return [tuple(row.tolist()) for row in score_without_passages(self.model, source, token_ids, cuts)]

    @torch.inference_mode()
    def measure_attention(self, reading: Reading) -> list[float]:
        if not reading.token_ids:
            return [0.0 for _ in reading.passages]
        source = self.encode_source(reading.question, reading.passages)
        return measure_passage_attention(self.model, source, reading.token_ids)

    def encode_source(self, question: str, passages: Sequence[str]) -> Tensor:
        """Return the tokens of all passages, each with the question before it, [1, source]."""
        token_lists = encode_passages(self.tokenizer, self.model.config.separator, question, passages)
        tokens = [token for token_ids in token_lists for token in token_ids]
        return torch.tensor([tokens], device=self.model.device)
