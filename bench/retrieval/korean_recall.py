"""Find Korean bills by their titles: pairs of characters against words. Run: python bench/retrieval/korean_recall.py

The texts are the reasons of the 60,546 bills of the catalogue's entry assembly; the questions are the titles that only
one bill has. A title often stands in its text, so two harder sets are reported too: titles that their text does not
contain, and titles of which their text contains at most a third of the words. It takes a few minutes and 2 GB.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from pyarrow import parquet
from term_ranking import SplitTerms, TermRanking, find_rank, measure_recall

from jumok.data.catalogue import download_entry
from jumok.retrieval.search.bm25 import split_terms

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


def main() -> None:
    """Print the table."""
    bills = read_bills()
    title_counts = Counter(title for title, _ in bills)
    questions = {number: title for number, (title, _) in enumerate(bills) if title_counts[title] == 1}
    not_contained = {number for number, title in questions.items() if title not in bills[number][1]}
    rarely_contained = {
        number for number, title in questions.items() if count_contained(title, bills[number][1]) <= 1 / 3
    }
    print(f"{len(bills):,} bills, {len(title_counts):,} titles, {len(questions):,} of which occur once")

    sets = {
        "all": set(questions),
        "title not in its text": not_contained,
        "at most a third of its words": rarely_contained,
    }
    ways: dict[str, SplitTerms] = {"words between spaces": split_words, "pairs of characters": split_terms}
    print(f"{'terms':24}" + "".join(f"{f'{name} ({len(numbers):,})':>38}" for name, numbers in sets.items()))
    for name, split in ways.items():
        ranking = TermRanking((reason for _, reason in bills), split)
        ranks = {number: find_rank(ranking.search(title, 5), {number}) for number, title in questions.items()}
        cells = []
        for numbers in sets.values():
            first, fifth = measure_recall([ranks[number] for number in sorted(numbers)])
            cells.append(f"{f'@1 {first:.2f}  @5 {fifth:.2f}':>38}")
        print(f"{name:24}" + "".join(cells), flush=True)


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
