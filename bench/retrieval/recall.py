"""Measure how often a search finds the passage that answers a question: recall@1 and recall@5 of each method.

    python bench/retrieval/recall.py                 # the written-down questions about the catalogue's 18 books
    python bench/retrieval/recall.py --terms         # also other ways of splitting texts into terms
    python bench/retrieval/recall.py --fusions       # also other ways of combining both rankings

The vectors of the 30,172 passages take 5 to 10 minutes on two idle cores; they are stored in the cache and used again.
Methods are chosen on the development questions ("dev"); the test questions are for reporting. A difference of one
question is 0.03 (dev) or 0.02 (test).
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from question_file import QUESTION_WORDS, Question, find_passages, join_words, measure_overlap, read_questions
from term_ranking import TermRanking, find_rank, measure_recall

import jumok
from jumok.checkpoint import Loaded
from jumok.data.catalogue import download_entry, get_cache_folder
from jumok.retrieval import Passage
from jumok.retrieval.files.read_passages import read_passages
from jumok.retrieval.search.bm25 import BM25Index, split_terms
from jumok.retrieval.search.embedding import embed_passages, embed_question
from jumok.retrieval.search.ranking import fuse
from jumok.retrieval.search.search import search
from jumok.retrieval.search.vectors import VectorIndex

DEPTH = 100
Rank = Callable[[str], list[int]]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = get_cache_folder() / "bench" / "gutenberg-minilm.npy"
    parser.add_argument("--vectors", type=Path, default=default, help="where the vectors are stored")
    parser.add_argument("--terms", action="store_true", help="compare ways of splitting texts into terms")
    parser.add_argument("--fusions", action="store_true", help="compare ways of combining rankings")
    arguments = parser.parse_args()

    folder = download_entry("gutenberg")
    passages = [passage for file in sorted(folder.glob("*.txt")) for passage in read_passages(file, file.name)]
    embedder = jumok.load(download_entry("minilm"))
    matrix = read_vectors(arguments.vectors, embedder, passages)
    questions = read_questions(answerable=True)
    expected = {question.id: find_passages(question, passages) for question in questions}
    print_overlap(questions, expected, passages)

    with tempfile.TemporaryDirectory() as stored:
        bm25, vectors = BM25Index.build(stored, (passage.text for passage in passages)), VectorIndex(matrix)
        print(f"\n{'method':44}{'dev @1':>8}{'@5':>6}{'test @1':>9}{'@5':>6}")

        def rank_by(method: str) -> Rank:
            settings = {"bm25": bm25, "vectors": vectors, "embedder": embedder, "get_passage": passages.__getitem__}
            return lambda text: [hit.number for hit in search(text, **settings, count=5, method=method).hits]

        for method in ("bm25", "dense", "fused"):
            print_recall(method, rank_by(method), questions, expected)
        if arguments.fusions:
            compare_fusions(bm25, matrix, embedder, questions, expected)
    if arguments.terms:
        compare_terms(passages, questions, expected)


def read_vectors(file: Path, embedder: Loaded, passages: list[Passage]) -> np.ndarray:
    """Return the vectors of all passages; they are computed if the file does not have them.

    Args:
        file: Where they are stored.
        embedder: The embedding model.
        passages: The passages.
    """
    if file.is_file():
        matrix: np.ndarray = np.load(file, allow_pickle=False)
        probes = range(0, len(passages), len(passages) // 7)
        computed = np.stack(list(embed_passages(embedder, (passages[number].text for number in probes))))
        if len(matrix) == len(passages) and np.allclose(matrix[list(probes)], computed, atol=1e-3):
            return matrix

    def report(finished: int) -> None:
        print(f"\rembedding {finished:,} of {len(passages):,} passages", end="", file=sys.stderr, flush=True)

    matrix = np.stack(list(embed_passages(embedder, (passage.text for passage in passages), report)))
    file.parent.mkdir(parents=True, exist_ok=True)
    np.save(file, matrix)
    return matrix


def print_overlap(questions: list[Question], expected: dict[str, set[int]], passages: list[Passage]) -> None:
    """Print how many content words the questions share with the passages that answer them."""
    print(f"{len(passages):,} passages")
    for split in ("dev", "test"):
        overlaps = [
            measure_overlap(question.question, join_words(" ".join(passages[n].text for n in expected[question.id])))
            for question in questions
            if question.split == split
        ]
        print(f"{split}: {len(overlaps)} questions; their passage has {np.mean(overlaps):.2f} of their content words")


def print_recall(name: str, rank: Rank, questions: list[Question], expected: dict[str, set[int]]) -> None:
    """Print the recall of a method."""
    cells = []
    for split in ("dev", "test"):
        chosen = [question for question in questions if question.split == split]
        cells += measure_recall([find_rank(rank(question.question), expected[question.id]) for question in chosen])
    print(f"{name:44}{cells[0]:8.2f}{cells[1]:6.2f}{cells[2]:9.2f}{cells[3]:6.2f}", flush=True)


def compare_fusions(
    bm25: BM25Index,
    matrix: np.ndarray,
    embedder: Loaded,
    questions: list[Question],
    expected: dict[str, set[int]],
) -> None:
    """Print the recall of weighted sums of both scores, of weighted ranks, and of vectors with their neighbours."""
    vectors = {question.question: embed_question(embedder, question.question) for question in questions}
    word_scores = {text: np.asarray(bm25.score(text, range(len(bm25)))) for text in vectors}
    cosines = {text: matrix @ vector for text, vector in vectors.items()}

    def rank(scores: np.ndarray) -> list[int]:
        return np.argsort(-scores, kind="stable")[:DEPTH].tolist()

    def weigh_scores(weight: float) -> Rank:
        return lambda text: rank(cosines[text] + weight * word_scores[text] / max(word_scores[text].max(), 1e-9))

    def repeat_rankings(dense: int, words: int) -> Rank:
        return lambda text: [
            number for number, _ in fuse([rank(cosines[text])] * dense + [rank(word_scores[text])] * words)
        ]

    for weight in (0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0):
        print_recall(f"cosine + {weight} * bm25 / largest bm25", weigh_scores(weight), questions, expected)
    for dense, words in ((2, 1), (3, 1), (1, 2)):
        print_recall(f"fused, ranks weighted {dense}:{words}", repeat_rankings(dense, words), questions, expected)
    for weight in (0.25, 0.5):
        neighbours = (np.roll(matrix, 1, axis=0) + np.roll(matrix, -1, axis=0)) * weight + matrix
        neighbours /= np.linalg.norm(neighbours, axis=1, keepdims=True)
        print_recall(
            f"dense, with {weight} of the next passages' vectors",
            lambda text, rows=neighbours: rank(rows @ vectors[text]),
            questions,
            expected,
        )


def compare_terms(passages: list[Passage], questions: list[Question], expected: dict[str, set[int]]) -> None:
    """Print the recall of BM25 with stems and without frequent words."""

    def split_stems(text: str) -> list[str]:
        return [stem_word(term) for term in split_terms(text)]

    def leave_out(split: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
        return lambda text: [term for term in split(text) if term not in QUESTION_WORDS]

    ways = {
        "bm25, words as they are": split_terms,
        "bm25, without frequent words": leave_out(split_terms),
        "bm25, stems (plural, -ed, -ing)": split_stems,
        "bm25, stems, without frequent words": leave_out(split_stems),
    }
    for name, split in ways.items():
        ranking = TermRanking((passage.text for passage in passages), split)
        print_recall(name, lambda text, ranking=ranking: ranking.search(text, 5), questions, expected)


def stem_word(word: str) -> str:
    """Return an English word without the endings -s, -ed and -ing (after Porter 1980, step 1).

    Args:
        word: A word in lower case.
    """
    if len(word) > 4 and word.endswith("ies"):
        word = word[:-3] + "y"
    elif len(word) > 3 and word.endswith("s") and not word.endswith(("us", "ss", "is")):
        word = word[:-1]
    match = re.match(r"(.*[aeiouy].*?)(ed|ing)$", word)
    if match is None or len(match[1]) < 3:
        return word
    stem = match[1]
    if stem.endswith(("at", "bl", "iz", "v", "c", "g")):
        return stem + "e"
    return stem[:-1] if stem[-1] == stem[-2] and stem[-1] not in "lsz" else stem


if __name__ == "__main__":
    main()
