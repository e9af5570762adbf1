"""Build a generation of an index: read the files that have changed, compute missing vectors, and build BM25."""

from __future__ import annotations

import contextlib
import datetime
import os
import shutil
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from jumok.errors import DataError, StageProgress
from jumok.retrieval.files import (
    TEXT_ENDINGS,
    SafeFolder,
    SkipLog,
    TextFile,
    UnusableFileError,
    make_printable,
    read_open_file,
)
from jumok.retrieval.files.safe_folder import describe_file

from .generation import (
    BM25_FOLDER,
    GRAPH_FILE,
    PASSAGES_FILE,
    PENDING_FILE,
    PREFIX,
    VECTORS_FILE,
    IndexGeneration,
    publish,
)
from .passage_database import PassageDatabase

ATTEMPTS = 3  # to read a file that changes while it is read
CHANGED = "changed while it was read"


@dataclass(frozen=True)
class BuildSettings:
    """What to build.

    Args:
        embedder: The embedding model; None: vectors that are stored already are kept, and no others are computed.
        model: The identity of the embedding model; None with ``embedder`` None.
        progress: Called with the finished and all steps, and the stage: "reading", "embedding" or "indexing".
    """

    location: Path
    embedder: str | None
    model: str | None
    max_files: int
    progress: StageProgress


def build_generation(folder: SafeFolder, settings: BuildSettings, old: IndexGeneration | None) -> IndexGeneration:
    """Write a new generation and make it the current one. Call it only with the index locked.

    Args:
        old: The current generation, from which unchanged files and vectors are taken; None: everything is read.
    """
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

    if old is not None and old.find_outdated_part() != "passages":
        database.attach(old.passages_file)
        can_copy = True
    else:
        can_copy = False
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
    """Write the vectors; return the fields of the header about them, and how many were computed."""
    embedder, model = settings.embedder, settings.model
    if embedder is None and old is not None:  # keep the vectors that are stored already
        embedder, model = old.header.embedder, old.header.model
    if embedder is None or model is None:
        return {"embedder": None, "model": None, "vectors": 0, "missing": 0, "unreadable": 0}, 0

    from .vector_file import OldVectors, PendingVectors, VectorWriter

    has_old = old is not None and old.header.model == model and old.vectors_file.is_file()
    old_database = PassageDatabase.open(old.passages_file) if has_old and old is not None else None
    pending = PendingVectors(settings.location / PENDING_FILE, model)
    try:
        sources: list[OldVectors | PendingVectors] = [pending]
        if old_database is not None and old is not None:
            sources.insert(0, OldVectors(old_database, old.vectors_file))
        writer = VectorWriter(work / VECTORS_FILE, database, sources)
        writer.copy_stored()
        computed = 0
        if settings.embedder is not None:
            computed = len(writer.missing)
            writer.embed_missing(embedder, pending, lambda done, total: settings.progress(done, total, "embedding"))
        writer.close()
    finally:
        pending.close()
        if old_database is not None:
            old_database.close()
    _build_graph(work, settings.progress)
    facts: dict[str, int | str | None] = {
        "embedder": embedder,
        "model": model,
        "vectors": writer.count,
        "missing": len(writer.missing),
        "unreadable": writer.unreadable,
    }
    return facts, computed


def _build_graph(work: Path, progress: StageProgress) -> None:
    """Build the graph of neighbours for very many vectors, if usearch is installed; without it the search is exact."""
    import numpy as np

    from jumok.retrieval.search.vectors import EXACT_LIMIT, NeighbourGraph, is_usearch_installed

    file = work / VECTORS_FILE
    matrix = np.load(file, mmap_mode="r", allow_pickle=False) if file.is_file() else None
    if matrix is not None and len(matrix) > EXACT_LIMIT and is_usearch_installed():
        progress(0, 1, "indexing")
        NeighbourGraph.build(work / GRAPH_FILE, matrix)


def _build_bm25(work: Path, database: PassageDatabase, progress: StageProgress) -> None:
    from jumok.retrieval.search.bm25 import BM25Index

    progress(0, 1, "indexing")
    BM25Index.build(work / BM25_FOLDER, database.read_texts())
    progress(1, 1, "indexing")


def _describe_empty_folder(folder: SafeFolder, skipped: SkipLog) -> str:
    name = make_printable(os.fsencode(folder.path))
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in skipped.counts.items())
    if not reasons:
        return f"{name} is empty; put text files into it, or index another folder"
    return f"{name} contains no text to index ({reasons}); files of these kinds are read: {', '.join(TEXT_ENDINGS)}"
