"""Recipes ``copy`` and ``reverse``: train a Transformer, LSTMs with Luong's attention or a GPT on sequences.

``reverse --set model=lstm`` is JoeyNMT's setting (Kreutzer et al. 2019): 50,000 training sequences of 1 to 25 numbers
from 0 to 49, and 1,000 for validation and 1,000 for the report of 1 to 30 numbers, so that some are longer than any
training sequence.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import models, pre_tokenizers, processors

from jumok.checkpoint import Loaded
from jumok.data.batches.batch_order import LengthGroups, ShuffledEpochs, pad_sequences
from jumok.data.batches.split import normalize_text
from jumok.data.datasets import toy_tasks
from jumok.data.readers.file_list import list_files
from jumok.data.readers.lines import ProblemLog, read_lines
from jumok.data.readers.table_header import Column
from jumok.data.readers.tables import is_table, read_rows
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.draw import save_heat_map
from jumok.errors import ArgumentError, DataError
from jumok.fields import choice, integer, optional
from jumok.models import Config, Model
from jumok.models.gpt import GPT, GPTConfig
from jumok.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
from jumok.models.transformer import Transformer, TransformerConfig
from jumok.recipes.recipe import Defaults, Options, Recipe, column_field, create_model, header_field
from jumok.recipes.request import TrainingRequest
from jumok.recipes.shared.seq2seq import create_seq2seq_batch, generate_by_length, pad_sources
from jumok.recipes.shared.splits import PARTS, split_by_key
from jumok.recipes.shared.text_scores import compute_bleu, compute_exact_match, require_sacrebleu
from jumok.training import IGNORE_INDEX, Batch, DataSummary, Settings, TrainingTask, compute_token_loss, select_part

Words = list[str]
WordPair = tuple[Words, Words]  # source and target
ExampleGenerator = Callable[[toy_tasks.Part, int], list[toy_tasks.Example]]

SPECIAL_TOKENS = {"pad": "<pad>", "begin": "<s>", "end": "</s>", "unknown": "<unk>", "separator": "<sep>"}
MODELS: dict[str, type[Model]] = {"transformer": Transformer, "lstm": RNNSeq2Seq, "gpt": GPT}
REPORTED_SAMPLES = 5
COMMON_SETTINGS = {
    "batch": 64, "final_rate": 0.02, "beta2": 0.98, "decay": 0.01, "evaluate_every": 500, "save_every": 500,
}  # fmt: skip
SETTINGS: dict[str, dict[str, Any]] = {
    "transformer": COMMON_SETTINGS | {"steps": 5000, "learning_rate": 2e-3, "warmup": 200},
    "lstm": COMMON_SETTINGS | {
        "steps": 8000, "batch": 32, "learning_rate": 3e-3, "final_rate": 0.05, "warmup": 100, "beta2": 0.999,
        "decay": 0.0,
    },
    "gpt": COMMON_SETTINGS | {"steps": 4000, "learning_rate": 1e-3, "warmup": 400},
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


def get_sequence_defaults(request: TrainingRequest, options: SequenceOptions, loaded: Loaded | None) -> Defaults:
    """Return the default config and settings of the chosen architecture."""
    kind = _choose_kind(options, loaded)
    return Defaults(SETTINGS[kind], (CONFIGS[kind],), from_data=("vocabulary", "length"))


def _choose_kind(options: SequenceOptions, loaded: Loaded | None) -> str:
    loaded_kinds = [] if loaded is None else [kind for kind in MODELS if isinstance(loaded.model, MODELS[kind])]
    return options.model or next(iter(loaded_kinds), "transformer")


def create_sequence_task(
    request: TrainingRequest,
    options: SequenceOptions,
    settings: Settings,
    loaded: Loaded | None,
    generate_examples: ExampleGenerator,
    direction: int,
) -> TrainingTask:
    """Train a model to copy a sequence (direction 1) or to reverse it (direction -1)."""
    require_sacrebleu()
    kind = _choose_kind(options, loaded)
    pairs = _read_data(request, options, generate_examples, direction)
    words = sorted({word for pair in pairs["train"] for side in pair for word in side})
    max_tokens = 4 + max(len(side) for part in pairs.values() for pair in part for side in pair)
    needed = 2 * max_tokens if kind == "gpt" else max_tokens
    model: Model
    if loaded is None:
        tokenizer = create_word_tokenizer(words, "separator" if kind == "gpt" else "end")
        sizes = {"vocabulary": tokenizer.vocabulary} | ({} if kind == "lstm" else {"length": needed})
        model = create_model(MODELS[kind], request.change(CONFIGS[kind].replace(**sizes)), settings.seed)
    else:
        _check_start(request, kind, loaded, words)
        model, tokenizer = loaded.model, loaded.require_tokenizer()
    if model.context_length is not None and model.context_length < needed:
        raise ArgumentError(f"the model reads at most {model.context_length} tokens, but these sequences need {needed}")
    end = tokenizer.end
    assert end is not None

    sources = {part: [tokenizer.encode(" ".join(source)) for source, _ in pairs[part]] for part in pairs}
    targets = [[*tokenizer.encode(" ".join(target), special=False), end] for _, target in pairs["train"]]
    order = LengthGroups(ShuffledEpochs(len(targets), settings.seed), lambda index: len(targets[index]))

    def batches(step: int, part: int, parts: int) -> Batch:
        indices = select_part(order.select_indices(step, settings.batch), part, parts)
        return _create_batch(
            kind, [sources["train"][index] for index in indices], [targets[index] for index in indices], tokenizer
        )

    def answer(model: Model, part: str) -> list[str]:
        answers = generate_by_length(model, sources[part], limit=max_tokens, ends=(end,))
        return [tokenizer.decode(tokens) for tokens in answers]

    def evaluate(model: Model) -> dict[str, float]:
        return _score(answer(model, "dev"), [" ".join(target) for _, target in pairs["dev"]])

    def build_report(model: Model, folder: Path) -> dict[str, Any]:
        _save_attention_map(model, kind, tokenizer, pairs["test"], folder, request)
        trained_length = max(len(source) for source, _ in pairs["train"])
        return {"model": kind, **_build_report(answer(model, "test"), pairs["test"], trained_length)}

    lines = "\n".join(f"{part}\t{' '.join(source)}" for part in pairs for source, _ in pairs[part])
    counts = {part: len(pairs[part]) for part in pairs}
    data = {"rule": request.recipe, **counts, "sha256": hashlib.sha256(lines.encode()).hexdigest()}
    summary = DataSummary(
        {f"{name} sequences": count for name, count in zip(PARTS, counts.values(), strict=True)},
        [{"source": " ".join(source), "target": " ".join(target)} for source, target in pairs["train"][:3]],
    )
    return TrainingTask(
        Loaded(model, tokenizer), settings, batches, compute_token_loss, evaluate, "bleu", "higher", data=data,
        build_report=build_report, summary=summary, examples=len(targets),
    )  # fmt: skip


copy = Recipe(
    partial(create_sequence_task, generate_examples=toy_tasks.make_copy_examples, direction=1), get_sequence_defaults,
    tuple(MODELS.values()), SequenceOptions, needs_tokenizer=False,
)  # fmt: skip
reverse = replace(
    copy, create_task=partial(create_sequence_task, generate_examples=toy_tasks.make_reverse_examples, direction=-1)
)


def _read_data(
    request: TrainingRequest, options: SequenceOptions, generate_examples: ExampleGenerator, direction: int
) -> dict[str, list[WordPair]]:
    """Return the pairs of "train", "dev" (to choose the checkpoint) and "test"."""
    if request.data is None:
        held_out = options.held_out
        counts: dict[toy_tasks.Part, int] = {"train": options.examples, "dev": held_out, "test": held_out}
        return {
            part: [
                (list(map(str, source)), list(map(str, target))) for source, target in generate_examples(part, count)
            ]
            for part, count in counts.items()
        }
    request.select_dataset(None, ())
    problems = request.create_problem_log()
    sequences = _read_sequences(request, options, problems)
    train, dev, test = split_by_key([normalize_text(" ".join(words)) for words in sequences], 0.1, 0.1)
    parts = {"train": train, "dev": dev[: options.held_out], "test": test[: options.held_out]}
    request.show_problems(problems)
    pairs = [(words, words[::direction]) for words in sequences]
    return {part: [pairs[index] for index in indices] for part, indices in parts.items()}


def _read_sequences(request: TrainingRequest, options: SequenceOptions, problems: ProblemLog) -> list[Words]:
    """Read a sequence of words from each line of the user's text files, or from a column of tables."""
    sequences: list[Words] = []
    file_format = request.create_file_format(options.header)
    lines: Iterator[tuple[int, str]]
    for path in list_files(request.require_files(), problems):
        if is_table(path):
            rows = read_rows(path, [Column("text", options.text)], problems, file_format)
            lines = ((number, cells[0]) for number, cells in rows)
        else:
            lines = read_lines(path, problems, file_format.encoding)
        for number, line in lines:
            words, location = line.split(), f"{path}:{number}"
            special = next((word for word in words if word in SPECIAL_TOKENS.values()), None)
            if special is not None:
                problems.report(location, f"the word {special} is a special token of this recipe")
            elif len(words) > options.longest:
                message = f"the line has {len(words):,} words, more than {options.longest} (--set longest=...)"
                problems.report(location, message)
            elif words:
                sequences.append(words)
    if not sequences:
        raise DataError(f"{request.data} has no sequences: {problems}")
    return sequences


def create_word_tokenizer(words: Iterable[str], last: str) -> Tokenizer:
    """Create a tokenizer with one token for each word.

    Args:
        last: The role of the special token that is put after each text: "end" or "separator".

    >>> tokenizer = create_word_tokenizer(["7", "8"], "end")
    >>> tokenizer.encode("8 7 9"), tokenizer.decode([6, 5])
    ([6, 5, 3, 2], '8 7')
    """
    ordered = sorted(set(words), key=lambda word: (len(word), word))  # numbers in numerical order
    vocabulary = {token: index for index, token in enumerate([*SPECIAL_TOKENS.values(), *ordered])}
    inner = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIAL_TOKENS["unknown"]))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.add_special_tokens(list(SPECIAL_TOKENS.values()))
    last_token = SPECIAL_TOKENS[last]
    inner.post_processor = processors.TemplateProcessing(
        single=["$A", last_token], special_tokens=[(last_token, vocabulary[last_token])]
    )
    return Tokenizer(inner, SPECIAL_TOKENS)


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
        {"given": " ".join(pairs[index][0]), "answer": answers[index], "right": answers[index] == references[index]}
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


def _check_start(request: TrainingRequest, kind: str, loaded: Loaded, words: Words) -> None:
    if not isinstance(loaded.model, MODELS[kind]):
        raise ArgumentError(f"{request.start} is a {loaded.family}, not a {kind}; remove model={kind}")
    tokenizer = loaded.tokenizer
    if tokenizer is None or tokenizer.end is None or tokenizer.pad is None:
        raise ArgumentError(f"{request.start} has no tokenizer of words with an end and a padding token")
    unknown = [word for word in words if tokenizer.encode(word, special=False) in ([], [tokenizer.unknown])]
    if unknown:
        raise ArgumentError(
            f"the tokenizer of {request.start} has no token for the word {unknown[0]!r} and {len(unknown) - 1} more"
        )


def _create_batch(kind: str, sources: list[list[int]], targets: list[list[int]], tokenizer: Tokenizer) -> Batch:
    """Create a batch. A GPT reads source and target as one sequence; only the target tokens contribute to its loss."""
    assert tokenizer.begin is not None and tokenizer.pad is not None
    if kind != "gpt":
        return create_seq2seq_batch(pad_sources(sources, tokenizer.pad), targets, tokenizer.begin, tokenizer.pad)
    pairs = list(zip(sources, targets, strict=True))
    tokens, _ = pad_sequences([source + target[:-1] for source, target in pairs], tokenizer.pad)
    rows = [[IGNORE_INDEX] * (len(source) - 1) + target for source, target in pairs]
    padded_targets, _ = pad_sequences(rows, IGNORE_INDEX)
    return Batch({"tokens": tokens}, padded_targets, sum(map(len, targets)))


def _save_attention_map(
    model: Model, kind: str, tokenizer: Tokenizer, pairs: list[WordPair], folder: Path, request: TrainingRequest
) -> None:
    """Draw the weights of the last layer, averaged over its heads, on one sequence of about 10 words."""
    source, target = min(pairs, key=lambda pair: abs(len(pair[0]) - 10))
    assert tokenizer.end is not None
    answer = [*tokenizer.encode(" ".join(target), special=False), tokenizer.end]
    batch = _create_batch(kind, [tokenizer.encode(" ".join(source))], [answer], tokenizer).to(model.device)
    weights = model(**batch.inputs, weights=True).weights
    # a GPT attends to its own sequence, which ends with the answer
    last_layer = weights[-1] if kind == "gpt" else weights["cross"][-1]
    pattern = last_layer[0].mean(0)[-len(answer) :].cpu()
    key_tokens = batch.inputs["tokens" if kind == "gpt" else "source"][0].tolist()
    keys = [tokenizer.id_to_token(token) for token in key_tokens]
    queries = [tokenizer.id_to_token(token) for token in answer]
    title = f"{request.recipe}: attention of each word of the answer"
    with request.skip_undrawn("attention.png"):
        save_heat_map(folder / "attention.png", pattern, queries, keys, title=title)
