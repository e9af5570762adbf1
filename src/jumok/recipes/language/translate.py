"""translate: pairs of texts, and a model that learns to write the second when it reads the first: the encoder-decoder
of 2017, or the LSTMs with Bahdanau's attention that it replaced. Both have one vocabulary for both languages, learned
on the training pairs; both are judged by pairs that neither was trained on nor chosen by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn import functional

from jumok.checkpoint import Loaded
from jumok.data.batches.batch_order import LengthGroups, ShuffledEpochs, pad_sequences
from jumok.data.token_store import token_shards
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError
from jumok.fields import choice, integer
from jumok.generate import beam_search, generate, greedy
from jumok.models import Config, Model
from jumok.models.rnn_seq2seq import RNNSeq2Seq, RNNSeq2SeqConfig
from jumok.models.t5 import T5
from jumok.models.transformer import Transformer, TransformerConfig
from jumok.recipes.recipe import Defaults, recipe
from jumok.recipes.request import TrainingRequest
from jumok.recipes.shared.exact_match import sacrebleu
from jumok.recipes.shared.translation_scores import choose_bleu_tokenization, describe_scores, score_translations
from jumok.training import IGNORE_INDEX, Batch, Settings, Task, select_part

from .parallel_text import PairOptions, prepared, tokenizer_for

FAMILIES = (Transformer, RNNSeq2Seq, T5)  # whatever takes a source and a target
CHOOSING = 300  # held-out pairs that the best checkpoint is chosen by; the report is about the others
SHOWN = 12
BEAMS = 4
ROWS = 64  # texts at once where nothing is learned

Loss = Callable[[nn.Module, Batch], Tensor]


@dataclass(frozen=True)
class TranslateOptions(PairOptions):
    """Fields of the recipe translate."""

    without_start: ClassVar[tuple[str, ...]] = (*PairOptions.without_start, "model")

    model: str = choice("transformer", ("transformer", "lstm"), "architecture")
    smoothing: int = integer(10, "label smoothing in percent (Szegedy et al. 2016)", 0, 90)


def translate_defaults(request: TrainingRequest) -> Defaults:
    """Return the default config and settings; both architectures have about as many parameters."""
    kind = "loaded" if request.start is not None else request.options(TranslateOptions).model
    settings = {**SETTINGS[kind], "beta2": 0.98, "decay": 0.01, "clip": 1.0, "evaluate_every": 500, "save_every": 500}
    configs = () if kind == "loaded" else (CONFIGS[kind],)
    return Defaults(settings, configs, from_data=("start", "end", "pad"))


# about half an hour on two cores, whichever model; what was tried is in LOG.md
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
CONFIGS: dict[str, Config] = {
    # sines before cosines, a bias on the logits: so transformers' Pegasus has it (with order=post Marian), and can load
    # the model. With norms in front it learns faster.
    "transformer": TransformerConfig(
        length=256, width=256, layers=3, heads=4, hidden=1024, order="pre", layout="halves", output_bias=True,
        dropout=0.1,
    ),
    "lstm": RNNSeq2SeqConfig(embedding_width=320, width=320, tied=True, dropout=0.2),
}  # fmt: skip


@recipe(translate_defaults, TranslateOptions)
def translate(asked: TrainingRequest) -> Task:
    """Learn to translate: English and Korean of user interfaces, or pairs of your own."""
    sacrebleu()  # what is missing is said now, not after the training
    options, defaults = asked.options(TranslateOptions), translate_defaults(asked)
    settings = asked.settings(**defaults.settings)
    loaded = asked.load_start()
    if loaded is None:
        tokenizer = tokenizer_for(asked)
        model = _model(asked, options.model, defaults.configs[0], tokenizer, settings)
    else:
        tokenizer = _checked(asked, loaded)
        model = loaded.model
    config: Any = model.config
    bitext = prepared(asked, tokenizer, config.end, getattr(config, "length", None))
    order = LengthGroups(ShuffledEpochs(bitext.count, settings.seed), bitext.length)
    smoothing = options.smoothing / 100
    choosing, others = bitext.held_out[:CHOOSING], bitext.held_out[CHOOSING:]
    if len(bitext.held_out) < 2 * CHOOSING:
        half = (len(bitext.held_out) + 1) // 2
        choosing, others = bitext.held_out[:half], bitext.held_out[half:] or bitext.held_out
    cut = choose_bleu_tokenization(target for _, target in bitext.held_out)

    def batch_of(pairs: list[tuple[list[int], list[int]]]) -> Batch:
        source, real = pad_sequences([one for one, _ in pairs], config.pad)
        target, _ = pad_sequences([[config.start, *two[:-1]] for _, two in pairs], config.pad)
        targets, _ = pad_sequences([two for _, two in pairs], IGNORE_INDEX)
        # where nothing is padded nothing is masked, which is faster
        inputs = {"source": source, "target": target} | ({} if bool(real.all()) else {"source_token_mask": real})
        return Batch(inputs, targets, int((targets != IGNORE_INDEX).sum()))

    def batches(step: int, part: int, parts: int) -> Batch:
        chosen = select_part(order.batch_indices(step, settings.batch), part, parts)
        return batch_of([bitext.pair(number) for number in chosen])

    def evaluate(model: Model) -> dict[str, float]:
        plain, total, count = smoothed(0.0), 0.0, 0
        encoded = sorted((bitext.encoded(*pair) for pair in choosing), key=lambda pair: len(pair[0]) + len(pair[1]))
        for first in range(0, len(encoded), ROWS):
            batch = batch_of(encoded[first : first + ROWS])
            total += float(plain(model, batch.to(model.device)))
            count += batch.count
        found = translated(model, tokenizer, [source for source, _ in choosing], 1)
        return {"loss": total / count, **score_translations(found, [target for _, target in choosing], cut)}

    def report(model: Model, folder: Any) -> dict[str, Any]:
        sources, references = [source for source, _ in others], [target for _, target in others]
        found = translated(model, tokenizer, sources, 1)
        beam = score_translations(translated(model, tokenizer, sources, BEAMS), references, cut)
        copied = score_translations(sources, references, cut)
        shown = range(0, len(others), max(1, len(others) // SHOWN))[:SHOWN]
        return {
            "direction": bitext.direction,
            "model": model.family,
            "try": sources[0],
            **score_translations(found, references, cut),
            **{f"{name}_beam_{BEAMS}": value for name, value in beam.items()},
            **{f"{name}_copied": value for name, value in copied.items()},
            "what": f"{len(others):,} held-out pairs, translated greedily and with {BEAMS} beams, beside the source "
            "left as it is" + (". BLEU is of characters: its words need a dictionary" if cut == "char" else ""),
            "scores": describe_scores(cut),
            **bitext.told,
            "translations": [
                {"source": sources[one], "reference": references[one], "translation": found[one]} for one in shown
            ],
        }

    data = {
        "pairs": bitext.count, "held_out": len(bitext.held_out), "direction": bitext.direction,
        "vocabulary": tokenizer.vocabulary, "tokenizer": token_shards.fingerprint_tokenizer(tokenizer),
    }  # fmt: skip
    return Task(
        model, settings, batches, smoothed(smoothing), evaluate, "chrf", "higher", tokenizer=tokenizer, data=data,
        report=report,
    )  # fmt: skip


def _model(asked: TrainingRequest, kind: str, default: Config, tokenizer: Tokenizer, settings: Settings) -> Model:
    assert tokenizer.begin is not None and tokenizer.end is not None and tokenizer.pad is not None
    known = {"vocabulary": tokenizer.vocabulary, "start": tokenizer.begin, "end": tokenizer.end, "pad": tokenizer.pad}
    config = asked.config(default).replace(**known)
    return asked.model(Transformer if kind == "transformer" else RNNSeq2Seq, config, settings)


def _checked(asked: TrainingRequest, loaded: Loaded) -> Tokenizer:
    if not isinstance(loaded.model, FAMILIES) or loaded.tokenizer is None:
        names = ", ".join(one.family for one in FAMILIES)
        raise ArgumentError(
            f"the recipe translate goes on with a model that has a tokenizer and is one of {names}; {asked.start} is "
            f"a {loaded.family}" + (" without a tokenizer" if loaded.tokenizer is None else "")
        )
    tokenizer: Tokenizer = loaded.tokenizer
    return tokenizer


def smoothed(share: float) -> Loss:
    """Cross-entropy, summed, with this share of each target spread over all tokens."""

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


def translated(model: Model, tokenizer: Tokenizer, sources: list[str], beams: int, limit: int = 128) -> list[str]:
    """Every text translated, those of similar length together."""
    config: Any = model.config
    longest = getattr(config, "length", None)
    ends = {config.end, *tokenizer.ends}
    ids = [tokenizer.encode(source)[:longest] for source in sources]
    order = sorted(range(len(sources)), key=lambda place: len(ids[place]))
    found = [""] * len(sources)
    for first in range(0, len(order), ROWS):
        places = order[first : first + ROWS]
        room = min(limit, 3 * len(ids[places[-1]]) + 16, longest or limit)
        prompts = [ids[place] for place in places]
        if beams == 1:
            answers = generate(model, prompts, limit=room, sampling=greedy, ends=ends)
        else:
            answers = beam_search(model, prompts, beams=beams, limit=room, ends=ends)
        for place, answer in zip(places, answers, strict=True):
            found[place] = tokenizer.decode([token for token in answer if token not in ends], special=False).strip()
    return found
