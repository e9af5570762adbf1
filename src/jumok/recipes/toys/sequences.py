"""Recipes ``copy`` and ``reverse``: train a Transformer, LSTMs with Luong's attention or a GPT on sequences.

``reverse --set model=lstm`` is JoeyNMT's setting (Kreutzer et al. 2019): 50,000 training sequences of 1 to 25 numbers
from 0 to 49, and 1,000 for validation and 1,000 for the report of 1 to 30 numbers, so that some are longer than any
training sequence.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jumok.data.batches.batch_order import LengthGroups, ShuffledEpochs, pad_sequences
from jumok.data.datasets import toy_tasks
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.draw import save_heat_map
from jumok.errors import ArgumentError, DrawError
from jumok.fields import choice, integer, optional
from jumok.models import Config, Model
from jumok.models.gpt import GPT, GPTConfig
from jumok.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
from jumok.models.transformer import Transformer, TransformerConfig
from jumok.recipes.recipe import Defaults, Options, column_field, header_field, recipe
from jumok.recipes.request import TrainingRequest
from jumok.recipes.shared.batched_decoding import generate_by_length
from jumok.recipes.shared.data_source import require_files, select_dataset
from jumok.recipes.shared.text_scores import compute_bleu, compute_exact_match, require_sacrebleu
from jumok.training import IGNORE_INDEX, Batch, Task, compute_token_loss, select_part

from .word_sequences import (
    WordPair,
    Words,
    convert_numbers,
    create_word_tokenizer,
    read_sequences,
    split_pairs,
    summarize_pairs,
)

MODELS = {"transformer": Transformer, "lstm": RNNSeq2Seq, "gpt": GPT}
REPORTED_SAMPLES = 5
SETTINGS: dict[str, dict[str, Any]] = {
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
    # sines before cosines and a bias on the logits, so that Hugging Face's Marian can load the model
    "transformer": TransformerConfig(width=64, layers=2, heads=4, hidden=256, layout="halves", output_bias=True),
    # JoeyNMT's: 64 in each direction, and input feeding
    "lstm": RNNSeq2SeqConfig(
        embedding_width=16, width=64, encoder_width=128, attention="luong_general", input_feeding=True, dropout=0.1
    ),
    "gpt": GPTConfig(width=128, layers=3, heads=4, hidden=512),
}

ExampleGenerator = Callable[[toy_tasks.Part, int], list[toy_tasks.Example]]


@dataclass(frozen=True)
class SequenceOptions(Options):
    """Fields of the recipes copy and reverse."""

    with_data = ("longest", "text", "header")
    without_data = ("examples",)

    model: str | None = optional(
        choice("transformer", tuple(MODELS), "architecture; None = transformer, or that of the model to start from")
    )
    examples: int = integer(50_000, "number of training sequences")
    held_out: int = integer(1_000, "number of sequences for choosing the best checkpoint, and again for the report")
    longest: int = integer(100, "largest number of words in a line of your data")
    text: str | None = column_field("column of your table that has the sequences")
    header: str = header_field()


def get_sequence_defaults(request: TrainingRequest) -> Defaults:
    """Return the default config and settings of the chosen architecture."""
    kind = request.take_options(SequenceOptions).model or "transformer"
    configs = () if request.start is not None else (CONFIGS[kind],)
    return Defaults(SETTINGS[kind], configs, from_data=("vocabulary", "length"))


@recipe(get_sequence_defaults, SequenceOptions)
def copy(request: TrainingRequest) -> Task:
    """Train a model to copy a sequence."""
    return _create_task(request, toy_tasks.make_copy_examples, list)


@recipe(get_sequence_defaults, SequenceOptions)
def reverse(request: TrainingRequest) -> Task:
    """Train a model to reverse a sequence."""
    return _create_task(request, toy_tasks.make_reverse_examples, lambda words: words[::-1])


def _create_task(request: TrainingRequest, generate_examples: ExampleGenerator, rule: Callable[[Words], Words]) -> Task:
    require_sacrebleu()
    loaded = request.load_start()
    default_kind = "transformer" if loaded is None else _find_kind(request, loaded.model)
    kind = request.take_options(SequenceOptions).model or default_kind
    pairs = _read_data(request, generate_examples, rule)
    settings = request.take_settings(**SETTINGS[kind])
    words = sorted({word for pair in pairs["train"] for side in pair for word in side})
    max_tokens = 4 + max(len(side) for part in pairs.values() for pair in part for side in pair)
    model: Model
    if loaded is None:
        tokenizer = create_word_tokenizer(words, "separator" if kind == "gpt" else "end")
        config = _create_config(kind, tokenizer.vocabulary, max_tokens)
        model = request.create_model(MODELS[kind], request.take_config(config), settings)
    else:
        _check_start(request, kind, default_kind, loaded.tokenizer, words)
        model, tokenizer = loaded.model, loaded.require_tokenizer()
    needed = 2 * max_tokens if kind == "gpt" else max_tokens
    if model.context_length is not None and model.context_length < needed:
        raise ArgumentError(f"the model reads at most {model.context_length} tokens, but these sequences need {needed}")
    create_batch = _create_gpt_batch if kind == "gpt" else _create_pair_batch
    end = tokenizer.end
    assert end is not None

    sources = {part: [tokenizer.encode(" ".join(source)) for source, _ in pairs[part]] for part in pairs}
    targets = [[*tokenizer.encode(" ".join(target), special=False), end] for _, target in pairs["train"]]
    order = LengthGroups(ShuffledEpochs(len(targets), settings.seed), lambda index: len(targets[index]))

    def batches(step: int, part: int, parts: int) -> Batch:
        indices = select_part(order.select_indices(step, settings.batch), part, parts)
        return create_batch(
            [sources["train"][index] for index in indices], [targets[index] for index in indices], tokenizer
        )

    def answer(model: Model, part: str) -> list[str]:
        answers = generate_by_length(model, sources[part], limit=max_tokens, ends=(end,))
        return [tokenizer.decode(tokens) for tokens in answers]

    def evaluate(model: Model) -> dict[str, float]:
        return _score(answer(model, "dev"), [" ".join(target) for _, target in pairs["dev"]])

    def report(model: Model, folder: Path) -> dict[str, Any]:
        _save_attention_map(model, tokenizer, pairs["test"], folder, request)
        trained_length = max(len(source) for source, _ in pairs["train"])
        return {"model": kind, **_build_report(answer(model, "test"), pairs["test"], trained_length)}

    data = {"rule": request.recipe, **{part: len(pairs[part]) for part in pairs}, "sha256": _hash_sources(pairs)}
    return Task(
        model, settings, batches, compute_token_loss, evaluate, "bleu", "higher", tokenizer=tokenizer, data=data,
        report=report, summary=summarize_pairs(pairs), examples=len(targets),
    )  # fmt: skip


def _read_data(
    request: TrainingRequest, generate_examples: ExampleGenerator, rule: Callable[[Words], Words]
) -> dict[str, list[WordPair]]:
    """Return the pairs of "train", "dev" and "test"."""
    options = request.take_options(SequenceOptions)
    if request.data is None:
        counts: dict[toy_tasks.Part, int] = {
            "train": options.examples,
            "dev": options.held_out,
            "test": options.held_out,
        }
        return {part: convert_numbers(generate_examples(part, count)) for part, count in counts.items()}
    select_dataset(request, None, ())
    problems = request.create_problem_log()
    file_format = request.create_file_format(options.header)
    sequences = read_sequences(require_files(request), options.longest, problems, options.text, file_format)
    pairs = split_pairs(sequences, rule, options.held_out)
    if problems.count:
        request.report(str(problems))
    return pairs


def _hash_sources(parts: dict[str, list[WordPair]]) -> str:
    lines = "\n".join(f"{part}\t{' '.join(source)}" for part, pairs in parts.items() for source, _ in pairs)
    return hashlib.sha256(lines.encode()).hexdigest()


def _score(answers: list[str], references: list[str]) -> dict[str, float]:
    return {"bleu": compute_bleu(answers, references), "right": compute_exact_match(answers, references)}


def _build_report(answers: list[str], pairs: list[WordPair], trained_length: int) -> dict[str, Any]:
    references = [" ".join(target) for _, target in pairs]
    lengths = [len(source) for source, _ in pairs]
    groups = {
        f"1 to {trained_length}": [index for index, length in enumerate(lengths) if length <= trained_length],
        f"more than {trained_length}": [index for index, length in enumerate(lengths) if length > trained_length],
    }
    rows = []
    for name, indices in groups.items():
        if indices:
            scores = _score([answers[index] for index in indices], [references[index] for index in indices])
            rows.append({"length": name, "sequences": len(indices), **scores})
    wrong_first = sorted(range(len(answers)), key=lambda index: (answers[index] == references[index], index))
    samples = [
        {
            "given": " ".join(pairs[index][0]),
            "answer": answers[index],
            "right": answers[index] == references[index],
        }
        for index in wrong_first[:REPORTED_SAMPLES]
    ]
    return {
        "try": " ".join(pairs[0][0]),
        **_score(answers, references),
        "what": f"{len(answers):,} held-out sequences, decoded greedily; bleu: sacrebleu, words split at spaces; "
        "right: share of sequences with every word correct; samples: wrong answers first",
        "by_length": rows,
        "samples": samples,
    }


def _create_config(kind: str, vocabulary: int, max_tokens: int) -> Config:
    if kind == "lstm":
        return CONFIGS[kind].replace(vocabulary=vocabulary)
    return CONFIGS[kind].replace(vocabulary=vocabulary, length=2 * max_tokens if kind == "gpt" else max_tokens)


def _find_kind(request: TrainingRequest, model: Model) -> str:
    for kind, family in MODELS.items():
        if isinstance(model, family):
            return kind
    raise ArgumentError(
        f"the {request.recipe} recipe can start only from a transformer, rnn_seq2seq or gpt; {request.start} is a "
        f"{model.family}"
    )


def _check_start(
    request: TrainingRequest, kind: str, loaded_kind: str, tokenizer: Tokenizer | None, words: Words
) -> None:
    if kind != loaded_kind:
        raise ArgumentError(f"{request.start} is a {loaded_kind}, not a {kind}; remove model={kind}")
    if tokenizer is None or tokenizer.end is None or tokenizer.pad is None:
        raise ArgumentError(f"{request.start} has no tokenizer of words with an end and a padding token")
    unknown = [word for word in words if tokenizer.encode(word, special=False) in ([], [tokenizer.unknown])]
    if unknown:
        raise ArgumentError(
            f"the tokenizer of {request.start} has no token for the word {unknown[0]!r} and {len(unknown) - 1} more"
        )


def _create_pair_batch(sources: list[list[int]], targets: list[list[int]], tokenizer: Tokenizer) -> Batch:
    """Create a batch for an encoder-decoder: the decoder reads the targets shifted by one position."""
    assert tokenizer.begin is not None and tokenizer.pad is not None
    source, token_mask = pad_sequences(sources, tokenizer.pad)
    decoder_input, _ = pad_sequences([[tokenizer.begin, *target[:-1]] for target in targets], tokenizer.pad)
    padded_targets, _ = pad_sequences(targets, IGNORE_INDEX)
    inputs = {"source": source, "target": decoder_input}
    if not bool(token_mask.all()):
        inputs["source_token_mask"] = token_mask
    return Batch(inputs, padded_targets, sum(map(len, targets)))


def _create_gpt_batch(sources: list[list[int]], targets: list[list[int]], tokenizer: Tokenizer) -> Batch:
    """Create a batch for a GPT: source and target in one sequence; only the target tokens contribute to the loss."""
    assert tokenizer.pad is not None
    pairs = list(zip(sources, targets, strict=True))
    tokens, _ = pad_sequences([source + target[:-1] for source, target in pairs], tokenizer.pad)
    rows = [[IGNORE_INDEX] * (len(source) - 1) + target for source, target in pairs]
    padded_targets, _ = pad_sequences(rows, IGNORE_INDEX)
    return Batch({"tokens": tokens}, padded_targets, sum(map(len, targets)))


def _save_attention_map(
    model: Model, tokenizer: Tokenizer, pairs: list[WordPair], folder: Path, request: TrainingRequest
) -> None:
    """Draw the weights of the last layer, averaged over its heads, on one sequence of about 10 words."""
    source, target = min(pairs, key=lambda pair: abs(len(pair[0]) - 10))
    assert tokenizer.end is not None
    answer = [*tokenizer.encode(" ".join(target), special=False), tokenizer.end]
    create_batch = _create_gpt_batch if isinstance(model, GPT) else _create_pair_batch
    batch = create_batch([tokenizer.encode(" ".join(source))], [answer], tokenizer).to(model.device)
    weights = model(**batch.inputs, weights=True).weights
    # a GPT attends to its own sequence, which ends with the answer
    last_layer = weights[-1] if isinstance(model, GPT) else weights["cross"][-1]
    pattern = last_layer[0].mean(0)[-len(answer) :].cpu()
    key_tokens = batch.inputs["tokens" if isinstance(model, GPT) else "source"][0].tolist()
    keys = [tokenizer.id_to_token(token) for token in key_tokens]
    queries = [tokenizer.id_to_token(token) for token in answer]
    title = f"{request.recipe}: attention of each word of the answer"
    try:
        save_heat_map(folder / "attention.png", pattern, queries, keys, title=title)
    except DrawError as error:  # drawing is optional, and must not fail a finished run
        request.report(f"attention.png was not drawn: {error}")
