"""Recipe ``masked``: train a BERT to predict masked tokens from the text on both sides (Devlin et al. 2019), or an
encoder for long texts.

A tenth of the paragraphs is held out. In held-out paragraphs every scored token is replaced by the mask token. A BERT
reads paragraphs. ``model=long`` reads consecutive paragraphs, joined and cut into examples of equal length: paragraphs
are short, and FNet cannot ignore padding.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn
from torch.nn import functional

from jumok.checkpoint import Loaded
from jumok.data.batches.batch_order import LengthGroups, ShuffledEpochs, pad_sequences
from jumok.data.batches.split import Split, assign_split
from jumok.data.datasets import text_corpora
from jumok.data.readers.lines import ProblemLog
from jumok.data.readers.text_examples import TextPiece, read_pieces
from jumok.data.token_shards import TokenShards, fingerprint_tokenizer
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.data.tokenizers.tokenizer_files import SPECIAL_TOKENS as SPECIAL_ROLES
from jumok.errors import ArgumentError
from jumok.fields import choice, integer, optional
from jumok.models import Model
from jumok.models.bert import BERT, BERTConfig
from jumok.models.long import Long, LongConfig
from jumok.recipes.recipe import Defaults, Options, Recipe, column_field, create_model, header_field
from jumok.recipes.request import TrainingRequest
from jumok.recipes.shared.run_tokenizer import load_or_create_tokenizer, save_tokenizer
from jumok.recipes.shared.seq2seq import batch_by_length
from jumok.recipes.shared.stored_data import FACTS_FILE, load_facts, load_tokens, save_facts, write_tokens
from jumok.training import Batch, DataSummary, Settings, TrainingTask

VALIDATION_EXAMPLES = 500  # held-out examples that choose the best checkpoint; the report uses other ones
REPORT_EXAMPLES = 2_000
WAVE_AMPLITUDE = 0.05  # of the sines and cosines that the position embedding is initialised with
SPECIAL_TOKENS = {"pad": "[PAD]", "classify": "[CLS]", "separator": "[SEP]", "mask": "[MASK]"}
MAX_CHARACTERS = 4_000  # a longer paragraph is cut at the next line break
MIN_TOKENS = 4  # a shorter paragraph has too little context to predict a masked token
EVALUATION_BATCH = 64
SHARE = 0.15  # of each example's tokens: 80 % become the mask token, 10 % a random token, 10 % stay unchanged
EVALUATION_SEED = 2**41  # held-out texts are masked in the same way in every run
TokenIds = Int[Tensor, "batch length"]
TokenFlags = Bool[Tensor, "batch length"]
Encoder = BERT | Long
CONFIGS: dict[str, BERTConfig | LongConfig] = {
    "bert": BERTConfig(length=128, width=128, layers=4, heads=4, hidden=512, segments=1, head="mlm"),
    "long": LongConfig(
        length=512, width=128, layers=4, heads=4, hidden=512, window=32, random=2, block=32, features=64, head="mlm"
    ),
}
BATCHES = {"bert": 32, "long": 8}  # about equally many tokens
SETTINGS: dict[str, Any] = {
    "steps": 3000, "optimizer": "muon", "learning_rate": 4e-3, "matrix_rate": 1e-2, "final_rate": 0.02,
    "warmup": 100, "beta2": 0.98, "decay": 0.01, "clip": 1.0, "evaluate_every": 500, "save_every": 500,
}  # fmt: skip
SETTINGS_FINE_TUNING: dict[str, Any] = {
    "steps": 500, "learning_rate": 2e-4, "final_rate": 0.0, "warmup": 50, "beta2": 0.98,
    "decay": 0.01, "clip": 1.0, "evaluate_every": 100, "save_every": 100,
}  # fmt: skip


@dataclass(frozen=True)
class MaskedOptions(Options):
    """Fields of the masked recipe."""

    with_data = ("text", "header")
    with_start = ("window",)
    without_start = ("vocabulary", "model")

    vocabulary: int = integer(8192, "size of the learned vocabulary", 256 + len(SPECIAL_TOKENS))
    text: str | None = column_field("column of your table that has the texts")
    header: str = header_field()
    model: str = choice("bert", ("bert", "long"), "bert, or long: an encoder for long texts, with the field mixing")
    window: int | None = optional(
        integer(128, "longest example in tokens; None = the model's length, for a bert at most 128", 8)
    )


def get_masked_defaults(request: TrainingRequest, options: MaskedOptions, loaded: Loaded | None) -> Defaults:
    """Return the default config and settings of the chosen or loaded architecture."""
    batch = {"batch": BATCHES[options.model if loaded is None else loaded.family]}
    return Defaults(SETTINGS | batch, (CONFIGS[options.model],), start_settings=SETTINGS_FINE_TUNING | batch)


def create_masked_task(
    request: TrainingRequest, options: MaskedOptions, settings: Settings, loaded: Loaded | None
) -> TrainingTask:
    """Train a small BERT or long-text encoder to predict masked tokens, or continue with an existing one."""
    if loaded is None:
        tokenizer = _load_or_learn_tokenizer(request, options)
        model = _create_model(request, options.model, tokenizer, settings)
        length = model.config.length
    else:
        tokenizer = loaded.require_tokenizer()
        if tokenizer.mask is None:
            raise ArgumentError(f"the masked recipe needs a tokenizer with a mask token; {request.start} has none")
        model = _continue_model(loaded, settings)
        save_tokenizer(request, tokenizer)
        longest = model.config.length if isinstance(model, Long) else min(128, model.config.length)
        length = options.window or longest
    is_long = isinstance(model, Long)
    padding_id = 0 if isinstance(model, Long) else model.config.padding_id or 0
    examples = MaskedExamples(tokenizer, padding_id, joined=is_long)
    max_tokens = min(length, model.config.length) - len(examples.before) - len(examples.after)
    if max_tokens < MIN_TOKENS:
        raise ArgumentError(f"a length of {length} is too short for a text and its special tokens; give at least 8")

    joint = examples.after if is_long else None
    train, held_out, facts = prepare_paragraphs(request, options, tokenizer, max_tokens, joint)
    order = LengthGroups(ShuffledEpochs(train.lists, settings.seed), lambda number: len(train.read_list(number)))
    validation_count = held_out.lists if held_out.lists < 4 else min(VALIDATION_EXAMPLES, held_out.lists // 4)
    shuffled = ShuffledEpochs(held_out.lists).select_indices(0, min(held_out.lists, validation_count + REPORT_EXAMPLES))
    validation = shuffled[:validation_count]
    reported = shuffled[validation_count:] or shuffled

    def batches(step: int, part: int, parts: int) -> Batch:
        generator = torch.Generator().manual_seed(settings.seed * 1_000_003 + step)
        numbers = order.select_indices(step, settings.batch)
        return examples.create_batch(train, numbers, generator, part, parts)

    def evaluate(model: Model) -> dict[str, float]:
        scores = examples.score(model, held_out, validation)
        return {"loss": scores["loss"], "accuracy": scores["accuracy"]}

    def build_report(model: Model, folder: Path) -> dict[str, Any]:
        return {**examples.build_report(model, train, held_out, reported), **facts}

    data = {
        "examples": train.lists, "tokens": len(train), "held_out": held_out.lists, "vocabulary": tokenizer.vocabulary,
        "tokenizer": fingerprint_tokenizer(tokenizer),
    }  # fmt: skip
    noun = "examples" if is_long else "paragraphs"
    summary = DataSummary(
        {f"training {noun}": train.lists, "training tokens": len(train), f"held-out {noun}": held_out.lists},
        [{"text": tokenizer.decode(train.read_list(number).tolist())} for number in range(min(3, train.lists))],
    )
    return TrainingTask(
        Loaded(model, tokenizer), settings, batches, compute_masked_loss, evaluate, data=data,
        build_report=build_report, summary=summary, examples=train.lists,
    )  # fmt: skip


masked = Recipe(create_masked_task, get_masked_defaults, (BERT, Long), MaskedOptions, stored=FACTS_FILE)


def compute_masked_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Return the cross-entropy of the masked tokens, summed."""
    return functional.cross_entropy(model(**batch.inputs).logits, batch.targets, reduction="sum")


def _create_model(request: TrainingRequest, kind: str, tokenizer: Tokenizer, settings: Settings) -> Encoder:
    config = request.change(CONFIGS[kind]).replace(vocabulary=tokenizer.vocabulary, head="mlm")
    model = create_model(BERT if kind == "bert" else Long, config, settings.seed)
    _initialise_as_waves(model.positions.table.weight)
    return model


@torch.no_grad()
def _initialise_as_waves(table: Tensor) -> None:
    """Initialise the learned positions as sines and cosines.

    The same rotation then maps every position to the next, and heads soon learn to attend to the neighbours of a masked
    token. With random initial positions they did not learn this within the recipe's steps.
    """
    length, width = table.shape
    exponents = torch.arange(width // 2) / (width // 2)
    angles = torch.arange(length)[:, None] * float(length) ** -exponents
    table[:, : 2 * len(exponents)] = torch.cat([angles.sin(), angles.cos()], -1) * WAVE_AMPLITUDE


def _continue_model(loaded: Loaded, settings: Settings) -> Encoder:
    """Return the loaded model; without a masked-language-model head it gets a new one."""
    assert isinstance(loaded.model, Encoder)
    config, parameters = loaded.model.config, loaded.model.state_dict()
    if config.head != "mlm":
        if isinstance(config, BERTConfig):
            activation = config.activation if config.padding_id is None else "gelu"  # as in BERT's and RoBERTa's heads
            config = config.replace(head_activation=activation)
        config = config.replace(head="mlm")
        parameters = {name: tensor for name, tensor in parameters.items() if not name.startswith("head.")}
    model = create_model(type(loaded.model), config, settings.seed)
    mismatches = model.load_state_dict(parameters, strict=False)
    assert not mismatches.unexpected_keys
    assert all(name.startswith("head.") for name in mismatches.missing_keys)
    return model


def _load_or_learn_tokenizer(request: TrainingRequest, options: MaskedOptions) -> Tokenizer:
    """Load the run's tokenizer, or learn it from the training paragraphs."""

    def learn() -> Tokenizer:
        texts = _read_paragraphs(request, options, "train", request.create_problem_log())
        return Tokenizer.train(texts, options.vocabulary, SPECIAL_TOKENS, ["classify"], ["separator"], one_space=True)

    return load_or_create_tokenizer(request, learn)


def prepare_paragraphs(
    request: TrainingRequest, options: MaskedOptions, tokenizer: Tokenizer, max_tokens: int, joint: list[int] | None
) -> tuple[TokenShards, TokenShards, dict[str, int]]:
    """Encode the training and the held-out paragraphs, store them in the run's folder, and return them with facts for
    the report; a resumed run reads them from there.

    Args:
        joint: If given, consecutive paragraphs are joined by these tokens, and every example has exactly
            ``max_tokens`` tokens; tokens that are left over at the end are dropped. None = an example is a paragraph.
    """
    facts = load_facts(request)
    if facts is not None:
        return load_tokens(request, "train"), load_tokens(request, "held-out"), facts

    def write_examples(side: Split, problems: ProblemLog) -> TokenShards:
        encoded = (tokenizer.encode(text, special=False) for text in _read_paragraphs(request, options, side, problems))
        if joint is None:
            examples = _cut_paragraphs(encoded, max_tokens)
            lack = f"no paragraph of at least {MIN_TOKENS} tokens"
        else:
            examples = _join_paragraphs(encoded, max_tokens, joint)
            lack = f"fewer than {max_tokens} tokens, which is one example of the model's length"
        first = next(examples, None)
        if first is None:
            raise ArgumentError(
                f"the {side} split has {lack} (a tenth of the text is held out, selected by a hash); give more text"
            )
        return write_tokens(request, tokenizer, itertools.chain([first], examples), side)

    problems = request.create_problem_log()
    train = write_examples("train", problems)
    held_out = write_examples("held-out", request.create_problem_log())
    request.show_problems(problems)
    facts = {"skipped": problems.count} if request.skip_bad else {}
    save_facts(request, facts)
    return train, held_out, facts


def _cut_paragraphs(paragraphs: Iterable[list[int]], max_tokens: int) -> Iterator[list[int]]:
    for tokens in paragraphs:
        for start in range(0, len(tokens), max_tokens):
            if len(tokens) - start >= MIN_TOKENS:
                yield tokens[start : start + max_tokens]


def _join_paragraphs(paragraphs: Iterable[list[int]], count: int, joint: list[int]) -> Iterator[list[int]]:
    joined: list[int] = []
    for tokens in paragraphs:
        joined += [*joint, *tokens] if joined else tokens
        while len(joined) >= count:
            yield joined[:count]
            joined = joined[count:]


def _read_paragraphs(
    request: TrainingRequest, options: MaskedOptions, side: Split, problems: ProblemLog
) -> Iterator[str]:
    name = request.select_dataset("gutenberg", text_corpora.TEXTS)
    if name is not None:
        passages = text_corpora.TEXTS[name](side, request.show_download)
        return split_paragraphs(TextPiece(passage, True) for passage in passages)
    file_format = request.create_file_format(options.header)
    paragraphs = split_paragraphs(read_pieces(request.require_files(), problems, options.text, file_format))
    return (paragraph for paragraph in paragraphs if assign_split(paragraph) == side)


def split_paragraphs(pieces: Iterable[TextPiece]) -> Iterator[str]:
    """Yield the text between empty lines, each paragraph as one line.

    >>> list(split_paragraphs([TextPiece("One\\n  two\\n\\nthree\\n", False), TextPiece("four\\n", True)]))
    ['One two', 'three four']
    """
    words: list[str] = []
    characters = 0
    for piece in pieces:
        lines = piece.text.removesuffix("\n").split("\n")
        for number, line in enumerate(lines):
            words += line.split()
            characters += len(line)
            ends_document = piece.ends_document and number == len(lines) - 1
            if line.strip() and characters <= MAX_CHARACTERS and not ends_document:
                continue
            if words:
                yield " ".join(words)
            words, characters = [], 0
    if words:
        yield " ".join(words)


class MaskedExamples:
    """Builds padded batches of paragraphs and scores a model on them.

    An example that is ``joined`` consists of several paragraphs, with the tokens that end a text between them.
    """

    def __init__(self, tokenizer: Tokenizer, padding_id: int, *, joined: bool = False) -> None:
        self.tokenizer = tokenizer
        self.joined = joined
        self.before, self.after = find_surrounding_tokens(tokenizer)
        self.padding_id = padding_id if tokenizer.pad is None else tokenizer.pad

    def read_and_pad(self, paragraphs: TokenShards, numbers: Iterable[int]) -> tuple[TokenIds, TokenFlags, TokenFlags]:
        """Return examples padded to the longest: the tokens, the token mask, and True where a token may be masked."""
        rows = [[*self.before, *paragraphs.read_list(number).tolist(), *self.after] for number in numbers]
        tokens, token_mask = pad_sequences(rows, self.padding_id)
        lengths = token_mask.sum(-1, keepdim=True)
        positions = torch.arange(tokens.shape[1])
        maskable = (positions >= len(self.before)) & (positions < lengths - len(self.after))
        if self.joined:
            maskable &= ~torch.isin(tokens, torch.tensor(self.after, dtype=torch.long))
        return tokens, token_mask, maskable

    def create_batch(
        self, paragraphs: TokenShards, numbers: list[int], generator: torch.Generator, part: int, parts: int
    ) -> Batch:
        """Mask these examples for training, and return one part of them."""
        tokens, token_mask, maskable = self.read_and_pad(paragraphs, numbers)
        # all parts are masked together, so that the masks do not depend on the number of parts
        masked, positions = mask_for_training(tokens, maskable, self.tokenizer, generator)
        inputs = {"tokens": masked, "token_mask": token_mask, "positions_to_score": positions}
        inputs = {name: tensor.chunk(parts)[part] for name, tensor in inputs.items()}
        targets = tokens.chunk(parts)[part][inputs["positions_to_score"]]
        return Batch(inputs, targets, len(targets))

    def score(
        self, model: Model, paragraphs: TokenShards, numbers: list[int], constant_guess: int = -1
    ) -> dict[str, float]:
        """Return the loss, the accuracy, that of predicting ``constant_guess`` always, and the count of predictions."""
        loss = correct = constant_correct = count = 0.0
        lengths = [len(paragraphs.read_list(number)) for number in numbers]
        for batch, indices in enumerate(batch_by_length(lengths, EVALUATION_BATCH)):
            tokens, token_mask, maskable = self.read_and_pad(paragraphs, [numbers[index] for index in indices])
            inputs, positions = mask_for_evaluation(tokens, maskable, self.tokenizer, batch * EVALUATION_BATCH)
            inputs, token_mask, scored = (tensor.to(model.device) for tensor in (inputs, token_mask, positions))
            logits = model(inputs, token_mask=token_mask, positions_to_score=scored).logits.cpu()
            targets = tokens[positions]
            loss += float(functional.cross_entropy(logits, targets, reduction="sum"))
            correct += float((logits.argmax(-1) == targets).sum())
            constant_correct += float((targets == constant_guess).sum())
            count += len(targets)
        shares = {"loss": loss / count, "accuracy": correct / count, "unigram_accuracy": constant_correct / count}
        return {**shares, "guesses": count}

    def show_predictions(self, model: Model, texts: list[list[int]], count: int = 8) -> list[dict[str, str]]:
        """Mask the middle token of a few texts, and return the three most probable predictions for each.

        Texts are cut to 32 tokens. Joined paragraphs, which are long, are shown up to that token and read whole.
        """
        tokenizer = self.tokenizer
        rows = []
        for text in [text for text in texts if len(text) >= 8][:count]:
            tokens = text[:32]
            middle = len(tokens) // 2
            if tokens[middle] in self.after:  # between joined paragraphs
                middle += 1
            following = text[middle + 1 :] if self.joined else tokens[middle + 1 :]
            inputs = [*self.before, *tokens[:middle], tokenizer.mask, *following, *self.after]
            logits = model(torch.tensor([inputs], device=model.device)).logits[0, len(self.before) + middle]
            probabilities, predictions = logits.softmax(-1).topk(3)
            guesses = [
                f"{tokenizer.decode([token]).strip()} {probability:.0%}"
                for token, probability in zip(predictions.tolist(), probabilities.tolist(), strict=True)
            ]
            shown = f"{tokenizer.decode(tokens[:middle])} ___{tokenizer.decode(tokens[middle + 1 :])}"
            shown = shown.replace("\N{REPLACEMENT CHARACTER}", "")
            hidden = tokenizer.decode([tokens[middle]]).strip()
            rows.append({"text": shown, "hidden": hidden, "guesses": ", ".join(guesses)})
        return rows

    def build_report(
        self, model: Model, train: TokenShards, held_out: TokenShards, numbers: list[int]
    ) -> dict[str, Any]:
        """Return the report's fields: scores on held-out examples, and predictions for a few of them."""
        most_frequent = int(count_tokens(train).argmax())
        scores = self.score(model, held_out, numbers, most_frequent)
        texts = [held_out.read_list(number).tolist() for number in numbers]
        noun = "examples" if self.joined else "paragraphs"
        return {
            **scores,
            "guesses": round(scores["guesses"]),
            "unigram_guess": self.tokenizer.decode([most_frequent]),
            "what": f"accuracy: share of the masked tokens predicted correctly, {SHARE:.0%} of the tokens of "
            f"{len(numbers):,} held-out {noun}; unigram_accuracy: always predict the most frequent token of the "
            "training text",
            "unknown_rate": train.unknown_rate,
            "try": _build_prompt(self.tokenizer, texts[0]),
            "examples": self.show_predictions(model, texts),
        }


def count_tokens(tokens: TokenShards) -> Int[Tensor, " vocabulary"]:
    """Count how often each token occurs."""
    counts = torch.zeros(tokens.vocabulary, dtype=torch.long)
    for start in range(0, len(tokens), 2**20):
        piece = tokens.read_tokens(start, min(2**20, len(tokens) - start))
        counts += torch.bincount(piece, minlength=tokens.vocabulary)
    return counts


def _build_prompt(tokenizer: Tokenizer, tokens: list[int]) -> str:
    """Return the beginning of a text with one token masked, as a user would type it."""
    assert tokenizer.mask is not None
    before, after = tokenizer.decode(tokens[:8]), tokenizer.decode(tokens[9:16])
    prompt = f"{before} {tokenizer.id_to_token(tokenizer.mask)}{after}"
    return prompt.replace("\N{REPLACEMENT CHARACTER}", "").strip()


def mask_for_training(
    tokens: TokenIds, maskable: TokenFlags, tokenizer: Tokenizer, generator: torch.Generator
) -> tuple[TokenIds, TokenFlags]:
    """Return the model's input, and True at the positions that it has to predict.

    Some of these positions keep their token and some get a random one, so that the model has to predict every token.
    """
    positions = choose_positions(maskable, generator)
    replacement = torch.rand(tokens.shape, generator=generator)
    ordinary = list_ordinary_tokens(tokenizer)
    random_tokens = ordinary[torch.randint(len(ordinary), tokens.shape, generator=generator)]
    inputs = torch.where(positions & (replacement < 0.9), random_tokens, tokens)
    assert tokenizer.mask is not None
    return inputs.masked_fill(positions & (replacement < 0.8), tokenizer.mask), positions


def mask_for_evaluation(
    tokens: TokenIds, maskable: TokenFlags, tokenizer: Tokenizer, number: int
) -> tuple[TokenIds, TokenFlags]:
    """Return the input with the mask token at the positions to predict, and True there; equal numbers, equal ones."""
    positions = choose_positions(maskable, torch.Generator().manual_seed(EVALUATION_SEED + number))
    assert tokenizer.mask is not None
    return tokens.masked_fill(positions, tokenizer.mask), positions


def choose_positions(maskable: TokenFlags, generator: torch.Generator) -> TokenFlags:
    """Choose 15 % of each row's maskable positions at random, at least one."""
    ranks = torch.rand(maskable.shape, generator=generator).masked_fill(~maskable, 2.0).argsort(-1).argsort(-1)
    counts = (maskable.sum(-1, keepdim=True) * SHARE).round().clamp_min(1)
    return (ranks < counts) & maskable


@lru_cache(maxsize=2)
def list_ordinary_tokens(tokenizer: Tokenizer) -> Int[Tensor, " tokens"]:
    """Return the ids of all tokens that are not special."""
    special = {getattr(tokenizer, role) for role in SPECIAL_ROLES}
    return torch.tensor([token for token in range(tokenizer.vocabulary) if token not in special])


def find_surrounding_tokens(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Return the special tokens that the tokenizer puts around a text: [CLS] and [SEP], <s> and </s>, or none."""
    text = tokenizer.encode("a", special=False)
    with_special = tokenizer.encode("a")
    for start in range(len(with_special) - len(text) + 1):
        if with_special[start : start + len(text)] == text:
            return with_special[:start], with_special[start + len(text) :]
    raise ArgumentError("this tokenizer encodes a text differently when it adds special tokens; use another tokenizer")
