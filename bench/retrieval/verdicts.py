"""Measure both error rates of the verdicts of ``jumok ask``, on written-down questions about the catalogue's books.

    python bench/retrieval/verdicts.py                  # the test questions: 50 answerable, 50 unanswerable
    python bench/retrieval/verdicts.py --split dev      # the questions that the thresholds were chosen on
    python bench/retrieval/verdicts.py --split dev --choose

The books are indexed first (minutes; once), then each question takes a few seconds. Rows are stored as they are
computed (--rows), so that a second call only prints.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from question_file import Question, find_passages, read_questions

import jumok
from jumok.data.catalogue import download_entry, get_cache_folder
from jumok.retrieval import FolderIndex, Passage, open_index
from jumok.tasks.ask import AskSettings, PromptReader, VerdictRule, ask

# The rule is applied afterwards, so that thresholds can be compared: nothing is rejected before it is read.
PASSAGES = 30_176  # of the catalogue's books
READ_EVERYTHING = VerdictRule(unrelated_cosine=-1.0, cosine_spread=0.0)


@dataclass(frozen=True)
class Row:
    """What was measured for one question.

    Args:
        id: The name of the question.
        answerable: Whether a book contains the answer.
        kind: Of an unanswerable question: "near" or "far".
        text: What the model wrote.
        is_correct: Whether the text contains an accepted answer.
        in_hits: Whether the search found the passage that answers the question.
        cosine: The largest cosine of the passages.
        changes: The change of the answer's log-probability without each passage.
        word_changes: The change of the word that changes most, without each passage.
        missing: For each passage, the words of the text that it does not support.
        controls: The same without each control passage.
        cites_right_passage: Whether the passage with the largest drop is the one that answers the question.
        attends_right_passage: Whether the passage with the most attention is the one that answers the question.
        seconds: How long the answer took, with controls and attention if they were measured.
    """

    id: str
    answerable: bool
    kind: str
    text: str
    is_correct: bool
    in_hits: bool
    cosine: float
    changes: list[float]
    word_changes: list[float]
    missing: list[list[str]]
    controls: list[float]
    cites_right_passage: bool
    attends_right_passage: bool
    seconds: float


def measure(
    question: Question,
    index: FolderIndex,
    all_passages: list[Passage],
    reader: PromptReader,
    why: bool,
    passages: int,
) -> Row:
    """Answer a question and collect what the verdict reads."""
    start = time.perf_counter()
    answer = ask(index, question.question, reader, AskSettings(passages=passages, rule=READ_EVERYTHING, why=why))
    seconds = time.perf_counter() - start
    right = set()
    if question.answerable:
        right = find_passages(question, all_passages)
    retrieved = [cut for cut in answer.passages if not cut.is_control]
    text = (answer.text or "").lower()
    return Row(
        id=question.id,
        answerable=question.answerable,
        kind=question.kind,
        text=answer.text or "",
        is_correct=any(accepted.lower() in text for accepted in question.answers),
        in_hits=any(cut.hit.number in right for cut in retrieved),
        cosine=max(cut.hit.cosine or 0.0 for cut in retrieved),
        changes=[cut.change or 0.0 for cut in retrieved],
        word_changes=[cut.word_change or 0.0 for cut in retrieved],
        missing=[
            list(find_unsupported_words(answer.text or "", cut.hit.passage, question.question)) for cut in retrieved
        ],
        controls=[cut.word_change or 0.0 for cut in answer.passages if cut.is_control],
        cites_right_passage=min(retrieved, key=lambda cut: cut.word_change or 0.0).hit.number in right,
        attends_right_passage=max(retrieved, key=lambda cut: cut.attention or 0.0).hit.number in right,
        seconds=seconds,
    )


def collect_rows(split: str, rows_file: Path, why: bool, passages: int) -> list[Row]:
    """Return the rows of all questions; those that are stored already are not measured again."""
    stored = {}
    if rows_file.is_file():
        stored = {row.id: row for row in (Row(**json.loads(line)) for line in rows_file.read_text().splitlines())}
    questions = read_questions(split)
    missing = [question for question in questions if question.id not in stored]
    if missing:
        folder = download_entry("gutenberg")
        reader = PromptReader(jumok.load("smollm2"))
        with open_index(folder) as index, rows_file.open("a") as output:
            all_passages = [index.get(number) for number in range(len(index))]
            for number, question in enumerate(missing, 1):
                row = measure(question, index, all_passages, reader, why, passages)
                stored[question.id] = row
                output.write(json.dumps(asdict(row)) + "\n")
                output.flush()
                print(
                    f"{number}/{len(missing)} {question.question} -> {row.text} {min(row.word_changes):+.1f}",
                    flush=True,
                )
    return [stored[question.id] for question in questions]


def is_supported(row: Row, cosine: float, change: float, compares_words: bool = True) -> bool:
    """The verdict "supported" by two thresholds and, by default, the numbers and names of the passage."""
    return (
        bool(row.text)
        and row.cosine >= cosine
        and any(
            word_change <= change and not (compares_words and missing)
            for word_change, missing in zip(row.word_changes, row.missing, strict=True)
        )
    )


def share(flags: Iterable[bool]) -> float:
    """The share of True."""
    return statistics.fmean(flags)


def choose_thresholds(rows: list[Row]) -> tuple[float, float]:
    """Return the thresholds with the smallest mean of both error rates."""
    cosines = [round(0.2 + 0.025 * step, 3) for step in range(21)]
    changes = [-0.5 * step for step in range(1, 25)]

    def measure_error(thresholds: tuple[float, float]) -> float:
        missed = share(not is_supported(row, *thresholds) for row in rows if row.answerable)
        wrong = share(is_supported(row, *thresholds) for row in rows if not row.answerable)
        return (missed + wrong) / 2

    pairs = list(itertools.product(cosines, changes))
    for pair in sorted(pairs, key=measure_error)[:8]:
        print(f"  cosine {pair[0]:.3f}, change {pair[1]:+.1f}: mean error {measure_error(pair):.3f}")
    return min(pairs, key=measure_error)


def print_rates(rows: list[Row], cosine: float, change: float) -> None:
    """Print both error rates, with the search alone and the cut alone beside them, and how good the answers are."""
    answerable = [row for row in rows if row.answerable]
    unanswerable = [row for row in rows if not row.answerable]
    print(f"cosine >= {cosine:.3f}, word <= {change:g} nats: {len(answerable)} answerable, {len(unanswerable)} not")
    for name, thresholds in {
        "search, cut, words": (cosine, change, True),
        "search and cut": (cosine, change, False),
        "search alone": (cosine, float("inf"), False),
        "cut alone": (-1.0, change, False),
    }.items():
        missed = share(not is_supported(row, *thresholds) for row in answerable)
        wrong = share(is_supported(row, *thresholds) for row in unanswerable)
        near = share(is_supported(row, *thresholds) for row in unanswerable if row.kind == "near")
        far = share(is_supported(row, *thresholds) for row in unanswerable if row.kind == "far")
        print(
            f"  {name:18} answerable refused {missed:.0%}; unanswerable answered {wrong:.0%} "
            f"(near {near:.0%}, far {far:.0%})"
        )

    passage_found = [row for row in answerable if row.in_hits]
    supported = [row for row in answerable if is_supported(row, cosine, change)]
    print(f"  the search found the passage of {len(passage_found)} of {len(answerable)} answerable questions;")
    refused = share(not is_supported(row, cosine, change) for row in passage_found)
    correct = sum(row.is_correct for row in passage_found)
    print(f"    of these {correct} texts are right, and {refused:.0%} are refused")
    if supported:
        right = share(row.is_correct for row in supported)
        other_right = share(row.is_correct for row in answerable if row not in supported)
        print(f"  of {len(supported)} supported answers {right:.0%} are right, of the other texts {other_right:.0%}")
    cited = share(row.cites_right_passage for row in passage_found)
    attended = share(row.attends_right_passage for row in passage_found)
    print(f"  the right passage has the largest drop in {cited:.0%}, and the most attention in {attended:.0%}")
    controls = sorted(abs(change) for row in rows for change in row.controls)
    if controls:
        print(
            f"  control passages change a word by {statistics.median(controls):.2f} nats (median), "
            f"{controls[int(0.95 * len(controls))]:.2f} (95 of 100)"
        )
    seconds = sorted(row.seconds for row in rows)
    print(f"  seconds per answer: median {statistics.median(seconds):.1f}, largest {seconds[-1]:.1f}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--split", choices=["dev", "test"], default="test")
    parser.add_argument("--choose", action="store_true", help="Choose the thresholds on these questions.")
    parser.add_argument("--passages", type=int, default=AskSettings().passages, help="Passages to read at once.")
    parser.add_argument("--quick", action="store_true", help="Do not measure attention and control passages.")
    parser.add_argument("--rows", type=Path, help="Where rows are stored.  [default: in the cache folder]")
    options = parser.parse_args()
    rows_file = options.rows or get_cache_folder() / f"verdict-rows-{options.split}-{options.passages}.jsonl"
    rows = collect_rows(options.split, rows_file, not options.quick, options.passages)
    rule = VerdictRule()
    print_rates(rows, rule.compute_cosine_limit(PASSAGES), rule.word_change)
    if options.choose:
        print_rates(rows, *choose_thresholds(rows))


if __name__ == "__main__":
    main()
