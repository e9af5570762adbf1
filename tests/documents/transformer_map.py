"""Draw one picture of the whole Transformer for each page of the course, in which the parts of the page are marked.

    python tests/documents/transformer_map.py

writes docs/pictures/map/PAGE-LANGUAGE.svg.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from xml.sax.saxutils import escape

from page_blocks import ROOT

PICTURES = ROOT / "docs" / "pictures" / "map"
LANGUAGES = ("en", "ko")
INK, LINE, PLAIN, MARK, MARK_LINE = "#1f2933", "#8a97a3", "#f4f6f8", "#ffe08a", "#b7791f"
WIDTH, HEIGHT = 720, 432
BOX_WIDTH, BOX_HEIGHT = 190, 30

# name: (column, row from the bottom, text in English, text in Korean)
BOXES = {
    "source": (0, 0, "source: 나는 학교에 간다", "원문: 나는 학교에 간다"),
    "source embedding": (0, 1, "embedding + positions", "임베딩 + 위치"),
    "encoder attention": (0, 2.4, "self-attention", "셀프 어텐션"),
    "encoder norm": (0, 3.4, "add, norm", "잔차, 정규화"),
    "encoder feed-forward": (0, 4.4, "feed-forward", "피드포워드"),
    "encoder second norm": (0, 5.4, "add, norm", "잔차, 정규화"),
    "target": (1, 0, "target so far: I go to", "지금까지 쓴 것: I go to"),
    "target embedding": (1, 1, "embedding + positions", "임베딩 + 위치"),
    "decoder attention": (1, 2.4, "causal self-attention", "인과 셀프 어텐션"),
    "decoder norm": (1, 3.4, "add, norm", "잔차, 정규화"),
    "cross-attention": (1, 4.4, "cross-attention", "교차 어텐션"),
    "cross norm": (1, 5.4, "add, norm", "잔차, 정규화"),
    "decoder feed-forward": (1, 6.4, "feed-forward", "피드포워드"),
    "decoder second norm": (1, 7.4, "add, norm", "잔차, 정규화"),
    "output": (1, 8.8, "linear layer, softmax", "선형층, 소프트맥스"),
    "scores": (2, 2.4, "scores  Q Kᵀ / √d", "점수  Q Kᵀ / √d"),
    "mask": (2, 3.4, "mask", "마스크"),
    "weights": (2, 4.4, "softmax: weights", "소프트맥스: 가중치"),
    "mixture": (2, 5.4, "weights × V", "가중치 × V"),
    "heads": (2, 6.4, "join and mix the heads", "헤드 잇고 섞기"),
}
ENCODER = [name for name in BOXES if name.startswith("encoder")]
NORMS = ("decoder norm", "decoder second norm")
DECODER = ["decoder attention", "decoder norm", "cross-attention", "cross norm", "decoder feed-forward", NORMS[1]]
ATTENTION = ["scores", "mask", "weights", "mixture", "heads"]
MARKED = {
    "d0": [*BOXES],
    "d1": ["encoder attention", "scores", "weights", "mixture", "heads"],
    "d2": [*ENCODER, *DECODER, "source embedding", "target embedding", *ATTENTION],
    "d3": ["decoder attention", *ATTENTION],
    "d4": ["weights", "mixture", "heads"],
    "gpt-1": ["target", "target embedding", "output"],
    "gpt-2": ["mixture"],
    "gpt-3": ["decoder attention", "target embedding", "scores", "mask", "weights", "mixture"],
    "gpt-4": ["decoder attention", "heads"],
    "gpt-5": [*NORMS],
    "gpt-6": [*NORMS],
    "gpt-7": ["decoder feed-forward", NORMS[1]],
    "gpt-8": ["target", "decoder attention", "output"],
}
TITLES = {
    "encoder": ("encoder, × N", "인코더, × N"),
    "decoder": ("decoder, × N", "디코더, × N"),
    "attention": ("inside an attention", "어텐션의 안쪽"),
}


def render(page: str, language: str) -> str:
    """Return the picture of a page as SVG."""
    number = LANGUAGES.index(language)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#ffffff"/>',
        '<defs><marker id="tip" markerWidth="7" markerHeight="7" refX="6" refY="3.5" orient="auto">'
        f'<path d="M0,0 L7,3.5 L0,7 z" fill="{LINE}"/></marker></defs>',
    ]
    for group, first, last, column in (("encoder", 2.4, 5.4, 0), ("decoder", 2.4, 7.4, 1), ("attention", 2.4, 6.4, 2)):
        left, bottom = _locate(column, first)
        top = _locate(column, last)[1]
        height = bottom + BOX_HEIGHT - top + 20
        dash = ' stroke-dasharray="5 4"' if group == "attention" else ""
        parts.append(
            f'<rect x="{left - 12}" y="{top - 10}" width="{BOX_WIDTH + 24}" height="{height}" rx="10" fill="none" '
            f'stroke="{LINE}"{dash}/>'
        )
        parts.append(_write(left + BOX_WIDTH, top - 15, TITLES[group][number], INK, anchor="end"))
    chains = (["source", "source embedding", *ENCODER], ["target", "target embedding", *DECODER, "output"], ATTENTION)
    for chain in chains:
        for lower, upper in pairwise(chain):
            (left, bottom), (_, above) = _locate(*BOXES[lower][:2]), _locate(*BOXES[upper][:2])
            parts.append(_draw_arrow(left + BOX_WIDTH / 2, bottom, left + BOX_WIDTH / 2, above + BOX_HEIGHT))
    left, top = _locate(*BOXES["encoder second norm"][:2])
    right, cross = _locate(*BOXES["cross-attention"][:2])
    middle = (left + BOX_WIDTH + right) / 2
    parts.append(
        f'<path d="M{left + BOX_WIDTH},{top + 15} H{middle} V{cross + 15} H{right}" fill="none" stroke="{LINE}" '
        'stroke-width="1.5" marker-end="url(#tip)"/>'
    )
    for name, (column, row, *texts) in BOXES.items():
        x, y = _locate(column, row)
        is_marked = name in MARKED[page]
        fill, stroke = (MARK, MARK_LINE) if is_marked else (PLAIN, LINE)
        parts.append(
            f'<rect x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6" fill="{fill}" stroke="{stroke}" '
            f'stroke-width="{2 if is_marked else 1}"/>'
        )
        parts.append(_write(x + BOX_WIDTH / 2, y + 20, texts[number], INK))
    return "\n".join([*parts, "</svg>\n"])


def _locate(column: float, row: float) -> tuple[float, float]:
    return 24 + column * 240, HEIGHT - 46 - row * 41


def _write(x: float, y: float, text: str, colour: str, anchor: str = "middle") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'


def _draw_arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    return (
        f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2 + 1}" stroke="{LINE}" stroke-width="1.5" marker-end="url(#tip)"/>'
    )


def main() -> None:
    """Write the pictures of all pages."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    for page in MARKED:
        for language in LANGUAGES:
            Path(PICTURES / f"{page}-{language}.svg").write_text(render(page, language), encoding="utf-8")


if __name__ == "__main__":
    main()
