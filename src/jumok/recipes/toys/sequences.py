"""copy, reverse: a sequence in, a sequence out, by a Transformer of 2017, by LSTMs that look back with Luong's
attention, or by a GPT that reads the one and goes on with the other.

``reverse --set model=lstm`` is JoeyNMT's setting (Kreutzer et al. 2019): 50,000 sequences of 1 to 25 numbers from 0 to
49 to train on, 1,000 and 1,000 of 1 to 30 to choose and to judge by, so that some are longer than any it has learned
from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jumok.data.batches.batch_order import LengthGroups, ShuffledEpochs, pad_sequences
from jumok.data.datasets import toy_tasks
from jumok.data.readers.lines import ProblemLog
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.draw import save_heat_map
from jumok.errors import ArgumentError, DrawError
from jumok.fields import choice, integer, optional
from jumok.models import Config, Model
from jumok.models.gpt import GPT, GPTConfig
from jumok.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
from jumok.models.transformer import Transformer, TransformerConfig
from jumok.recipes.recipe import Defaults, Options, recipe
from jumok.recipes.request import TrainingRequest
from jumok.recipes.shared import exact_match
from jumok.training import IGNORE_INDEX, Batch, Task, select_part, token_loss

from . import word_sequences
from .word_sequences import Pair, Words

MODELS = {"transformer": Transformer, "lstm": RNNSeq2Seq, "gpt": GPT}
SHOWN = 5  # samples in the report


@dataclass(frozen=True)
class SequenceOptions(Options):
    """Fields of the recipes copy and reverse."""

    with_data = ("longest",)
    without_data = ("examples",)

    model: str | None = optional(
        choice("transformer", tuple(MODELS), "architecture; None = transformer, or that of the model to start from")
    )
    examples: int = integer(50_000, "number of training sequences")
    held_out: int = integer(1_000, "number of sequences to choose the best checkpoint, and as many for the report")
    longest: int = integer(100, "largest number of words of a line of your data")


def sequence_defaults(request: TrainingRequest) -> Defaults:
    """Return the default config and settings of the chosen architecture."""
    kind = request.options(SequenceOptions).model or "transformer"
    configs = () if request.start is not None else (CONFIGS[kind],)
    return Defaults(DEFAULTS[kind], configs, from_data=("vocabulary", "length"))


@recipe(sequence_defaults, SequenceOptions)
def copy(asked: TrainingRequest) -> Task:
    """Give back what was given."""
    return _task(asked, toy_tasks.make_copy_examples, list)


@recipe(sequence_defaults, SequenceOptions)
def reverse(asked: TrainingRequest) -> Task:
    """Give back what was given, from its end."""
    return _task(asked, toy_tasks.make_reverse_examples, lambda given: given[::-1])


def _task(asked: TrainingRequest, made: Callable[..., Any], rule: Callable[[Words], Words]) -> Task:
    exact_match.sacrebleu()
    loaded = asked.load_start()
    usual = "transformer" if loaded is None else _kind_of(asked, loaded.model)
    kind = asked.options(SequenceOptions).model or usual
    pairs = _data(asked, made, rule)
    settings = asked.settings(**DEFAULTS[kind])
    known = sorted({word for here, there in pairs["train"] for word in (*here, *there)})
    room = 4 + max(len(side) for some in pairs.values() for pair in some for side in pair)
    if loaded is None:
        tokenizer = word_sequences.tokenizer(known, "separator" if kind == "gpt" else "end")
        config = _config(kind, tokenizer.vocabulary, room)
        model: Model = asked.model(MODELS[kind], asked.config(config), settings)
    else:
        tokenizer, model = loaded.tokenizer, loaded.model
        _check_start(asked, kind, usual, tokenizer, known)
    longest = getattr(model.config, "length", None)
    needed = 2 * room if kind == "gpt" else room
    if longest is not None and longest < needed:
        raise ArgumentError(f"the model reads {longest} tokens at most, and these sequences need {needed}")
    make, end = _joined if kind == "gpt" else _pairs, tokenizer.end
    assert end is not None

    sources = {part: [tokenizer.encode(" ".join(here)) for here, _ in some] for part, some in pairs.items()}
    answers = [[*tokenizer.encode(" ".join(there), special=False), end] for _, there in pairs["train"]]
    order = LengthGroups(ShuffledEpochs(len(answers), settings.seed), lambda one: len(answers[one]))

    def batches(step: int, part: int, parts: int) -> Batch:
        chosen = select_part(order.batch_indices(step, settings.batch), part, parts)
        return make([sources["train"][one] for one in chosen], [answers[one] for one in chosen], tokenizer)

    def answered(model: Model, part: str) -> tuple[list[str], list[str]]:
        """What the model answers by itself, and what is right."""
        found = exact_match.decoded(model, sources[part], room, end)
        return [tokenizer.decode(one) for one in found], [" ".join(there) for _, there in pairs[part]]

    def evaluate(model: Model) -> dict[str, float]:
        found, wanted = answered(model, "dev")
        return {"bleu": exact_match.bleu(found, wanted), "right": exact_match.exact(found, wanted)}

    def report(model: Model, folder: Any) -> dict[str, Any]:
        found, wanted = answered(model, "test")
        trained = max(len(here) for here, _ in pairs["train"])
        lengths = [len(here) for here, _ in pairs["test"]]
        rows = []
        for name, low, high in ((f"1 to {trained}", 0, trained), (f"more than {trained}", trained, 2**31)):
            chosen = [place for place, length in enumerate(lengths) if low < length <= high]
            if chosen:
                some, right = [found[one] for one in chosen], [wanted[one] for one in chosen]
                told = {"bleu": exact_match.bleu(some, right), "right": exact_match.exact(some, right)}
                rows.append({"length": name, "sequences": len(chosen), **told})
        samples = [
            {"given": " ".join(pairs["test"][one][0]), "answer": found[one], "right": found[one] == wanted[one]}
            for one in sorted(range(len(found)), key=lambda one: (found[one] == wanted[one], one))[:SHOWN]
        ]
        _draw(model, tokenizer, pairs["test"], Path(folder), asked)
        return {
            "model": kind,
            "try": " ".join(pairs["test"][0][0]),
            "bleu": exact_match.bleu(found, wanted),
            "right": exact_match.exact(found, wanted),
            "what": f"of {len(found):,} held-out sequences that the model answered by itself, greedy; BLEU by "
            "sacrebleu, words as they stand; right: every word; the samples show wrong ones first",
            "by_length": rows,
            "samples": samples,
        }

    data = {"rule": asked.recipe, **{part: len(some) for part, some in pairs.items()}, "sha256": _digest(pairs)}
    return Task(
        model, settings, batches, token_loss, evaluate, "bleu", "higher", tokenizer=tokenizer, data=data, report=report
    )


def _data(asked: TrainingRequest, made: Callable[..., Any], rule: Callable[[Words], Words]) -> dict[str, list[Pair]]:
    options = asked.options(SequenceOptions)
    held_out = options.held_out
    if asked.data is None:
        examples = {"train": options.examples, "dev": held_out, "test": held_out}
        return {part: word_sequences.of_numbers(made(part, count)) for part, count in examples.items()}
    problems = ProblemLog(skip=asked.skip_bad)
    found = word_sequences.of_files(asked.data, rule, options.longest, held_out, problems)
    if problems.count:
        asked.report(str(problems))
    return found


def _digest(parts: dict[str, list[Pair]]) -> str:
    told = "\n".join(f"{part}\t{' '.join(here)}" for part, pairs in parts.items() for here, _ in pairs)
    return hashlib.sha256(told.encode()).hexdigest()


# models

DEFAULTS: dict[str, dict[str, Any]] = {
    "transformer": {
        "steps": 5000, "batch": 64, "learning_rate": 2e-3, "final_rate": 0.02, "warmup": 200, "beta2": 0.98,
        "decay": 0.01, "evaluate_every": 500, "save_every": 500,
    },
    "lstm": {
        "steps": 8000, "batch": 32, "learning_rate": 3e-3, "final_rate": 0.05, "warmup": 100, "beta2": 0.999,
        "decay": 0.0, "evaluate_every": 500, "save_every": 500,
    },
    "gpt": {
        "steps": 4000, "batch": 64, "learning_rate": 1e-3, "final_rate": 0.02, "warmup": 400, "beta2": 0.98,
        "decay": 0.01, "evaluate_every": 500, "save_every": 500,
    },
}  # fmt: skip


CONFIGS: dict[str, Config] = {
    # the paper's, small, with what Hugging Face's Marian has: sines and cosines in halves, a bias on the logits
    "transformer": TransformerConfig(width=64, layers=2, heads=4, hidden=256, layout="halves", output_bias=True),
    # JoeyNMT's: 64 each way, and what a step read out goes into the next
    "lstm": RNNSeq2SeqConfig(
        embedding_width=16, width=64, encoder_width=128, attention="luong_general", input_feeding=True, dropout=0.1
    ),
    "gpt": GPTConfig(width=128, layers=3, heads=4, hidden=512),
}


def _config(kind: str, vocabulary: int, room: int) -> Config:
    if kind == "lstm":
        return CONFIGS[kind].replace(vocabulary=vocabulary)
    return CONFIGS[kind].replace(vocabulary=vocabulary, length=2 * room if kind == "gpt" else room)


def _kind_of(asked: TrainingRequest, model: Model) -> str:
    for kind, family in MODELS.items():
        if isinstance(model, family):
            return kind
    raise ArgumentError(
        f"the recipe {asked.recipe} goes on with a transformer, an rnn_seq2seq or a gpt; {asked.start} is a "
        f"{model.family}"
    )


def _check_start(asked: TrainingRequest, kind: str, usual: str, tokenizer: Tokenizer | None, known: Words) -> None:
    if kind != usual:
        raise ArgumentError(f"{asked.start} is a {usual}, and a {kind} was asked for; leave out model={kind}")
    if tokenizer is None or tokenizer.end is None or tokenizer.pad is None:
        raise ArgumentError(f"{asked.start} has no tokenizer of words, as this recipe's models have")
    strange = [word for word in known if tokenizer.encode(word, special=False) in ([], [tokenizer.unknown])]
    if strange:
        raise ArgumentError(f"{asked.start} does not know the word {strange[0]!r}, and {len(strange) - 1} more")


# batches


def _pairs(sources: list[list[int]], answers: list[list[int]], tokenizer: Tokenizer) -> Batch:
    """For an encoder-decoder: it reads the answer one place behind."""
    assert tokenizer.begin is not None and tokenizer.pad is not None
    source, real = pad_sequences(sources, tokenizer.pad)
    target, _ = pad_sequences([[tokenizer.begin, *answer[:-1]] for answer in answers], tokenizer.pad)
    targets, _ = pad_sequences(answers, IGNORE_INDEX)
    inputs = {"source": source, "target": target}
    if not bool(real.all()):
        inputs["source_token_mask"] = real
    return Batch(inputs, targets, sum(map(len, answers)))


def _joined(sources: list[list[int]], answers: list[list[int]], tokenizer: Tokenizer) -> Batch:
    """For a GPT: one text of both, of which only the answer is asked for."""
    assert tokenizer.pad is not None
    tokens, _ = pad_sequences([here + there[:-1] for here, there in zip(sources, answers, strict=True)], tokenizer.pad)
    asked_for = [[IGNORE_INDEX] * (len(here) - 1) + there for here, there in zip(sources, answers, strict=True)]
    targets, _ = pad_sequences(asked_for, IGNORE_INDEX)
    return Batch({"tokens": tokens}, targets, sum(map(len, answers)))


# a picture


def _draw(model: Model, tokenizer: Tokenizer, pairs: list[Pair], folder: Path, asked: TrainingRequest) -> None:
    """Where the answer looks while it is written: the last layer's heads together, on one sequence that fits a page."""
    here, there = min(pairs, key=lambda pair: abs(len(pair[0]) - 10))
    given = tokenizer.encode(" ".join(here))
    assert tokenizer.end is not None
    answer = [*tokenizer.encode(" ".join(there), special=False), tokenizer.end]
    alone = isinstance(model, GPT)  # it looks at its own text, in which the answer stands behind what was given
    batch = (_joined if alone else _pairs)([given], [answer], tokenizer).to(model.device)
    found = model(**batch.inputs, weights=True).weights
    last = found[-1] if alone else found["cross"][-1]
    pattern = last[0].mean(0)[-len(answer) :].cpu()
    keys = [tokenizer.id_to_token(one) for one in batch.inputs["tokens" if alone else "source"][0].tolist()]
    queries = [tokenizer.id_to_token(one) for one in answer]
    try:
        save_heat_map(folder / "attention.png", pattern, queries, keys, title=f"{asked.recipe}: where each word looks")
    except DrawError as missing:  # pictures are an extra, and no reason to fail now
        asked.report(f"attention.png was not drawn: {missing}")
