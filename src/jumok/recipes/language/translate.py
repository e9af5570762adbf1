"""Recipe ``translate``: train an encoder-decoder on pairs of texts.

The model is a Transformer (Vaswani et al. 2017) or LSTMs with Bahdanau's attention (2015). Both use one vocabulary for
both languages, learned from the training pairs, and are scored on held-out pairs that were not used to choose the
checkpoint.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from jumok.checkpoint import Loaded
from jumok.data.batches.batch_order import LengthGroups, ShuffledEpochs
from jumok.data.token_shards import fingerprint_tokenizer
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.models import Config, Model
from jumok.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
from jumok.models.t5 import T5
from jumok.models.transformer import Transformer, TransformerConfig
from jumok.recipes.recipe import Defaults, Recipe, create_model
from jumok.recipes.request import TrainingRequest
from jumok.recipes.shared.run_tokenizer import save_tokenizer
from jumok.recipes.shared.seq2seq import create_seq2seq_batch, generate_by_length, pad_sources
from jumok.recipes.shared.stored_data import FACTS_FILE
from jumok.recipes.shared.text_scores import (
    choose_bleu_tokenization,
    compute_exact_match,
    contains_hangul,
    describe_scores,
    require_sacrebleu,
    score_translations,
)
from jumok.training import IGNORE_INDEX, Batch, Loss, Settings, TrainingTask, compute_mean_loss, select_part

from .parallel_text import (
    ParallelText,
    TextPair,
    TokenPair,
    TranslateOptions,
    load_or_learn_tokenizer,
    prepare_pairs,
)

Translator = Transformer | RNNSeq2Seq | T5

VALIDATION_PAIRS = 300  # held-out pairs that choose the best checkpoint; the report uses the other ones
REPORTED_SAMPLES = 12
BEAMS = 4
EVALUATION_BATCH = 64

# Sines before cosines and a bias on the logits: the same as Hugging Face's Pegasus (Marian with order=post), which can
# load the model. Pre-norm learns faster. Both models have about the same number of parameters.
CONFIGS: dict[str, Config] = {
    "transformer": TransformerConfig(
        length=256, width=256, layers=3, heads=4, hidden=1024, order="pre", layout="halves", output_bias=True,
        dropout=0.1,
    ),
    "lstm": RNNSeq2SeqConfig(embedding_width=320, width=320, tied=True, dropout=0.2),
}  # fmt: skip
# about half an hour on two cores for either model; bench/results lists the settings that were compared
SETTINGS: dict[str, dict[str, Any]] = {
    "transformer": {
        "steps": 3000, "batch": 64, "optimizer": "muon", "learning_rate": 4e-3, "matrix_rate": 1e-2, "final_rate": 0.02,
        "warmup": 100, "average": 0.998,
    },
    "lstm": {
        "steps": 2000, "batch": 128, "learning_rate": 2e-3, "final_rate": 0.02, "warmup": 200, "average": 0.998,
    },
    "loaded": {"steps": 1000, "batch": 128, "learning_rate": 2e-4, "final_rate": 0.0, "warmup": 200},
}  # fmt: skip
COMMON_SETTINGS = {"beta2": 0.98, "decay": 0.01, "clip": 1.0, "evaluate_every": 500, "save_every": 500}


def get_translate_defaults(request: TrainingRequest, options: TranslateOptions, loaded: Loaded | None) -> Defaults:
    """Return the default config and settings of the chosen architecture."""
    return Defaults(
        SETTINGS[options.model] | COMMON_SETTINGS,
        (CONFIGS[options.model],),
        from_data=("start", "end", "pad"),
        start_settings=SETTINGS["loaded"] | COMMON_SETTINGS,
    )


def create_translate_task(
    request: TrainingRequest, options: TranslateOptions, settings: Settings, loaded: Loaded | None
) -> TrainingTask:
    """Train a model to translate: English and Korean texts of user interfaces, or the user's own pairs."""
    require_sacrebleu()
    model: Model
    if loaded is None:
        tokenizer = load_or_learn_tokenizer(request, options)
        config = request.change(CONFIGS[options.model]).replace(
            vocabulary=tokenizer.vocabulary, start=tokenizer.begin, end=tokenizer.end, pad=tokenizer.pad
        )
        model = create_model(RNNSeq2Seq if options.model == "lstm" else Transformer, config, settings.seed)
    else:
        model, tokenizer = loaded.model, loaded.require_tokenizer()
        save_tokenizer(request, tokenizer)
    assert isinstance(model, Translator)
    start, end, pad = model.config.start, model.config.end, model.config.pad
    parallel_text = prepare_pairs(request, options, tokenizer, end, model.context_length)
    order = LengthGroups(ShuffledEpochs(parallel_text.count, settings.seed), parallel_text.measure_length)
    validation, reported = _split_into_validation_and_reported(parallel_text.held_out)
    tokenization = choose_bleu_tokenization(target for _, target in parallel_text.held_out)

    def create_batch(pairs: list[TokenPair]) -> Batch:
        sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
        return create_seq2seq_batch(pad_sources(sources, pad), targets, start, pad)

    def batches(step: int, part: int, parts: int) -> Batch:
        numbers = select_part(order.select_indices(step, settings.batch), part, parts)
        return create_batch([parallel_text.read_pair(number) for number in numbers])

    def evaluate(model: Model) -> dict[str, float]:
        pairs = [parallel_text.encode(source, target) for source, target in validation]
        pairs.sort(key=lambda pair: len(pair[0]) + len(pair[1]))
        starts = range(0, len(pairs), EVALUATION_BATCH)
        loss = compute_mean_loss(model, (create_batch(pairs[first : first + EVALUATION_BATCH]) for first in starts))
        translations = translate_texts(model, tokenizer, [source for source, _ in validation])
        references = [target for _, target in validation]
        return {"loss": loss, **score_translations(translations, references, tokenization)}

    def build_report(model: Model, folder: Path) -> dict[str, Any]:
        return _build_report(model, parallel_text, reported, tokenization)

    data = {
        "pairs": parallel_text.count, "held_out": len(parallel_text.held_out), "direction": parallel_text.direction,
        "vocabulary": tokenizer.vocabulary, "tokenizer": fingerprint_tokenizer(tokenizer),
    }  # fmt: skip
    return TrainingTask(
        Loaded(model, tokenizer), settings, batches, create_smoothed_loss(options.smoothing / 100), evaluate, "chrf",
        "higher", data=data, build_report=build_report, summary=parallel_text.summarize(),
        examples=parallel_text.count,
    )  # fmt: skip


def _split_into_validation_and_reported(pairs: list[TextPair]) -> tuple[list[TextPair], list[TextPair]]:
    """Return the pairs for choosing the best checkpoint, and the pairs for the report."""
    count = VALIDATION_PAIRS if len(pairs) >= 2 * VALIDATION_PAIRS else (len(pairs) + 1) // 2
    return pairs[:count], pairs[count:] or pairs


def _build_report(
    model: Model, parallel_text: ParallelText, pairs: list[TextPair], tokenization: str
) -> dict[str, Any]:
    sources, references = [source for source, _ in pairs], [target for _, target in pairs]
    translations = translate_texts(model, parallel_text.tokenizer, sources)
    beam_translations = translate_texts(model, parallel_text.tokenizer, sources, BEAMS)
    scores = score_translations(translations, references, tokenization)
    beam_scores = score_translations(beam_translations, references, tokenization)
    copy_scores = score_translations(sources, references, tokenization)
    note = ". BLEU counts characters, because word segmentation needs a dictionary" if tokenization == "char" else ""
    samples = range(0, len(pairs), max(1, len(pairs) // REPORTED_SAMPLES))[:REPORTED_SAMPLES]
    return {
        "direction": parallel_text.direction,
        "model": model.family,
        "try": sources[0],
        **scores,
        **{f"{name}_beam_{BEAMS}": score for name, score in beam_scores.items()},
        **{f"{name}_copied": score for name, score in copy_scores.items()},
        "what": f"{len(pairs):,} held-out pairs, translated greedily and with {BEAMS} beams; copied: the source itself "
        f"scored as its translation{note}",
        "scores": describe_scores(tokenization),
        **parallel_text.facts,
        **_score_directions(parallel_text.direction, sources, translations, references),
        "translations": [
            {"source": sources[index], "reference": references[index], "translation": translations[index]}
            for index in samples
        ],
    }


def _score_directions(
    direction: str, sources: list[str], translations: list[str], references: list[str]
) -> dict[str, list[dict[str, Any]]]:
    """Return the scores of each direction, greedily decoded, if the model was trained in both."""
    if direction != "both":
        return {}
    rows = []
    for name, is_korean in (("ko-en", True), ("en-ko", False)):
        chosen = [index for index, source in enumerate(sources) if contains_hangul(source) == is_korean]
        if not chosen:
            continue
        texts, expected = [translations[index] for index in chosen], [references[index] for index in chosen]
        scores = score_translations(texts, expected, choose_bleu_tokenization(expected))
        exact = round(compute_exact_match(texts, expected), 4)
        rows.append({"direction": name, "pairs": len(chosen), "exact_match": exact, **scores})
    return {"directions": rows}


def create_smoothed_loss(share: float) -> Loss:
    """Return a function that computes the cross-entropy with label smoothing, summed over the targets."""

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        logits = model(**batch.inputs).logits
        return functional.cross_entropy(
            logits.flatten(0, -2),
            batch.targets.flatten(),
            ignore_index=IGNORE_INDEX,
            reduction="sum",
            label_smoothing=share,
        )

    return loss


def translate_texts(
    model: Model, tokenizer: Tokenizer, sources: list[str], beams: int = 1, limit: int = 128
) -> list[str]:
    """Translate every text, in batches of similar length."""
    context_length = model.context_length
    ends = set(tokenizer.ends)
    if model.end_token is not None:
        ends.add(model.end_token)

    def limit_tokens(longest_source: int) -> int:
        return min(limit, 3 * longest_source + 16, context_length or limit)

    prompts = [tokenizer.encode(source)[:context_length] for source in sources]
    answers = generate_by_length(model, prompts, limit=limit_tokens, ends=ends, beams=beams, size=EVALUATION_BATCH)
    return [tokenizer.decode(answer, special=False).strip() for answer in answers]


translate = Recipe(
    create_translate_task, get_translate_defaults, (Transformer, RNNSeq2Seq, T5), TranslateOptions, stored=FACTS_FILE
)
