"""Draw the spectrogram of audio, its words, and where an attention listens, for ``jumok look``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from jumok.lab.bilingual_text import Text

if TYPE_CHECKING:
    from jumok.lens import Capture
    from jumok.tasks.labelled_input import LabelledInput

    from .listening_report import ListeningReport

HERTZ_TICKS = (500, 1000, 2000, 4000)
MOST_TITLE = 90  # letters of a transcript in the title
MOST_TOKENS = 80  # rows; longer transcripts are drawn by words


def draw_listening(
    paths: list[Path],
    labelled: LabelledInput,
    capture: Capture,
    report: ListeningReport,
    *,
    by_words: bool,
    scale: str,
    language: str,
    model: str,
) -> None:
    """Write pictures of audio: spectrogram, words, and the weights of the rows that write each token.

    Args:
        by_words: Whether a row is a word instead of a token.
        language: "en" or "ko".
        model: The name of the model, for the title.
    """
    from jumok.data.audio.log_mel import FRAMES_PER_SECOND, locate_band
    from jumok.draw import ListeningTexts, TimedText, save_listening_map
    from jumok.errors import ArgumentError
    from jumok.tasks.speech.audio_window import POSITIONS_PER_SECOND
    from jumok.tasks.speech.listening import compute_listening, read_capture_rows

    audio = labelled.audio
    assert audio is not None
    if not report.words:
        raise ArgumentError(
            "there is no speech in this audio, so there are no words to draw; --heat-map draws all heads"
        )
    by_words = by_words or labelled.answer_length > MOST_TOKENS
    weights, labels, spans = report.weights, [word.text for word in report.words], []
    for word in report.words:
        spans += [(audio.begin + word.start, audio.begin + word.end)] * (1 if by_words else len(word.rows))
    if not by_words:
        rows = [row for word in report.words for row in word.rows]
        labels = [labelled.target[row + 1] for row in rows]
        weights = compute_listening(read_capture_rows(capture), [range(row, row + 1) for row in rows], report.heads)

    positions = max(1, round(audio.seconds * POSITIONS_PER_SECOND))
    beyond = float(weights[:, positions:].sum() / len(weights))
    caption = Text(
        f"{report.describe_heads('en')}; a red box is the time of a word",
        f"{report.describe_heads('ko')}. 테두리는 그 단어를 말한 시간입니다",
    ).select(language)
    if beyond >= 0.005:
        caption += Text(
            f"; {beyond:.0%} of the weight lies after the end of the recording",
            f". 가중치의 {beyond:.0%}는 녹음이 끝난 뒤에 있습니다",
        ).select(language)
    features = labelled.inputs[0][0].float().cpu()
    texts = ListeningTexts(
        f"{model}: {labelled.answer}" if len(labelled.answer or "") <= MOST_TITLE else model,
        caption,
        Text("seconds", "초").select(language),
        Text("weight", "가중치").select(language),
        (Text("written word", "쓰는 단어") if by_words else Text("written token", "쓰는 토큰")).select(language),
        Text("frequency", "주파수").select(language),
    )
    for path in paths:
        save_listening_map(
            path,
            features[:, : positions * FRAMES_PER_SECOND // POSITIONS_PER_SECOND].numpy(),
            weights[:, :positions],
            labels,
            [TimedText(word.text, audio.begin + word.start, audio.begin + word.end) for word in report.words],
            seconds=positions / POSITIONS_PER_SECOND,
            begin=audio.begin,
            spans=spans,
            bands=[(locate_band(hertz, features.shape[0]), f"{hertz / 1000:g} kHz") for hertz in HERTZ_TICKS],
            texts=texts,
            scale=scale,
        )
