"""Find Korean bills by their titles: words, pairs of characters, and vectors.

    python bench/retrieval/korean_recall.py                       # words and pairs among all bills: minutes, 2 GB
    python bench/retrieval/korean_recall.py --vectors FILE.npy    # also vectors, among 1,500 bills: five minutes

The texts are the reasons of the 60,546 bills of the catalogue's entry assembly; the questions are the titles that only
one bill has. A title often stands in its text, so two harder sets are reported too: titles that their text does not
contain, and titles of which their text contains at most a third of the words. Vectors of all bills would take hours, so
they are compared on 1,500 bills with such a title, each of which is one of 1,500 answers. FILE.npy keeps the vectors.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from pyarrow import parquet
from term_ranking import TermRanking, find_rank, measure_recall

from jumok.data.catalogue import download_entry
from jumok.retrieval.search.bm25 import split_terms
from jumok.retrieval.search.embedding import embed_passages, load_model
from jumok.retrieval.search.ranking import fuse
from jumok.retrieval.search.search import FUSED_DEPTH
from jumok.retrieval.search.vectors import VectorIndex

SAMPLE = 1500  # bills among which vectors are compared
CHUNK = 250  # vectors that are stored together

# every bill's title ends with one of these: they say nothing about the subject
COMMON_ENDINGS = ("법률안", "법안", "관한", "일부개정법률안", "전부개정법률안", "폐지법률안", "등에", "위한")


def read_bills() -> list[tuple[str, str]]:
    """Return the title and the reason of each bill that has a reason."""
    folder = download_entry("assembly")
    titles = parquet.read_table(folder / "bills.parquet", columns=["BILL_ID", "BILL_NAME"])
    names = dict(zip(*(column.to_pylist() for column in titles.columns), strict=True))
    reasons = parquet.read_table(folder / "bill_texts.parquet", columns=["BILL_ID", "propose_reason"])
    rows = zip(*(column.to_pylist() for column in reasons.columns), strict=True)
    return [(names[bill], reason) for bill, reason in rows if reason]


def split_words(text: str) -> list[str]:
    """Return the words between white space.

    Args:
        text: The text.
    """
    return text.casefold().split()


def embed(texts: list[str], file: Path) -> np.ndarray:
    """Return the vectors of texts; those that the file holds are not computed again."""
    rows = list(np.load(file)) if file.is_file() else []
    model = load_model("e5-multilingual")
    for start in range(len(rows), len(texts), CHUNK):
        rows += embed_passages(model, texts[start : start + CHUNK])
        np.save(file, np.array(rows))
        print(f"{len(rows):,} of {len(texts):,} vectors", file=sys.stderr, flush=True)
    return np.array(rows)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--vectors", type=Path, metavar="FILE.npy")
    arguments = parser.parse_args()
    bills = read_bills()
    title_counts = Counter(title for title, _ in bills)
    print(
        f"{len(bills):,} bills, {len(title_counts):,} titles, {sum(n == 1 for n in title_counts.values()):,} of which "
        "occur once"
    )
    if arguments.vectors is not None:
        bills = [bill for bill in bills if title_counts[bill[0]] == 1][:SAMPLE]
        print(f"searched: the first {len(bills):,} of the bills with such a title")
    questions = {number: title for number, (title, _) in enumerate(bills) if title_counts[title] == 1}
    not_contained = {number for number, title in questions.items() if title not in bills[number][1]}
    rarely_contained = {
        number for number, title in questions.items() if count_contained(title, bills[number][1]) <= 1 / 3
    }
    sets = {
        "all": set(questions),
        "title not in its text": not_contained,
        "at most a third of its words": rarely_contained,
    }
    print(f"{'terms':24}" + "".join(f"{f'{name} ({len(numbers):,})':>38}" for name, numbers in sets.items()))

    def report(name: str, search: Callable[[int, str], list[int]]) -> None:
        ranks = {number: find_rank(search(number, title)[:5], {number}) for number, title in questions.items()}
        cells = []
        for numbers in sets.values():
            first, fifth = measure_recall([ranks[number] for number in sorted(numbers)])
            cells.append(f"{f'@1 {first:.2f}  @5 {fifth:.2f}':>38}")
        print(f"{name:24}" + "".join(cells), flush=True)

    words = TermRanking((reason for _, reason in bills), split_words)
    report("words between spaces", lambda number, title: words.search(title, 5))
    pairs = TermRanking((reason for _, reason in bills), split_terms)
    report("pairs of characters", lambda number, title: pairs.search(title, 5))
    if arguments.vectors is not None:
        texts = [f"query: {title}" for title in questions.values()] + [f"passage: {reason}" for _, reason in bills]
        vectors = embed(texts, arguments.vectors)
        question_vectors = dict(zip(questions, vectors, strict=False))
        index = VectorIndex(vectors[len(questions) :])

        def search_vectors(number: int, title: str) -> list[int]:
            return [bill for bill, _ in index.search(question_vectors[number], FUSED_DEPTH)]

        def search_both(number: int, title: str) -> list[int]:
            return [bill for bill, _ in fuse([pairs.search(title, FUSED_DEPTH), search_vectors(number, title)])]

        report("vectors (e5)", search_vectors)
        report("pairs and vectors, fused", search_both)


def count_contained(title: str, reason: str) -> float:
    """Return the share of a title's words that its text contains, without the words that most titles have.

    Args:
        title: The title.
        reason: The text.
    """
    words = [word for word in title.split() if word not in COMMON_ENDINGS]
    return sum(word in reason for word in words) / max(1, len(words))


if __name__ == "__main__":
    main()
