"""Compare the family speech with transformers' Whisper: logits, spectrograms, files and single decoding steps."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy
import pytest
import torch
from small_whisper import SIZES, build_whisper, save_whisper
from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration

import jumok
from catalogue_cache import download_or_skip
from jumok.attention import Cache
from jumok.checkpoint.openai_whisper import read_openai_model
from jumok.data.audio.log_mel import compute_log_mel
from jumok.errors import ArgumentError, CheckpointError, ShapeError
from jumok.models import Speech, SpeechConfig
from jumok.models.speech import compute_sinusoids
from parity import assert_parity, check_round_trip

SMALL = SpeechConfig(
    mel_bins=7, source_length=11, target_length=13, vocabulary=17, width=12, layers=2, decoder_layers=1, heads=3,
    decoder_heads=2, hidden=19, decoder_hidden=23, start=1, end=2, pad=0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("languages", "changes"),
    [
        (("en", "ko"), {}),
        ((), {}),
        ((), {"activation_function": "relu"}),
        (("en",), {"tie_word_embeddings": False, "encoder_layers": 1, "decoder_layers": 1}),
    ],
)
def test_logits_equal_transformers(languages: tuple[str, ...], changes: dict[str, object], tmp_path: Path) -> None:
    features = torch.randn(2, SIZES["num_mel_bins"], 2 * SIZES["max_source_positions"])
    target = torch.randint(0, 90, (2, 11))

    def check(ours: Speech, theirs: WhisperForConditionalGeneration) -> None:
        assert_parity(ours(features, target).logits, theirs(features, decoder_input_ids=target).logits)

    model = check_round_trip(build_whisper(languages, **changes), tmp_path, check)
    assert isinstance(model, Speech)


@pytest.mark.parametrize("mel_bins", [80, 128])
def test_spectrogram_equals_transformers(mel_bins: int) -> None:
    generator = torch.Generator().manual_seed(2)
    samples = torch.randn(16_000 * 70 + 77, generator=generator) * torch.linspace(0, 0.3, 16_000 * 70 + 77)
    extractor = WhisperFeatureExtractor(feature_size=mel_bins)
    settings = {"sampling_rate": 16_000, "return_tensors": "np", "padding": "longest", "truncation": False}
    expected = torch.from_numpy(extractor(samples.numpy(), **settings)["input_features"][0])
    actual = compute_log_mel(samples, mel_bins)
    assert actual.shape == expected.shape == (mel_bins, 7000)
    assert float((actual - expected).abs().max()) <= 1e-4


def test_mel_filters_equal_those_of_openai() -> None:
    """The extractor of transformers has the filters that OpenAI published; compare the matrices themselves."""
    from jumok.data.audio.log_mel import build_mel_filters

    for mel_bins in (80, 128):
        published = WhisperFeatureExtractor(feature_size=mel_bins).mel_filters.T
        assert numpy.abs(build_mel_filters(mel_bins).numpy() - published).max() <= 1e-7


def test_spectrogram_of_short_audio_is_refused() -> None:
    with pytest.raises(ArgumentError, match="the audio has 200 samples; at least 201 are needed"):
        compute_log_mel(torch.zeros(200))
    assert compute_log_mel(torch.zeros(201)).shape == (80, 1)


def test_cached_steps_equal_one_pass() -> None:
    model = Speech(SMALL).eval()
    features, target = torch.randn(3, 7, 22), torch.randint(0, 17, (3, 8))
    with torch.no_grad():
        expected = model(features, target).logits
        encoded, cache = model.encode(features), Cache()
        steps = [model.decode(target[:, i : i + 1], encoded, cache=cache).logits for i in range(8)]
    assert float((torch.cat(steps, 1) - expected).abs().max()) < 1e-5


def test_hidden_audio_does_not_change_the_text() -> None:
    """A position that the mask hides is not read by any other position of the encoder, nor by the decoder."""
    model = Speech(SMALL).eval()
    features, target = torch.randn(1, 7, 22), torch.randint(0, 17, (1, 5))
    changed = features.clone()
    changed[:, :, 12] += 5.0  # frame 12 reaches positions 5 to 7 through the two convolutions
    visible = torch.ones(1, 11, dtype=torch.bool)
    visible[:, 5:8] = False
    with torch.no_grad():
        hidden = [model(audio, target, source_token_mask=visible).logits for audio in (features, changed)]
        visible_to_all = [model(audio, target).logits for audio in (features, changed)]
    assert torch.equal(*hidden)
    assert float((visible_to_all[0] - visible_to_all[1]).abs().max()) > 1e-4


def test_weights_have_the_documented_shapes() -> None:
    output = Speech(SMALL).eval()(torch.randn(2, 7, 22), torch.randint(0, 17, (2, 5)), weights=True)
    assert [weights.shape for weights in output.weights["encoder"]] == [(2, 3, 11, 11)] * 2
    assert [weights.shape for weights in output.weights["decoder"]] == [(2, 2, 5, 5)]
    assert [weights.shape for weights in output.weights["cross"]] == [(2, 2, 5, 11)]


def test_sinusoids_equal_transformers() -> None:
    model = WhisperForConditionalGeneration(build_whisper().config)
    expected = model.model.encoder.embed_positions.weight
    assert float((compute_sinusoids(35, 30) - expected).abs().max()) < 1e-5
    assert compute_sinusoids(3, 5).shape == (3, 5)


@pytest.mark.parametrize("shape", [(2, 8, 22), (2, 7, 23), (2, 7, 0)])
def test_wrong_spectrograms_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match=re.escape("this model reads spectrograms [batch, 7, up to 22]")):
        Speech(SMALL)(torch.zeros(shape), torch.zeros(2, 3, dtype=torch.long))


def test_positions_of_the_audio_are_not_trained() -> None:
    model = Speech(SMALL)
    model(torch.randn(1, 7, 22), torch.tensor([[1, 3]])).logits.sum().backward()
    assert model.source_positions.grad is None
    assert all(parameter.grad is not None for parameter in model.parameters() if parameter.requires_grad)


def test_other_whisper_classes_are_refused(tmp_path: Path) -> None:
    save_whisper(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["architectures"] = ["WhisperForAudioClassification"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="of Whisper, only WhisperForConditionalGeneration and WhisperModel"):
        jumok.load(tmp_path)


def test_converted_whisper_equals_transformers(tmp_path: Path) -> None:
    """OpenAI's file, converted by us and saved for transformers, gives the same logits there."""
    loaded = read_openai_model(download_or_skip("whisper-tiny-en"))
    assert loaded.model.parameter_count == 37_760_256
    stored = torch.load(
        download_or_skip("whisper-tiny-en") / "tiny.en.pt", weights_only=True, mmap=True, map_location="cpu"
    )["model_state_dict"]
    assert torch.equal(loaded.model.source_positions, stored["encoder.positional_embedding"])  # the file's own

    loaded.model.float()
    jumok.save(loaded, tmp_path / "theirs", format="huggingface")
    theirs = WhisperForConditionalGeneration.from_pretrained(tmp_path / "theirs").eval()
    features, target = torch.randn(1, 80, 3000), torch.tensor([[50257, 50362, 383, 2068, 7586]])
    with torch.no_grad():
        assert_parity(loaded.model(features, target).logits, theirs(features, decoder_input_ids=target).logits)
