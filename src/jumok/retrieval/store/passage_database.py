"""The SQLite databases of an index: its files and passages, so that memory does not grow with their number; and the
vectors of an index that is not finished."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import astuple
from pathlib import Path

import numpy as np

from jumok.errors import ArgumentError, DataError
from jumok.retrieval.files.safe_folder import SkipLog, TextFile, make_printable
from jumok.retrieval.passage import Passage

_TABLES = """
CREATE TABLE files (
    path BLOB PRIMARY KEY, size INTEGER, modified INTEGER, changed INTEGER, inode INTEGER,
    reason TEXT, start INTEGER, count INTEGER
) WITHOUT ROWID;
CREATE TABLE passages (
    number INTEGER PRIMARY KEY, path BLOB, first INTEGER, last INTEGER, unit TEXT, text TEXT, digest BLOB,
    sentences TEXT
);
CREATE TABLE problems (path BLOB, line INTEGER, reason TEXT, count INTEGER);
"""
_PENDING_TABLES = """
CREATE TABLE IF NOT EXISTS origin (id INTEGER PRIMARY KEY, model TEXT);
CREATE TABLE IF NOT EXISTS vectors (digest BLOB PRIMARY KEY, vector BLOB, checksum INTEGER) WITHOUT ROWID;
"""
DTYPE = np.float16  # of vectors


class PassageDatabase:
    """The files and passages of one index. A path is stored as the system stores it; numbers count passages from 0."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    def create(cls, file: Path) -> PassageDatabase:
        """Create an empty database, whose content is on the disk after ``finish``."""
        connection = sqlite3.connect(file.absolute().as_uri(), uri=True, isolation_level=None)
        # the file is not an index before it is finished: a crash leaves nothing to repair
        connection.executescript(f"PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF; {_TABLES} BEGIN;")
        return cls(connection)

    @classmethod
    def open(cls, file: Path) -> PassageDatabase:
        """Open a finished database for reading. It stays readable when the file is removed."""
        connection = sqlite3.connect(
            f"{file.absolute().as_uri()}?mode=ro&immutable=1", uri=True, isolation_level=None, check_same_thread=False
        )
        database = cls(connection)
        try:
            len(database)  # reads the schema
        except BaseException:
            connection.close()
            raise
        return database

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    def check_pages(self) -> None:
        """Let SQLite check its pages; raise sqlite3.DatabaseError if one is damaged."""
        answer = self._connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if answer != "ok":
            raise sqlite3.DatabaseError(answer)

    def __len__(self) -> int:
        """Return the number of passages."""
        count: int | None = self._connection.execute("SELECT max(number) FROM passages").fetchone()[0]
        return 0 if count is None else count + 1

    def get(self, number: int) -> Passage:
        """Return a passage."""
        query = "SELECT path, first, last, text, unit, sentences FROM passages WHERE number = ?"
        try:
            row = self._connection.execute(query, (number,)).fetchone()
        except sqlite3.DatabaseError as error:
            raise DataError(f"the index is damaged ({error}); build it again: jumok index FOLDER --rebuild") from None
        if row is None:
            raise ArgumentError(f"there is no passage {number}; the index has {len(self):,} passages, counted from 0")
        path, first, last, text, unit, sentences = row
        starts = tuple((start, line) for start, line in json.loads(sentences))
        return Passage(make_printable(path), first, last, text, unit, starts)

    def read_texts(self) -> Iterator[tuple[int, bytes, str]]:
        """Yield the number, the digest and the text of each passage, in their order."""
        yield from self._connection.execute("SELECT number, digest, text FROM passages ORDER BY number")

    def find_digest(self, digest: bytes) -> int | None:
        """Return the number of a passage whose text has this digest; None if there is none."""
        row = self._connection.execute("SELECT number FROM passages WHERE digest = ?", (digest,)).fetchone()
        return None if row is None else int(row[0])

    def count_files(self) -> tuple[int, int, int]:
        """Return the number of listed files, of those with passages, and the bytes of these."""
        row = self._connection.execute(
            "SELECT count(*), count(*) FILTER (WHERE reason IS NULL), total(size) FILTER (WHERE reason IS NULL) "
            "FROM files"
        ).fetchone()
        return row[0], row[1], int(row[2])

    def add_file(self, file: TextFile) -> None:
        """List a file, without passages."""
        self._connection.execute(
            "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, NULL, 0, 0)",
            astuple(file),
        )

    def find_file(self, path: bytes) -> TextFile | None:
        """Return the file of a path as it is listed; None if it is not."""
        query = "SELECT path, size, modified, changed, inode FROM files WHERE path = ?"
        row = self._connection.execute(query, (path,)).fetchone()
        return None if row is None else TextFile(*row)

    def list_files(self) -> Iterator[TextFile]:
        """Yield the listed files, sorted by path. Passages may be added meanwhile."""
        last = b""
        query = "SELECT path, size, modified, changed, inode FROM files WHERE path > ? ORDER BY path LIMIT 1000"
        while rows := self._connection.execute(query, (last,)).fetchall():
            yield from (TextFile(*row) for row in rows)
            last = rows[-1][0]

    def add_passage(self, number: int, path: bytes, passage: Passage) -> None:
        """Add a passage."""
        self._connection.execute(
            "INSERT INTO passages VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                number,
                path,
                passage.first,
                passage.last,
                passage.unit,
                passage.text,
                compute_digest(passage.text),
                json.dumps(passage.sentences),
            ),
        )

    def remove_passages(self, start: int) -> None:
        """Remove the passages from a number on."""
        self._connection.execute("DELETE FROM passages WHERE number >= ?", (start,))

    def finish_file(self, path: bytes, start: int, count: int, reason: str | None) -> None:
        """Record the passages of a file, or the reason why it has none."""
        self._connection.execute(
            "UPDATE files SET start = ?, count = ?, reason = ? WHERE path = ?", (start, count, reason, path)
        )

    def add_problem(self, path: bytes, line: int, reason: str, count: int) -> None:
        """Record the first of ``count`` lines of a file that could not be used."""
        self._connection.execute("INSERT INTO problems VALUES (?, ?, ?, ?)", (path, line, reason, count))

    def attach(self, file: Path) -> None:
        """Let ``copy_file`` read another database."""
        self._connection.execute("COMMIT")
        self._connection.execute("ATTACH ? AS old", (f"{file.absolute().as_uri()}?mode=ro&immutable=1",))
        self._connection.execute("BEGIN")

    def copy_file(self, file: TextFile, start: int) -> int | None:
        """Copy what the attached database has of a file, and return the number of its passages; None if it has
        another version of the file, or none."""
        row = self._connection.execute(
            "SELECT start, count, reason FROM old.files "
            "WHERE path = ? AND size = ? AND modified = ? AND changed = ? AND inode = ?",
            astuple(file),
        ).fetchone()
        if row is None:
            return None
        old_start, count, reason = row
        self._connection.execute(
            "INSERT INTO passages SELECT number + ?, path, first, last, unit, text, digest, sentences "
            "FROM old.passages WHERE number >= ? AND number < ?",
            (start - old_start, old_start, old_start + count),
        )
        self._connection.execute("INSERT INTO problems SELECT * FROM old.problems WHERE path = ?", (file.path,))
        self.finish_file(file.path, start, count, reason)
        return int(count)

    def finish(self) -> None:
        """Complete the database: index the digests and write everything."""
        self._connection.execute("COMMIT")
        if "old" in [name for _, name, _ in self._connection.execute("PRAGMA database_list")]:
            self._connection.execute("DETACH old")
        self._connection.execute("CREATE INDEX digests ON passages (digest)")

    def report_skipped(self, skipped: SkipLog) -> None:
        """Report the listed files without passages, and the lines that could not be used."""
        for path, reason in self._connection.execute(
            "SELECT path, reason FROM files WHERE reason IS NOT NULL ORDER BY path"
        ):
            skipped.add(path, reason)
        for path, line, reason, count in self._connection.execute("SELECT * FROM problems ORDER BY path"):
            skipped.add(path + b":%d" % line, reason, count)


class PendingVectors:
    """Vectors of an index that is not finished: a run that was interrupted continues with them.

    A damaged file, or one of another model, is replaced.
    """

    def __init__(self, file: Path, model: str) -> None:
        self._connection = sqlite3.connect(file)
        try:
            self._connection.executescript(_PENDING_TABLES)
            row = self._connection.execute("SELECT model FROM origin").fetchone()
            is_usable = row in ((model,), None)
        except sqlite3.DatabaseError:
            is_usable = False
        if not is_usable:
            self._connection.close()
            remove_pending_vectors(file)
            self._connection = sqlite3.connect(file)
            self._connection.executescript(_PENDING_TABLES)
        with self._connection:
            self._connection.execute("INSERT OR IGNORE INTO origin VALUES (1, ?)", (model,))

    def get(self, digest: bytes) -> np.ndarray | None:
        """Return a vector; None if it is not stored, or damaged."""
        try:
            row = self._connection.execute(
                "SELECT vector, checksum FROM vectors WHERE digest = ?", (digest,)
            ).fetchone()
        except sqlite3.DatabaseError:
            return None
        if row is None or zlib.crc32(row[0]) != row[1]:
            return None
        return np.frombuffer(row[0], dtype=DTYPE)

    def add(self, vectors: Iterable[tuple[bytes, np.ndarray]]) -> None:
        """Store vectors on the disk."""
        rows = [(digest, vector.tobytes(), zlib.crc32(vector.tobytes())) for digest, vector in vectors]
        with self._connection:
            self._connection.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)

    def close(self) -> None:
        """Close the database."""
        self._connection.close()


def remove_pending_vectors(file: Path) -> None:
    """Remove the vectors of an interrupted run, and the journal of SQLite beside them."""
    for path in file.parent.glob(f"{file.name}*"):
        path.unlink(missing_ok=True)


def compute_digest(text: str) -> bytes:
    """Return a short digest of a text: passages with the same text have the same vector."""
    return hashlib.sha256(text.encode()).digest()[:16]
