"""Answer from passages with a language model: the passages stand in its prompt."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.attention import Cache
from jumok.checkpoint import Loaded
from jumok.errors import ArgumentError
from jumok.lens import KnockOut, Lens
from jumok.models.gpt import COUNTED_POSITIONS, GPT

from .prompt import Prompt, build_prompt
from .reading import Reading, explain_split_characters, get_token_log_probabilities, list_words


class PromptReader:
    """Reads passages in the prompt of a language model.

    Args:
        loaded: A model of the family gpt, with its tokenizer; a model of instructions answers best.
    """

    def __init__(self, loaded: Loaded) -> None:
        if not isinstance(loaded.model, GPT):
            raise ArgumentError(
                f"a {loaded.family} model cannot read passages in a prompt; choose a language model such as smollm2"
            )
        self.loaded = loaded
        self.model = loaded.model
        self.tokenizer = loaded.require_tokenizer()
        # The tokens of the last reading with their keys and values: the cuts need those before each passage. A deque,
        # because only one of two threads may take the cache.
        self._last_reading: deque[tuple[list[int], Cache]] = deque(maxlen=1)

    def explain_unreadable(self, question: str) -> str | None:
        """Return why the model cannot read a question; None if it can."""
        return explain_split_characters(self.tokenizer, question)

    def build_prompt(self, question: str, passages: Sequence[str], limit: int = 0) -> Prompt:
        """Return the prompt for a question and passages.

        Args:
            passages: The texts of the passages, the best one first.
            limit: The number of tokens that the answer may take.

        Raises:
            ArgumentError: If prompt and answer exceed the model's context length.
        """
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
        """Return the most probable text, token by token. It ends with an end token or at the end of a line.

        Args:
            cut: The indices of passages that are cut: no token outside of them may attend to them.

        Raises:
            ArgumentError: If the prompt is too long, or passages are cut although the model counts the keys in between.
        """
        prompt = self.build_prompt(question, passages, limit)
        if cut and not self._can_leave_keys_out:
            raise ArgumentError(
                "cutting a passage before the answer is written needs a model without a window and with learned, "
                "sinusoidal or rotary positions"
            )
        hidden = {position for index in cut for position in prompt.passages[index]}
        positions = [position for position in range(len(prompt.token_ids)) if position not in hidden]
        cache = Cache(capacity=len(positions) + limit)
        ends = frozenset(self.tokenizer.ends)
        tokens: list[int] = []
        log_probabilities: list[float] = []
        has_ended = False

        prompt_tokens = [prompt.token_ids[position] for position in positions]
        logits = self._forward(prompt_tokens, cache, 1, positions if cut else None)
        while len(tokens) < limit:
            token = int(logits[-1].argmax())
            has_ended = token in ends or (bool(tokens) and "\n" in self.tokenizer.decode([token]))
            if has_ended:
                break
            tokens.append(token)
            log_probabilities += get_token_log_probabilities(logits, [token])
            if len(tokens) < limit:
                position = len(prompt.token_ids) + len(tokens) - 1
                logits = self._forward([token], cache, 1, [position] if cut else None)

        if not cut:
            self._last_reading.append((prompt.token_ids, cache))
        text = self.tokenizer.decode(tokens).strip()
        words = list_words(self.tokenizer, tokens)
        return Reading(question, tuple(passages), tuple(tokens), text, tuple(log_probabilities), words, not has_ended)

    @torch.inference_mode()
    def score(self, question: str, passages: Sequence[str], token_ids: Sequence[int]) -> Reading:
        """Return the log-probabilities of a text that is given, token by token.

        Args:
            token_ids: The tokens of the text, at least one.
        """
        prompt = self.build_prompt(question, passages, len(token_ids))
        tokens = [*prompt.token_ids, *token_ids[:-1]]
        cache = Cache(capacity=len(tokens))
        logits = self._forward(tokens, cache, len(token_ids))
        self._last_reading.append((prompt.token_ids, cache))
        log_probabilities = get_token_log_probabilities(logits, token_ids)
        text = self.tokenizer.decode(token_ids).strip()
        words = list_words(self.tokenizer, token_ids)
        return Reading(question, tuple(passages), tuple(token_ids), text, log_probabilities, words)

    @torch.inference_mode()
    def score_cuts(self, reading: Reading) -> list[tuple[float, ...]]:
        """Return for each passage the log-probabilities of the text's tokens without that passage."""
        if not reading.token_ids:
            return [() for _ in reading.passages]
        prompt = self.build_prompt(reading.question, reading.passages, len(reading.token_ids))
        if self._can_leave_keys_out:
            return self._score_without_keys(prompt, reading.token_ids)
        return self._score_knocked_out(prompt, reading.token_ids)

    @torch.inference_mode()
    def measure_attention(self, reading: Reading) -> list[float]:
        """Return for each passage the attention of the answer's tokens, averaged over layers, heads and tokens.

        The row of the last prompt token is the first one, as it predicts the first token of the answer.
        """
        if not reading.token_ids:
            return [0.0 for _ in reading.passages]
        prompt = self.build_prompt(reading.question, reading.passages, len(reading.token_ids))
        tokens = torch.tensor([[*prompt.token_ids, *reading.token_ids[:-1]]], device=self.model.device)
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
