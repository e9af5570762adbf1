"""MkDocs hook: link the languages by relative paths, and note on Korean pages that the reference is English."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ENGLISH_NOTE = (
    '!!! note "이 페이지는 영어로 제공됩니다"\n    코드의 설명에서 자동으로 생성한 문서라서 영어로 되어 있습니다.\n\n'
)


def is_generated(page: Page) -> bool:
    """Return whether ``reference_pages.py`` wrote this page."""
    uri = page.file.src_uri
    return "reference/" in uri and not uri.endswith("reference/index.md")


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put the note under the title of a generated page, if the site that is being built is Korean."""
    if config.theme["language"] != "ko" or not is_generated(page):
        return markdown
    title, _, body = markdown.partition("\n")
    return f"{title}\n\n{ENGLISH_NOTE}{body}"


def on_page_context(context: dict[str, object], *, page: Page, config: MkDocsConfig, nav: object) -> dict[str, object]:
    """Replace the absolute links of the language selector, which do not work when the site is opened from disk."""
    for alternate in config.extra.get("alternate", []):
        if alternate["link"].startswith("/"):
            alternate["link"] = alternate["link"].lstrip("/") + "index.html"
    return context
