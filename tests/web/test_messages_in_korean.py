"""What a session sends as text is in its language; the page has its other words itself."""

from __future__ import annotations

from page_client import PageClient

from jumok.web.session import Session, Start

TEXT = "the cat"


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


def test_an_ask_names_the_language_of_its_page(client) -> None:
    refused = {"model": "tiny", "text": "the cat", "edits": [{"edit": "Scale", "temperature": 1e-300}]}
    assert str(client.fail("run", **refused)).startswith("edit 1: temperature must be")
    assert str(client.fail("run", language="ko", **refused)).startswith("편집 1: 온도: 1e-06 이상인")
    unknown = client.fail("run", language="ko", model="translator", text="용가리 붕붕")
    assert str(unknown).startswith("이 모델의 어휘에 없는 단어가 있습니다: 용가리")
    assert "정수여야" in str(client.fail("kinds", language="ko", run="1"))
    assert client.fail("kinds", language="fr", run=1).reason == "invalid"
