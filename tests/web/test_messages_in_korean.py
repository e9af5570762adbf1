"""What a session sends as text is in its language; the page has its other words itself."""

from __future__ import annotations

from page_client import PageClient

from jumok.web.session import Session, Start


def test_errors_and_notes_are_in_the_language_of_the_session() -> None:
    session = Session(Start("tiny", "the cat; the", language="ko"))
    try:
        client = PageClient(session)
        failure = client.fail("run", model="no-model", text="", edits=[])
        assert failure.reason == "invalid" and str(failure) == "모델 목록에 'no-model' 모델이 없습니다"
        assert "아직 3번 실행이 없습니다. 먼저 실행하세요" in str(client.fail("kinds", run=3))
    finally:
        session.close()
    session = Session(Start("tiny", "the cat; the", language="en"))
    try:
        assert "in the list of models" in str(PageClient(session).fail("run", model="no-model", text="", edits=[]))
    finally:
        session.close()
