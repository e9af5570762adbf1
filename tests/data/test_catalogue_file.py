"""Test the parser of catalogue.toml."""

from __future__ import annotations

import re

import pytest

from jumok.data.catalogue import Archive, Entry, FileSet
from jumok.data.catalogue.catalogue_file import parse_catalogue
from jumok.errors import DataError

DIGITS = "0123456789abcdef" * 4
TEXT = f"""
[[entry]]
name = "poems-2"
kind = "data"
licence = "MIT"
english = "poems"
korean = "시"

[[entry.archive]]
client = "pip"
package = "poems"
version = "1.0"
python = "3.14"
sdist = true
size = 1_234
sha256 = "{DIGITS}"

[[entry.archive.files]]
source = "poems/*_a.txt"
local = "texts/*.txt"
count = 3
size = 99
sha256 = "{DIGITS}"
inner_archive = "inner.tar.gz"

[[entry.archive.files]]
source = "poems/COPYING"
local = "LICENSE"
size = 7
sha256 = "{DIGITS}"
"""


def test_parse_reads_every_field() -> None:
    file_sets = (
        FileSet("poems/*_a.txt", "texts/*.txt", 99, DIGITS, count=3, inner_archive="inner.tar.gz"),
        FileSet("poems/COPYING", "LICENSE", 7, DIGITS),
    )
    archive = Archive("pip", "poems", "1.0", 1234, DIGITS, file_sets, sdist=True, python="3.14")
    assert parse_catalogue(TEXT) == (Entry("poems-2", "data", "MIT", "poems", "시", (archive,)),)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[[entry]]", "[[entry", "not valid TOML"),
        ("[[entry]]", "[[other]]\n[[entry]]", "unknown field 'other'"),
        ('name = "poems-2"', 'name = "../poems"', "entry 1: the name '../poems' must consist of lower-case letters"),
        ('kind = "data"', 'kind = "book"', "unknown kind 'book'; choose one of model, data, tokenizer"),
        ('licence = "MIT"', "", "entry 1: the field 'licence' is missing"),
        ('licence = "MIT"', "licence = 3", "licence must be a string"),
        ('licence = "MIT"', 'licence = "MIT"\nlicense = "MIT"', "unknown field 'license'"),
        ('client = "pip"', 'client = "dnf"', "entry 1, archive 1: unknown client 'dnf'; choose one of pip, npm, apt"),
        ('client = "pip"', 'client = "npm"', "sdist and python apply to pip only"),
        ("sdist = true", 'sdist = "yes"', "sdist must be true or false"),
        ("size = 1_234", "size = -1", "size must be a positive integer"),
        ("size = 1_234", "size = true", "size must be a positive integer"),
        (DIGITS, DIGITS[1:], "sha256 must be 64 hexadecimal digits"),
        (DIGITS, DIGITS.upper(), "sha256 must be 64 hexadecimal digits"),
        ("count = 3", "count = 1", "must contain one * each if count is larger than 1"),
        ("texts/*.txt", "texts/a.txt", "must contain one * each if count is larger than 1"),
        ("texts/*.txt", "../*.txt", "files 1: '../*.txt' is not allowed as a local path"),
        ("texts/*.txt", "/*.txt", "is not allowed as a local path"),
        ("texts/*.txt", "texts/../*.txt", "'texts/../*.txt' is not allowed as a local path"),
        ("LICENSE", "manifest.json", "files 2: 'manifest.json' is not allowed as a local path"),
        ("LICENSE", "texts/LICENSE.txt", "'texts/*.txt' and 'texts/LICENSE.txt' name the same files"),
    ],
)
def test_invalid_catalogue_is_refused(old: str, new: str, message: str) -> None:
    assert old in TEXT
    with pytest.raises(DataError, match=re.escape(message)):
        parse_catalogue(TEXT.replace(old, new, 1))


def test_overlapping_paths_are_refused_in_any_order() -> None:
    begin, end = TEXT.index("[[entry.archive.files]]"), TEXT.rindex("[[entry.archive.files]]")
    licence = TEXT[end:].replace("LICENSE", "texts/LICENSE.txt")
    with pytest.raises(DataError, match=r"'texts/LICENSE.txt' and 'texts/\*.txt' name the same files"):
        parse_catalogue(TEXT[:begin] + licence + TEXT[begin:end])


def test_duplicate_names_are_refused() -> None:
    with pytest.raises(DataError, match="two entries named 'poems-2'"):
        parse_catalogue(TEXT + TEXT)


def test_entry_without_archive_is_refused() -> None:
    with pytest.raises(DataError, match="the field 'archive' is missing"):
        parse_catalogue(TEXT[: TEXT.index("[[entry.archive]]")])
