"""The recipe listen: tiny models on a few synthesised words and on recordings, and the parts of the recipe."""

from __future__ import annotations

import ctypes.util
from pathlib import Path
from typing import Any

import pytest
import torch

import jumok
from jumok.data import catalogue
from jumok.data.audio.audio_files import read_audio
from jumok.data.audio.voices import Voice
from jumok.data.datasets.speech_recordings import Recording
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError, DataError
from jumok.models.gpt import GPT, GPTConfig
from jumok.models.speech import Speech
from jumok.recipes import TrainingRequest, get_recipe, preview_training, resume_run, start_run
from jumok.recipes.speech import listen as listen_recipe
from jumok.recipes.speech import synthetic_clips
from jumok.recipes.speech.clips import (
    CLIPS_FILE,
    SPECIAL_TOKENS,
    ClipLabel,
    ClipTexts,
    build_speech_tokens,
    compute_clip_frames,
    load_clips,
    mask_features,
    sample_masks,
    store_clips,
)
from jumok.recipes.speech.synthetic_clips import (
    VOICES,
    WORDS,
    ClipPlan,
    limit_bandwidth,
    plan_random_clips,
    plan_reported_clips,
    render_clip,
    save_clip,
    trim_silence,
)
from jumok.tasks.speech import transcribe
from jumok.tasks.speech.audio_window import compute_features
from jumok.training import IGNORE_INDEX, TrainingTask
from recipe_runs import assert_same_run, load_report
from toys import StopAt, skip_plots

pytest.importorskip("soundfile", reason="audio files need soundfile")
pytest.importorskip("espeakng_loader", reason="espeak-ng is not installed")

pytestmark = pytest.mark.xdist_group("listen")

TINY = {
    "mel_bins": 13, "width": 24, "layers": 1, "decoder_layers": 1, "heads": 2, "decoder_heads": 2, "hidden": 48,
    "decoder_hidden": 48, "dropout": 0.0, "average": 0.0, "source_length": 90, "synthesisers": "espeak",
}  # fmt: skip
SHORT = {"batch": 8, "evaluate_every": 4, "save_every": 2, "log_every": 1, "warmup": 2, "clips": 30, "steps": 8}
SMALL_WORDS = {"en": ("seven", "house", "no"), "ko": ("오", "시작", "하나")}


@pytest.fixture(scope="module", autouse=True)
def few_words() -> Any:
    """Three words for each language, and one held-out voice."""
    with pytest.MonkeyPatch.context() as patch:
        for language, words in SMALL_WORDS.items():
            patch.setitem(WORDS, language, words)
        held_out = {language: VOICES["held-out"][language][:1] for language in SMALL_WORDS}
        patch.setitem(VOICES, "held-out", held_out)
        yield


def create_request(run: Path, recordings: Path | None = None, **changes: Any) -> TrainingRequest:
    fields = {**TINY, **SHORT, **changes}
    if recordings is not None:
        fields = {name: field for name, field in fields.items() if name not in ("clips", "synthesisers")}
    return TrainingRequest("listen", run, None if recordings is None else str(recordings), changes=fields)


def create_task(run: Path, recordings: Path | None = None, **changes: Any) -> TrainingTask:
    run.mkdir()
    return get_recipe("listen").build(create_request(run, recordings, **changes))


@pytest.fixture(scope="module")
def short_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on synthesised words, of a few steps."""
    run = tmp_path_factory.mktemp("listen") / "run"
    with skip_plots():
        start_run(create_request(run))
    return run


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 60 clips of one word each, with a table of transcripts."""
    folder = tmp_path_factory.mktemp("recordings")
    lines = ["file\ttext"]
    for number in range(60):
        text = SMALL_WORDS["en"][number % 3]
        pitch, before = 1 + number % 10 / 100, number % 4 / 50
        plan = ClipPlan(f"clip {number}", "en", text, Voice("espeak", "en-us"), pitch=pitch, before=before, after=0.05)
        save_clip(folder / f"{number}.wav", render_clip(plan, 1.5))
        lines.append(f"{number}.wav\t{text}")
    (folder / "transcripts.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def trained_run(recordings: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on the recordings."""
    run = tmp_path_factory.mktemp("listen") / "run"
    changes = {"steps": 120, "batch": 16, "evaluate_every": 60, "save_every": 60, "language": "ko", "masks": "no"}
    with skip_plots():
        start_run(create_request(run, recordings, source_length=10, learning_rate=5e-3, **changes))
    return run


def test_listen_learns_the_words_of_recordings(trained_run: Path, recordings: Path) -> None:
    report = load_report(trained_run)
    assert report["exact"] == 1.0 and report["word_error_rate"] == 0.0
    assert report["nearest_exact"] == 1.0  # the clips of a word differ only in pitch and position

    loaded = jumok.load(trained_run)
    assert isinstance(loaded.model, Speech)
    assert 20 < loaded.model.config.source_length < 50  # 20 ms each: the longest clip with the silence around it
    assert loaded.speech_tokens is not None and set(loaded.speech_tokens.languages) == {"ko"}
    for number in range(3):
        assert jumok.run(loaded, str(recordings / f"{number}.wav")) == SMALL_WORDS["en"][number]


def test_the_report_has_a_row_for_each_kind_of_clip(short_run: Path) -> None:
    report = load_report(short_run)

    assert [(row["language"], row["clips"]) for row in report["scores"]] == [
        (language, f"3 of {count}, {noise}")
        for language in ("en", "ko")
        for count in ("one word", "three words")
        for noise in ("clean", "noisy")
    ]
    assert all(("nearest" in row) == ("one word" in row["clips"]) for row in report["scores"])
    spoken = {label.text for label in _read_labels(short_run) if label.part == "held-out"}
    assert {row["spoken"] for row in report["samples"]} <= spoken


def _read_labels(run: Path) -> tuple[ClipLabel, ...]:
    return load_clips(run / CLIPS_FILE).labels


def test_a_run_hears_its_languages(short_run: Path) -> None:
    loaded = jumok.load(short_run)
    assert loaded.speech_tokens is not None and set(loaded.speech_tokens.languages) == {"en", "ko"}

    transcript = transcribe(loaded, read_audio(short_run / load_report(short_run)["try"]))

    assert transcript.language in ("en", "ko")


def test_clips_are_stored_as_a_model_reads_them(short_run: Path, tmp_path: Path) -> None:
    model = jumok.load(short_run).model
    assert isinstance(model, Speech)
    samples = render_clip(ClipPlan("clip", "ko", "하나", Voice("espeak", "ko"), noise_ratio=20.0), 1.8)
    frames = compute_clip_frames(samples, model.config.frame_count, model.config.mel_bins)
    stored = store_clips(tmp_path / "clips.safetensors", [(frames, ClipLabel("training", "하나"))])

    assert len(frames) < model.config.frame_count
    features = stored.build_features([0], model.config.frame_count)[0]
    torch.testing.assert_close(features, compute_features(samples, model), atol=2e-3, rtol=0)  # float16


@pytest.mark.parametrize("start", ["new", "own"])
def test_a_resumed_run_is_identical(tmp_path: Path, recordings: Path, start: str) -> None:
    folder = None if start == "new" else recordings
    with skip_plots():
        assert start_run(create_request(tmp_path / "uninterrupted", folder)).progress.finished
        outcome = start_run(create_request(tmp_path / "resumed", folder), display=StopAt(3))
        assert outcome.progress.step == 3
        assert resume_run(tmp_path / "resumed").progress.finished

    assert_same_run(tmp_path / "resumed", tmp_path / "uninterrupted")


def test_parts_of_a_batch_make_the_whole_batch(tmp_path: Path) -> None:
    task = create_task(tmp_path / "run")
    batch = task.batches(3, 0, 1)
    halves = [task.batches(3, part, 2) for part in range(2)]

    assert torch.equal(batch.inputs["source"], torch.cat([half.inputs["source"] for half in halves]))
    assert batch.count == sum(half.count for half in halves)
    again = create_task(tmp_path / "again")
    assert torch.equal(batch.inputs["source"], again.batches(3, 0, 1).inputs["source"])
    assert task.data == again.data
    other = create_task(tmp_path / "other", seed=2)
    assert task.data["fingerprint"] != other.data["fingerprint"]


def test_voices_of_the_report_are_never_heard_in_training() -> None:
    used = {
        part: {plan.voice for plan in plan_random_clips(part, 300, 1, VOICES)} for part in ("training", "validation")
    }
    used["held-out"] = {plan.voice for plan in plan_reported_clips("held-out", 1, VOICES)}

    variants = {part: {(voice.synthesiser, voice.name.partition("+")[2] or voice.name) for voice in voices}
                for part, voices in used.items()}  # fmt: skip
    assert len(used["training"]) > 20 and len(used["validation"]) > 2 and used["held-out"]
    assert not variants["training"] & (variants["validation"] | variants["held-out"])
    assert not variants["validation"] & variants["held-out"]


def test_noise_has_the_planned_power() -> None:
    plan = ClipPlan("clip", "en", "seven", Voice("espeak", "en-us"), peak=0.3, before=0.1, after=0.05)
    clean = render_clip(plan, 2.0)
    speech = clean[1600 : len(clean) - 800]
    for ratio, colour in ((10.0, 1.0), (0.0, 0.0)):
        noisy = ClipPlan("clip", "en", "seven", plan.voice, peak=0.3, before=0.1, after=0.05, noise_ratio=ratio,
                         noise_colour=colour)  # fmt: skip
        noise = render_clip(noisy, 2.0) - clean
        measured = 10 * torch.log10(speech.square().mean() / noise.square().mean())
        assert float(measured) == pytest.approx(ratio, abs=0.2)
    assert float(clean.abs().max()) == pytest.approx(0.3, rel=1e-4)
    assert float(clean[:1500].abs().max()) == 0
    silent = render_clip(ClipPlan("noise", "ko", "", plan.voice, noise_ratio=20.0), 2.0)
    assert 0 < float(silent.square().mean().sqrt()) < 0.02


def test_bandwidth_removes_high_frequencies() -> None:
    time = torch.arange(3200) / 16_000
    low, high = torch.sin(2 * torch.pi * 1000 * time), torch.sin(2 * torch.pi * 5000 * time)

    torch.testing.assert_close(limit_bandwidth(low + high, 4000.0), low, atol=1e-3, rtol=0)
    assert torch.equal(limit_bandwidth(low + high, 8000.0), low + high)
    plan = ClipPlan("clip", "en", "six", Voice("espeak", "en-us"), noise_ratio=5.0, noise_colour=0.0, bandwidth=3500.0)
    power = torch.fft.rfft(render_clip(plan, 2.0)).abs().square()
    frequencies = torch.linspace(0, 8000, len(power))
    assert float(power[frequencies > 3600].sum() / power.sum()) < 1e-6


def test_silence_is_trimmed() -> None:
    sound = torch.cat([torch.zeros(4000), torch.ones(1600), torch.zeros(8000)])

    assert 1600 <= len(trim_silence(sound)) <= 1600 + 3 * 160
    assert len(trim_silence(torch.zeros(500))) == 500


def test_a_clip_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="increase source_length"):
        create_task(tmp_path / "run", source_length=12)


def test_masks_hide_a_bounded_part() -> None:
    features = torch.randn(5, 40, 200)
    masked = mask_features(features, sample_masks(5, seed=1, step=7))

    changed = masked != features
    bands, moments = changed.all(2), changed.all(1)
    assert (changed == bands[:, :, None] | moments[:, None, :]).all()  # whole bands and whole moments
    assert changed.any((1, 2)).all() and (bands.sum(1) <= 7).all() and (moments.sum(1) <= 9).all()
    means = features.mean((1, 2))[:, None, None].expand_as(features)
    assert torch.equal(masked[changed], means[changed])
    assert not torch.equal(sample_masks(5, 1, 7), sample_masks(5, 1, 8))


def test_only_the_end_of_a_clip_without_speech_is_predicted() -> None:
    tokenizer = Tokenizer.train(["seven 하나"] * 3, 300, SPECIAL_TOKENS)
    tokenizer = tokenizer.with_special_tokens(["<|en|>", "<|ko|>"], SPECIAL_TOKENS)
    texts = ClipTexts(tokenizer, build_speech_tokens(tokenizer, ("en", "ko")))
    spoken, silent = (texts.encode(ClipLabel("training", text, "ko")) for text in ("하나", ""))
    batch = texts.create_batch(torch.zeros(2, 5, 6), [spoken, silent])

    korean = texts.speech_tokens.languages["ko"]
    assert spoken[:2] == silent[:2] == [tokenizer.begin, korean] and spoken[-1] == tokenizer.end
    assert batch.targets[0].tolist() == spoken[1:]
    assert batch.targets[1].tolist()[:2] == [IGNORE_INDEX, tokenizer.end]
    assert set(batch.targets[1].tolist()[2:]) <= {IGNORE_INDEX}
    assert batch.count == len(spoken)


def test_a_dry_run_counts_clips(recordings: Path) -> None:
    sizes = {name: size for name, size in TINY.items() if name != "synthesisers"}
    preview = preview_training("listen", data=recordings, **sizes)

    assert list(preview["counts"]) == ["training clips", "validation clips", "held-out clips"]
    assert sum(preview["counts"].values()) == 60 and min(preview["counts"].values()) > 0
    assert set(preview["examples"][0]) == {"transcript"}


def test_recordings_that_cannot_be_used_are_named(recordings: Path, tmp_path: Path) -> None:
    folder = tmp_path / "recordings"
    folder.mkdir()
    for file in recordings.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    table = folder / "transcripts.tsv"
    lines = table.read_text()
    save_clip(folder / "long.wav", torch.zeros(31 * 16_000))
    (folder / "broken.wav").write_bytes(b"RIFF")

    for row, message in (
        ("missing.wav\tno", "there is no recording 'missing.wav'"),
        ("../x.wav\tno", "outside the folder"),
        ("notes.txt\tno", "'notes.txt' is not a recording"),
        ("long.wav\tno", "31.00 s long; clips of 0.025 to 30 s"),
        ("broken.wav\tno", "broken.wav"),
    ):
        table.write_text(f"{lines}{row}\n")
        with pytest.raises(DataError, match=message):
            create_task(tmp_path / f"run {row[:5].strip('./')}", folder)
    table.unlink()
    with pytest.raises(DataError, match=r"add a table transcripts\.tsv"):
        create_task(tmp_path / "none", folder)


def test_listen_starts_from_a_speech_model_only(short_run: Path, recordings: Path, tmp_path: Path) -> None:
    changes = {name: field for name, field in SHORT.items() if name != "clips"}
    request = TrainingRequest("listen", tmp_path, str(recordings), str(short_run), changes)
    with pytest.raises(ArgumentError, match="set language to that of your clips: en, ko"):
        get_recipe("listen").build(request)
    request.changes = {**changes, "language": "en"}
    task = get_recipe("listen").build(request)
    started = jumok.load(short_run).model.state_dict()
    assert all(torch.equal(tensor, started[name]) for name, tensor in task.model.state_dict().items())

    gpt = GPT(GPTConfig(vocabulary=8, length=8, width=8, layers=1, heads=1, hidden=8))
    jumok.save(gpt, tmp_path / "gpt")
    with pytest.raises(ArgumentError, match="only from a speech model"):
        get_recipe("listen").build(TrainingRequest("listen", tmp_path, start=str(tmp_path / "gpt")))


def test_data_of_the_catalogue_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="cannot read mnist"):
        get_recipe("listen").build(TrainingRequest("listen", tmp_path, "mnist"))


def test_damaged_clips_are_named(tmp_path: Path) -> None:
    create_task(tmp_path / "run")
    file = tmp_path / "run" / "clips.safetensors"
    file.write_bytes(file.read_bytes()[:-100])

    with pytest.raises(DataError, match=r"clips\.safetensors is damaged"):
        get_recipe("listen").build(create_request(tmp_path / "run"))


def test_recordings_of_known_words_are_scored(
    trained_run: Path, recordings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = jumok.load(trained_run)
    assert loaded.speech_tokens is not None
    texts = ClipTexts(loaded.require_tokenizer(), loaded.speech_tokens, "ko")
    spoken = ["Seven.", "House", "no", "unknown", "house"]  # the last one is recorded as "no"
    listed = [
        Recording(recordings / f"{number}.wav", text, "en")
        for number, text in zip((0, 1, 2, 0, 2), spoken, strict=True)
    ]
    monkeypatch.setattr(catalogue, "locate_entry", lambda name: recordings if name == "asterisk-sounds" else None)
    monkeypatch.setattr(listen_recipe, "list_recordings", lambda name: listed)
    report = listen_recipe.score_real_recordings(loaded.model, texts)

    assert report["real_recordings_exact"] == {"asterisk-sounds": 0.75}
    assert [(row["spoken"], row["written"]) for row in report["real_recordings"]] == [
        ("seven", "seven"), ("house", "house"), ("no", "no"), ("house", "no"),
    ]  # fmt: skip
    monkeypatch.setattr(catalogue, "locate_entry", lambda name: None)
    assert listen_recipe.score_real_recordings(loaded.model, texts) == {}


@pytest.mark.skipif(ctypes.util.find_library("flite") is None, reason="flite is not installed")
def test_flite_speaks_english_with_both_synthesisers(tmp_path: Path) -> None:
    voices = {
        plan.voice.synthesiser for plan in plan_random_clips("training", 60, 1, synthetic_clips.select_voices("both"))
    }
    only = {
        plan.voice.synthesiser for plan in plan_random_clips("training", 60, 1, synthetic_clips.select_voices("espeak"))
    }

    assert voices == {"espeak", "flite"} and only == {"espeak"}
    create_task(tmp_path / "run", synthesisers="both", clips=8)
