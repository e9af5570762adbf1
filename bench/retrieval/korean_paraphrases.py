"""Find Korean notes by questions in other words: BM25, vectors of e5-multilingual, and both. Run:

    python bench/retrieval/korean_paraphrases.py

The 50 questions and the notes of two folders are in notes, where README.md describes them. A question is found if the
note that contains its answer is among the first 1 or 5 of the 18.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from term_ranking import TermRanking, find_rank, measure_recall

from jumok.retrieval import open_index
from jumok.retrieval.store.folder_index import remove_index

NOTES = Path(__file__).with_name("notes")
FOLDERS = ("island", "bookshop")


def main() -> None:
    """Print the table."""
    lines = (NOTES / "korean_paraphrases.jsonl").read_text(encoding="utf-8").splitlines()
    questions = [json.loads(line) for line in lines]
    with tempfile.TemporaryDirectory() as folder:
        for name in FOLDERS:
            shutil.copytree(NOTES / name, Path(folder) / name)
        with open_index(folder, embedder="e5-multilingual") as index:
            passages = [index.get(number) for number in range(len(index))]
            expected = [
                {number for number, passage in enumerate(passages) if question["quote"] in passage.text}
                for question in questions
            ]
            words = TermRanking((passage.text for passage in passages), str.split)
            rankings = {"words between spaces": [words.search(question["question"], 5) for question in questions]}
            for name, method in (("pairs of characters", "bm25"), ("vectors", "dense"), ("both, fused", "fused")):
                rankings[name] = [
                    [hit.number for hit in index.search(question["question"], 5, method).hits] for question in questions
                ]
        remove_index(folder)
    print(f"{len(questions)} questions, {len(passages)} passages")
    for name, ranked in rankings.items():
        first, fifth = measure_recall(list(map(find_rank, ranked, expected)))
        print(f"{name:22}@1 {first:.2f}  @5 {fifth:.2f}")


if __name__ == "__main__":
    main()
