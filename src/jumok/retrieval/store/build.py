"""Build a generation of an index: read the files that have changed, compute missing vectors, and build BM25."""

from __future__ import annotations

import contextlib
import datetime
import os
import shutil
import time
import uuid
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jumok.errors import DataError
from jumok.reporting import StageProgress
from jumok.retrieval.files.read_passages import read_open_file
from jumok.retrieval.files.safe_folder import (
    TEXT_ENDINGS,
    SafeFolder,
    SkipLog,
    TextFile,
    UnusableFileError,
    describe_file,
    make_printable,
)

from .index_version import (
    BM25_FOLDER,
    GRAPH_FILE,
    PASSAGES_FILE,
    PENDING_FILE,
    PREFIX,
    VECTORS_FILE,
    IndexGeneration,
    publish,
)
from .passage_database import DTYPE, PassageDatabase, PendingVectors, compute_digest

CHUNK = 512  # passages whose vectors are stored together: an interrupted run loses at most these
ATTEMPTS = 3  # to read a file that changes while it is read
CHANGED = "changed while it was read"


@dataclass(frozen=True)
class BuildSettings:
    """What to build."""

    location: Path
    embedder: str | None  # the embedding model; None: vectors that are stored already are kept
    model: str | None  # its identity
    max_files: int
    progress: StageProgress  # called with the finished and all steps, and "reading", "embedding" or "indexing"


def build_generation(folder: SafeFolder, settings: BuildSettings, old: IndexGeneration | None) -> IndexGeneration:
    """Write a new generation, with all that is unchanged in ``old``, and make it current; the index must be locked."""
    start = time.monotonic()
    # the index contains the texts: only their owner may read it, as the files themselves may be private
    settings.location.mkdir(mode=0o700, parents=True, exist_ok=True)
    work = settings.location / f"{PREFIX}{uuid.uuid4().hex[:12]}"
    work.mkdir()
    try:
        database = PassageDatabase.create(work / PASSAGES_FILE)
        try:
            read_count = _read_files(folder, database, settings, old)
            vectors, computed = _write_vectors(work, database, settings, old)
            _build_bm25(work, database, settings.progress)
            _, files, size = database.count_files()
            passages = len(database)
        finally:
            database.close()
        seconds = time.monotonic() - start
        facts = {
            "folder": make_printable(os.fsencode(folder.path)),
            "files": files,
            "passages": passages,
            "bytes": size,
            "built_at": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
            "seconds": seconds,
            "passages_per_second": max(read_count, computed) / max(seconds, 1e-9),
            **vectors,
        }
        return publish(settings.location, work, facts)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        with contextlib.suppress(OSError):  # it holds the vectors of an interrupted run, or an older generation
            settings.location.rmdir()
        raise


def _read_files(
    folder: SafeFolder, database: PassageDatabase, settings: BuildSettings, old: IndexGeneration | None
) -> int:
    """List and read the files; return how many passages were read and not copied."""
    skipped = SkipLog()
    count = 0
    for file in folder.list_text_files(skipped, max_files=settings.max_files, excluded=settings.location.parent):
        database.add_file(file)
        count += 1
    if not count:
        raise DataError(_describe_empty_folder(folder, skipped))

    can_copy = old is not None and old.find_outdated_part() != "passages"
    if old is not None and can_copy:
        database.attach(old.passages_file)
    number = read_count = 0
    for position, file in enumerate(database.list_files()):
        settings.progress(position, count, "reading")
        copied = database.copy_file(file, number) if can_copy else None
        if copied is not None:
            number += copied
            continue
        passages = _read_file(folder, database, file, number)
        read_count += passages
        number += passages
    settings.progress(count, count, "reading")
    database.finish()
    if not number:
        database.report_skipped(skipped)
        raise DataError(_describe_empty_folder(folder, skipped))
    return read_count


def _read_file(folder: SafeFolder, database: PassageDatabase, file: TextFile, start: int) -> int:
    """Add the passages of a file, and return their number."""
    for attempt in range(ATTEMPTS):
        problems: dict[str, tuple[int, int]] = {}  # reason -> the first line, and the number of lines

        def report_line(line: int, reason: str, problems: dict[str, tuple[int, int]] = problems) -> None:
            first, count = problems.get(reason, (line, 0))
            problems[reason] = first, count + 1

        number = start
        try:
            descriptor = folder.open_file(file.path)
            try:
                current = describe_file(file.path, os.fstat(descriptor))
                if current != file:  # it was replaced since it was listed
                    database.add_file(current)
                    file = current
                for passage in read_open_file(descriptor, make_printable(file.path), report_line):
                    database.add_passage(number, file.path, passage)
                    number += 1
            finally:
                os.close(descriptor)
            reason = None
        except UnusableFileError as error:
            reason = str(error)
            database.remove_passages(start)
            number = start
            if reason == CHANGED and attempt + 1 < ATTEMPTS:
                continue
        break
    database.finish_file(file.path, start, number - start, reason)
    for problem, (line, count) in problems.items():
        database.add_problem(file.path, line, problem, count)
    return number - start


def _write_vectors(
    work: Path, database: PassageDatabase, settings: BuildSettings, old: IndexGeneration | None
) -> tuple[dict[str, int | str | None], int]:
    """Write the vectors, one row for each passage; return the fields of the header about them, and how many were
    computed. Passages without a vector have zeros.

    Vectors of unchanged texts are taken from the old generation. New ones are stored chunk by chunk as soon as they are
    computed, so that an interrupted run can continue.
    """
    embedder, model = settings.embedder, settings.model
    if embedder is None and old is not None:  # keep the vectors that are stored already
        embedder, model = old.header.embedder, old.header.model
    if embedder is None or model is None:
        return {"embedder": None, "model": None, "vectors": 0, "missing": 0, "unreadable": 0}, 0

    from jumok.retrieval.search.embedding import PREFIXES, embed_passages, get_prefixes, is_readable, load_model

    matrix: np.ndarray | None = None
    missing = array("q")  # numbers of passages that need a vector
    count = unreadable = computed = 0

    def write(number: int, vector: np.ndarray) -> None:
        nonlocal matrix, count
        if matrix is None:  # only a vector shows how wide they are
            shape = (len(database), len(vector))
            matrix = np.lib.format.open_memmap(work / VECTORS_FILE, mode="w+", dtype=DTYPE, shape=shape)
        matrix[number] = vector
        count += 1

    with contextlib.ExitStack() as stack:
        pending = stack.enter_context(contextlib.closing(PendingVectors(settings.location / PENDING_FILE, model)))
        find_old = _open_old_vectors(old, model, stack)
        for number, digest, text in database.read_texts():
            vector = find_old(digest)
            vector = pending.get(digest) if vector is None else vector
            if vector is not None:
                write(number, vector)
            elif embedder in PREFIXES or is_readable(text):
                missing.append(number)
            else:
                unreadable += 1

        if settings.embedder is not None and missing:
            loaded = load_model(embedder)
            computed = len(missing)
            settings.progress(0, computed, "embedding")
            for start in range(0, computed, CHUNK):
                numbers = missing[start : start + CHUNK]
                texts = [database.get(number).text for number in numbers]
                prefixed = [get_prefixes(embedder)[1] + text for text in texts]

                def report(done: int, start: int = start) -> None:
                    settings.progress(start + done, computed, "embedding")

                vectors = [vector.astype(DTYPE) for vector in embed_passages(loaded, prefixed, report)]
                pending.add(zip(map(compute_digest, texts), vectors, strict=True))
                for number, vector in zip(numbers, vectors, strict=True):
                    write(number, vector)
            missing = array("q")
    if matrix is not None:
        from jumok.retrieval.search.vectors import EXACT_LIMIT, NeighbourGraph, is_usearch_installed

        matrix.flush()  # type: ignore[attr-defined]
        if len(matrix) > EXACT_LIMIT and is_usearch_installed():  # otherwise the search compares all vectors
            settings.progress(0, 1, "indexing")
            NeighbourGraph.build(work / GRAPH_FILE, matrix)
    facts: dict[str, int | str | None] = {"embedder": embedder, "model": model}
    return {**facts, "vectors": count, "missing": len(missing), "unreadable": unreadable}, computed


def _open_old_vectors(
    old: IndexGeneration | None, model: str, stack: contextlib.ExitStack
) -> Callable[[bytes], np.ndarray | None]:
    """Return a function that finds the vector of a text, by its digest, in an earlier generation."""
    if old is None or old.header.model != model or not old.vectors_file.is_file():
        return lambda digest: None
    database = stack.enter_context(contextlib.closing(PassageDatabase.open(old.passages_file)))
    matrix = np.load(old.vectors_file, mmap_mode="r", allow_pickle=False)

    def find(digest: bytes) -> np.ndarray | None:
        number = database.find_digest(digest)
        return matrix[number] if number is not None and matrix[number].any() else None

    return find


def _build_bm25(work: Path, database: PassageDatabase, progress: StageProgress) -> None:
    from jumok.retrieval.search.bm25 import BM25Index

    progress(0, 1, "indexing")
    BM25Index.build(work / BM25_FOLDER, (text for _, _, text in database.read_texts()))
    progress(1, 1, "indexing")


def _describe_empty_folder(folder: SafeFolder, skipped: SkipLog) -> str:
    name = make_printable(os.fsencode(folder.path))
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in skipped.counts.items())
    if not reasons:
        return f"{name} is empty; put text files into it, or index another folder"
    return f"{name} contains no text to index ({reasons}); files of these kinds are read: {', '.join(TEXT_ENDINGS)}"
