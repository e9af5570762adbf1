"""Test the parser of catalogue.toml."""

from __future__ import annotations

import re

import pytest

from jumok.data.catalogue import Archive, Entry, FileSet
from jumok.data.catalogue.entries import parse_catalogue
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
        ("[[entry]]", "[[entry", "the catalogue is not valid: Expected"),
        ("[[entry]]", "[[other]]\n[[entry]]", "unknown field `other`"),
        ('name = "poems-2"', 'name = "../poems"', "matching regex '^[a-z0-9][a-z0-9-]*$' - at `$.entry[0].name`"),
        ('kind = "data"', 'kind = "book"', "Invalid enum value 'book' - at `$.entry[0].kind`"),
        ('licence = "MIT"', "", "missing required field `licence` - at `$.entry[0]`"),
        ('licence = "MIT"', "licence = 3", "Expected `str`, got `int` - at `$.entry[0].licence`"),
        ('licence = "MIT"', 'licence = "MIT"\nlicense = "MIT"', "unknown field `license` - at `$.entry[0]`"),
        ('client = "pip"', 'client = "dnf"', "Invalid enum value 'dnf' - at `$.entry[0].archive[0].client`"),
        ('client = "pip"', 'client = "npm"', "sdist, python and platform apply to pip only"),
        ("sdist = true", 'sdist = "yes"', "Expected `bool`, got `str` - at `$.entry[0].archive[0].sdist`"),
        ("size = 1_234", "size = -1", "Expected `int` >= 1 - at `$.entry[0].archive[0].size`"),
        ("size = 1_234", "size = true", "Expected `int`, got `bool`"),
        (DIGITS, DIGITS[1:], "matching regex '^[0-9a-f]{64}$'"),
        (DIGITS, DIGITS.upper(), "matching regex '^[0-9a-f]{64}$'"),
        ("count = 3", "count = 1", "must contain one * each if count is larger than 1"),
        ("texts/*.txt", "texts/a.txt", "must contain one * each if count is larger than 1"),
        ("texts/*.txt", "../*.txt", "'../*.txt' is not allowed as a local path - at `$.entry[0].archive[0].files[0]`"),
        ("texts/*.txt", "/*.txt", "is not allowed as a local path"),
        ("texts/*.txt", "texts/../*.txt", "'texts/../*.txt' is not allowed as a local path"),
        (
            "LICENSE",
            "manifest.json",
            "'manifest.json' is not allowed as a local path - at `$.entry[0]",
        ),
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
    with pytest.raises(DataError, match="missing required field `archive`"):
        parse_catalogue(TEXT[: TEXT.index("[[entry.archive]]")])
