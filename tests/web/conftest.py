"""A session of the model tiny, without a browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from page_client import PageClient

from jumok.web.session import Session, Start


@pytest.fixture(scope="module")
def client(request: pytest.FixtureRequest) -> Iterator[PageClient]:
    """A client of a session that begins with the constant TEXT of the test file."""
    session = Session(Start("tiny", request.module.TEXT))
    yield PageClient(session)
    session.close()
