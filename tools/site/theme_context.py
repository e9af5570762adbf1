"""MkDocs hook: what the template of the site needs, and one search index for each language.

The index is a script, because pages that are opened from disk may load scripts but not read files.
"""

from __future__ import annotations

import json
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.nav import Navigation
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
LANGUAGES = {"en": "English", "ko": "한국어"}
WORDS = tomllib.loads(Path(__file__).with_name("theme_texts.toml").read_text(encoding="utf-8"))
REFERENCE_TEXT = 160  # characters of each section of the reference in the index, which is most of the site
ENGLISH_NOTE = (
    '!!! note "이 페이지는 영어로 제공됩니다"\n    코드의 설명에서 자동으로 생성한 문서라서 영어로 되어 있습니다.\n\n'
)

# by language: for each page its address, its title, and its sections as (anchor, heading, text)
search_entries: dict[str, list[tuple[str, str, list[tuple[str, str, str]]]]] = {language: [] for language in LANGUAGES}


def get_language(page: Page) -> str:
    """Return the language of the site that this page is part of; the Korean one has English pages too."""
    return "ko" if page.url.startswith("ko/") else "en"


def is_generated(page: Page) -> bool:
    """Return whether ``reference_pages.py`` wrote this page."""
    uri = page.file.src_uri
    return "reference/" in uri and not uri.endswith("reference/index.md")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Take the address of the repository, if there is one, from the package's metadata."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    config.repo_url = project.get("urls", {}).get("Repository")
    return config


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put a note under the title of a generated page, if the site that is being built is Korean."""
    if get_language(page) != "ko" or not is_generated(page):
        return markdown
    title, _, body = markdown.partition("\n")
    return f"{title}\n\n{ENGLISH_NOTE}{body}"


def on_env(environment: Environment, *, config: MkDocsConfig, files: Files) -> Environment:
    """Add the filter by which a tab leads to the first page of its section."""
    environment.filters["first_page"] = find_first_page
    return environment


def find_first_page(items: list[Any]) -> Page:
    """Return the first page of a section."""
    return find_first_page(items[0].children) if items[0].is_section else items[0]


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Collect the sections of a page for the search."""
    parser = SectionParser()
    parser.feed(html)
    limit = REFERENCE_TEXT if is_generated(page) else None
    sections = [
        (anchor, " ".join(heading.split()), " ".join(text.split())[:limit]) for anchor, heading, text in parser.sections
    ]
    search_entries[get_language(page)].append((page.url, page.title or sections[0][1], sections))
    return html


def on_page_context(context: dict[str, Any], *, page: Page, config: MkDocsConfig, nav: Navigation) -> dict[str, Any]:
    """Give the template the language, its words, the same page in the other language, and the section of the page."""
    language = get_language(page)
    other = "en" if language == "ko" else "ko"
    alternate = page.file.alternates.get(other)
    url = alternate.url if alternate is not None else ("index.html" if language == "ko" else "ko/index.html")
    section = next((item for item in nav.items if item.is_section and item.active), None)
    words = WORDS[language]
    home = "ko/index.html" if language == "ko" else "index.html"
    return {
        **context,
        "home": home,
        "language": language,
        "words": words,
        "alternate": {"url": url, "language": other, "name": LANGUAGES[other]},
        "section": section,
    }


def on_post_build(*, config: MkDocsConfig) -> None:
    """Write the search indexes; MkDocs calls this once per language."""
    for language, entries in search_entries.items():
        if entries:
            path = Path(config.site_dir) / "assets" / f"search-{language}.js"
            path.parent.mkdir(exist_ok=True)
            text = json.dumps(entries, ensure_ascii=False, separators=(",", ":"))
            path.write_text(f"jumokSearch({text})\n", encoding="utf-8")


class SectionParser(HTMLParser):
    """Split the HTML of a page at its headings."""

    def __init__(self) -> None:
        super().__init__()
        self.sections: list[list[str]] = [["", "", ""]]
        self._heading = ""  # the tag of the heading that is being read
        self._skipped = ""  # the tag of an element that is not text
        self._depth = 0

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        names = dict(attributes)
        classes = set((names.get("class") or "").split())
        if self._skipped:
            self._depth += tag == self._skipped
        elif tag in ("script", "style") or {"headerlink", "mkdocstrings-source"} & classes:
            self._skipped, self._depth = tag, 1
        elif tag in ("h1", "h2", "h3", "h4") and names.get("id"):
            self.sections.append([names["id"] or "", "", ""])
            self._heading = tag

    def handle_endtag(self, tag: str) -> None:
        if tag == self._skipped:
            self._depth -= 1
            if not self._depth:
                self._skipped = ""
        elif tag == self._heading:
            self._heading = ""

    def handle_data(self, data: str) -> None:
        if not self._skipped:
            self.sections[-1][1 if self._heading else 2] += data + ("" if self._heading else " ")
