"""Time the steps of ``jumok ask`` with smollm2: search, reading, and cutting each passage.

    python bench/retrieval/ask_speed.py                 # one passage, as by default
    python bench/retrieval/ask_speed.py --passages 3

The books of the catalogue must be indexed (jumok index "$(jumok data where gutenberg)"), which takes minutes once.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

from question_file import read_questions

import jumok
from jumok.data.catalogue import download_entry
from jumok.retrieval import open_index
from jumok.tasks.ask import AskSettings, PromptReader
from jumok.tasks.ask.answer_question import measure_cuts

QUESTIONS = 12


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=AskSettings().passages, help="Passages to read at once.")
    passages = parser.parse_args().passages
    folder = download_entry("gutenberg")
    questions = [question.question for question in read_questions("dev", answerable=True)[:QUESTIONS]]

    start = time.perf_counter()
    reader = PromptReader(jumok.load("smollm2"))
    loading = time.perf_counter() - start
    seconds: dict[str, list[float]] = {"search": [], "read": [], "cut": [], "answer": []}
    tokens = []
    with open_index(folder) as index:
        index.search(questions[0])  # the embedding model is loaded by the first search
        for question in questions:
            begin = time.perf_counter()
            hits = index.search(question, passages).hits
            searched = time.perf_counter()
            reading = reader.read(question, [hit.passage.text for hit in hits], AskSettings().limit)
            read = time.perf_counter()
            measure_cuts(reader, reading, hits)
            end = time.perf_counter()
            tokens.append(len(reading.token_ids))
            for step, duration in zip(
                seconds, (searched - begin, read - searched, end - read, end - begin), strict=True
            ):
                seconds[step].append(duration)
    print(
        f"{QUESTIONS} questions, {passages} passages each, {statistics.median(tokens):.0f} tokens per answer (median)"
    )
    for step, durations in seconds.items():
        print(f"  {step:7} median {statistics.median(durations):.2f} s, largest {max(durations):.2f} s")
    print(f"  loading smollm2 {loading:.2f} s")

    command = [sys.executable, "-m", "jumok", "ask", str(folder), questions[0], "--passages", str(passages)]
    command_seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        command_seconds.append(time.perf_counter() - begin)
    print(f"  the whole command, with Python, PyTorch and both models: {statistics.median(command_seconds):.1f} s")


if __name__ == "__main__":
    main()
