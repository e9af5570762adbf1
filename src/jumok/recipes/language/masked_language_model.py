"""masked: a BERT learns to guess tokens that are hidden from it, from what stands on both sides of them (Devlin et al.
2019). Examples are paragraphs; a tenth of them is held out, and there every counted token was really hidden."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn
from torch.nn import functional

from jumok.checkpoint import Loaded
from jumok.data.batches.batch_order import LengthGroups, ShuffledEpochs, pad_sequences
from jumok.data.token_store import token_shards
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError
from jumok.fields import integer, optional
from jumok.models import Model, Output
from jumok.models.bert import BERT, BERTConfig
from jumok.recipes.recipe import Defaults, recipe
from jumok.recipes.request import TrainingRequest
from jumok.training import Batch, Settings, Task

from .masking import SHARE, find_surrounding_tokens, fixed, hidden
from .paragraphs import SHORTEST, ParagraphOptions, prepared, tokenizer_for

CHOOSING = 500  # held-out examples that the best checkpoint is chosen by; the report is about others
REPORTED = 2_000
WAVES = 0.05  # how large they are
ROWS = 64  # examples at once where nothing is learned

Lists = list[list[int]]


@dataclass(frozen=True)
class MaskedOptions(ParagraphOptions):
    """Fields of the recipe masked."""

    with_start = ("window",)

    window: int | None = optional(integer(128, "longest example in tokens; None = 128, or the model's length", 8))


def masked_defaults(request: TrainingRequest) -> Defaults:
    """Return the default config and settings: a small BERT, or gentle changes to a pretrained one."""
    if request.start is not None:
        settings = {
            "steps": 500, "batch": 32, "learning_rate": 2e-4, "final_rate": 0.0, "warmup": 50, "beta2": 0.98,
            "decay": 0.01, "clip": 1.0, "evaluate_every": 100, "save_every": 100,
        }  # fmt: skip
        return Defaults(settings)
    fresh = {
        "steps": 3000, "batch": 32, "optimizer": "muon", "learning_rate": 4e-3, "matrix_rate": 1e-2, "final_rate": 0.02,
        "warmup": 100, "beta2": 0.98, "decay": 0.01, "clip": 1.0, "evaluate_every": 500, "save_every": 500,
    }  # fmt: skip
    config = BERTConfig(length=128, width=128, layers=4, heads=4, hidden=512, segments=1, head="mlm")
    return Defaults(fresh, (config,))


@recipe(masked_defaults, MaskedOptions)
def masked(asked: TrainingRequest) -> Task:
    """Guess the tokens hidden in a text, with a small BERT; or go on with a BERT that there is."""
    loaded = asked.load_start()
    options, defaults = asked.options(MaskedOptions), masked_defaults(asked)
    settings = asked.settings(**defaults.settings)
    if loaded is None:
        tokenizer = tokenizer_for(asked)
        (small,) = defaults.configs
        config = asked.config(small).replace(vocabulary=tokenizer.vocabulary, head="mlm")
        model = asked.model(AtPlaces, config, settings)
        _begin_as_waves(model.positions.table.weight)
    else:
        tokenizer, model = _started(asked, loaded, settings)
    before, after = find_surrounding_tokens(tokenizer)
    length = model.config.length if loaded is None else options.window or min(128, model.config.length)
    room = min(length, model.config.length) - len(before) - len(after)
    if room < SHORTEST:
        raise ArgumentError(f"a length of {length} leaves no room for a text; give at least 8")
    train, held_out, told = prepared(asked, tokenizer, room)
    pad = tokenizer.pad if tokenizer.pad is not None else model.config.padding_id or 0
    order = LengthGroups(ShuffledEpochs(train.lists, settings.seed), lambda number: len(train.read_list(number)))
    choosing = held_out.lists if held_out.lists < 4 else min(CHOOSING, held_out.lists // 4)
    shuffled = ShuffledEpochs(held_out.lists).batch_indices(0, min(held_out.lists, choosing + REPORTED))

    def rows(tokens: token_shards.TokenShards, numbers: Iterable[int]) -> tuple[Tensor, Tensor, Tensor]:
        """Examples between the tokens around them; which are real; and which may be hidden."""
        ids, real = pad_sequences([[*before, *tokens.read_list(number).tolist(), *after] for number in numbers], pad)
        lengths, places = real.sum(-1, keepdim=True), torch.arange(ids.shape[1])
        return ids, real, (places >= len(before)) & (places < lengths - len(after))

    def batches(step: int, part: int, parts: int) -> Batch:
        # drawn for the whole step, then cut: the same however many parts there are
        draw = torch.Generator().manual_seed(settings.seed * 1_000_003 + step)
        tokens, real, free = rows(train, order.batch_indices(step, settings.batch))
        seen, places = hidden(tokens, free, tokenizer, draw)
        seen, tokens, real, places = (one.chunk(parts)[part] for one in (seen, tokens, real, places))
        targets = tokens[places]
        return Batch({"tokens": seen, "token_mask": real, "places": places}, targets, len(targets))

    def measured(model: Model, numbers: list[int], guess: int | None = None) -> dict[str, float]:
        """Over these held-out examples, shorter ones first, so that little is padded."""
        loss = right = guessed = count = 0.0
        numbers = sorted(numbers, key=lambda number: len(held_out.read_list(number)))
        for first in range(0, len(numbers), ROWS):
            tokens, real, free = rows(held_out, numbers[first : first + ROWS])
            seen, places = fixed(tokens, free, tokenizer, first)
            found = logits_at(model, seen, real, places)
            wanted = tokens[places]
            loss += float(functional.cross_entropy(found, wanted, reduction="sum"))
            right += float((found.argmax(-1) == wanted).sum())
            guessed += float((wanted == guess).sum()) if guess is not None else 0.0
            count += len(wanted)
        answer = {"loss": loss / count, "accuracy": right / count}
        return answer if guess is None else {**answer, "unigram_accuracy": guessed / count, "guesses": count}

    def evaluate(model: Model) -> dict[str, float]:
        return measured(model, shuffled[:choosing])

    def report(model: Model, folder: Any) -> dict[str, Any]:
        frequent = int(frequencies(train).argmax())
        others = shuffled[choosing:] or shuffled
        found = measured(model, others, frequent)
        return {
            **found,
            "guesses": round(found["guesses"]),
            "unigram_guess": tokenizer.decode([frequent]),
            "what": f"share of the tokens guessed right, {SHARE:.0%} of {len(others):,} held-out paragraphs, each "
            "hidden; beside always guessing the most frequent token of the training text",
            "unknown_rate": train.unknown_rate,
            **told,
            "try": _to_try(tokenizer, held_out.read_list(others[0]).tolist()),
            "examples": _examples(
                model, tokenizer, [held_out.read_list(one).tolist() for one in others], before, after
            ),
        }

    data = {
        "examples": train.lists, "tokens": len(train), "held_out": held_out.lists, "vocabulary": tokenizer.vocabulary,
        "tokenizer": token_shards.fingerprint_tokenizer(tokenizer),
    }  # fmt: skip
    return Task(model, settings, batches, masked_loss, evaluate, tokenizer=tokenizer, data=data, report=report)


class AtPlaces(BERT):
    """BERT, and where ``places`` are told its logits for those alone, [place, vocabulary]: to give the others too would
    be almost half of a step's work, and nobody asks for them."""

    def forward(
        self,
        tokens: Int[Tensor, "batch length"],
        *,
        token_mask: Bool[Tensor, "batch key"] | None = None,
        segments: Int[Tensor, "batch key"] | None = None,
        weights: bool = False,
        places: Bool[Tensor, "batch length"] | None = None,
    ) -> Output:
        if places is None:
            return super().forward(tokens, token_mask=token_mask, segments=segments, weights=weights)
        head, self.head = self.head, None
        try:
            found = super().forward(tokens, token_mask=token_mask, segments=segments, weights=weights)
        finally:
            self.head = head
        assert head is not None and found.hidden is not None
        return Output(head(found.hidden[places][None], self.embedding.weight)[0], found.hidden, found.weights)


@torch.no_grad()
def _begin_as_waves(table: Tensor) -> None:
    """Positions are learned, and begin as sines and cosines: then one turn of a few numbers leads from each position to
    its neighbour, and heads soon find the neighbours of a hidden token. From independent draws they did not."""
    length, width = table.shape
    slower = torch.arange(width // 2) / (width // 2)
    angles = torch.arange(length)[:, None] * float(length) ** -slower
    table[:, : 2 * len(slower)] = torch.cat([angles.sin(), angles.cos()], -1) * WAVES


def logits_at(model: Model, seen: Tensor, real: Tensor, places: Tensor) -> Tensor:
    """Of any BERT, whether it can leave out the other places or not."""
    seen, real = seen.to(model.device), real.to(model.device)
    if isinstance(model, AtPlaces):
        return model(seen, token_mask=real, places=places.to(model.device)).logits.cpu()
    return model(seen, token_mask=real).logits.cpu()[places]


def masked_loss(model: nn.Module, batch: Batch) -> Tensor:
    return functional.cross_entropy(model(**batch.inputs).logits, batch.targets, reduction="sum")


def frequencies(tokens: token_shards.TokenShards) -> Int[Tensor, " vocabulary"]:
    """How often each token stands in a text, read piece by piece."""
    counted = torch.zeros(tokens.vocabulary, dtype=torch.long)
    for start in range(0, len(tokens), 2**20):
        piece = tokens.read_tokens(start, min(2**20, len(tokens) - start))
        counted += torch.bincount(piece, minlength=tokens.vocabulary)
    return counted


def _started(asked: TrainingRequest, loaded: Loaded, settings: Settings) -> tuple[Tokenizer, AtPlaces]:
    """The same BERT; one that has no head for masked tokens is given a new one."""
    if not isinstance(loaded.model, BERT):
        raise ArgumentError(f"the recipe masked goes on with a bert; {asked.start} is a {loaded.family}")
    tokenizer = loaded.tokenizer
    if tokenizer is None or tokenizer.mask is None:
        raise ArgumentError(f"the recipe masked needs a tokenizer with a mask token; {asked.start} has none")
    config, kept = loaded.model.config, loaded.model.state_dict()
    if config.head != "mlm":
        activation = config.activation if config.padding_id is None else "gelu"  # as BERT's and RoBERTa's heads have it
        config = config.replace(head="mlm", head_activation=activation)
        kept = {name: one for name, one in kept.items() if not name.startswith("head.")}
    model = asked.model(AtPlaces, config, settings)
    left = model.load_state_dict(kept, strict=False)
    assert not left.unexpected_keys and all(name.startswith("head.") for name in left.missing_keys)
    return tokenizer, model


def _to_try(tokenizer: Tokenizer, ids: list[int]) -> str:
    """The beginning of a text with a mask in its middle, as a person would write it."""
    assert tokenizer.mask is not None
    begin, end = tokenizer.decode(ids[:8]), tokenizer.decode(ids[9:16])
    return f"{begin} {tokenizer.id_to_token(tokenizer.mask)}{end}".replace("\N{REPLACEMENT CHARACTER}", "").strip()


def _examples(
    model: Model, tokenizer: Tokenizer, lists: Lists, before: list[int], after: list[int], count: int = 8
) -> list[dict[str, str]]:
    """A few short held-out texts with the middle token hidden: what stood there, and the likeliest guesses."""
    short = [ids[:32] for ids in lists if len(ids) >= 8][:count]
    told = []
    for ids in short:
        place = len(ids) // 2
        seen = [*before, *ids[:place], tokenizer.mask, *ids[place + 1 :], *after]
        shares = model(torch.tensor([seen], device=model.device)).logits[0, len(before) + place].softmax(-1).topk(3)
        guesses = zip(shares.indices.tolist(), shares.values.tolist(), strict=True)
        shown = f"{tokenizer.decode(ids[:place])} ___{tokenizer.decode(ids[place + 1 :])}"
        told.append(
            {
                "text": shown.replace("\N{REPLACEMENT CHARACTER}", ""),
                "hidden": tokenizer.decode([ids[place]]).strip(),
                "guesses": ", ".join(f"{tokenizer.decode([one]).strip()} {share:.0%}" for one, share in guesses),
            }
        )
    return told
