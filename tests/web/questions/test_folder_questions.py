"""Questions to a session: the answer, its passages, the answer without some, and the attention of the prompt."""

from __future__ import annotations

import contextlib
import io
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from answering_session import FILES, QUESTION, answer_from, create_fusion, create_loaded
from page_client import FailedAskError, PageClient

from jumok import tap
from jumok.lens import KnockOut, Lens
from jumok.retrieval import FolderIndex, open_index
from jumok.tasks.ask import AskSettings, FusionReader, PromptReader, ask
from jumok.web.session import Session, Start
from retrieval.index_folders import write_files

LOADED = create_loaded()


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FolderIndex]:
    """An index that is searched by words."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUMOK_CACHE", str(tmp_path_factory.mktemp("cache")))
        with open_index(write_files(tmp_path_factory.mktemp("notes"), FILES), embedder=None) as opened:
            yield opened


@pytest.fixture(scope="module")
def client(index: FolderIndex) -> Iterator[PageClient]:
    with answer_from(index, LOADED) as session:
        yield PageClient(session)


@pytest.fixture
def answer(client: PageClient) -> dict[str, Any]:
    return client.ask("question", question=QUESTION)


def score_without(answer: dict[str, Any], cut: list[int]) -> float:
    """The log-probability of the answer, computed without the lens: the tokens of the passages are left out."""
    reader = PromptReader(LOADED)
    texts = [passage["text"] for passage in answer["passages"]]
    prompt, reading = reader.build_prompt(QUESTION, texts), reader.read(QUESTION, texts, 6)
    tokens = [*prompt.token_ids, *reading.token_ids]
    hidden = {position for index in cut for position in prompt.passages[index]}
    positions = torch.tensor([position for position in range(len(tokens) - 1) if position not in hidden])
    with torch.no_grad():
        logits = LOADED.model(torch.tensor([tokens])[:, positions], positions=positions).logits[0]
    rows = logits[-len(reading.token_ids) :].double().log_softmax(-1)
    return float(rows.gather(-1, torch.tensor(reading.token_ids)[:, None]).sum())


def test_hello_names_the_folder_and_the_reader_only(client: PageClient) -> None:
    hello = client.ask("hello")
    assert hello["questions"] == {"folder": "notes", "question": QUESTION, "max_question": 2000}
    assert [model["name"] for model in hello["models"]] == ["GPT"]
    assert {"question", "evidence", "cut"} <= set(hello["can"])


def test_a_session_without_files_answers_no_questions() -> None:
    session = Session(Start("tiny", "the cat"))
    client = PageClient(session)
    hello = client.ask("hello")
    assert hello["questions"] is None and not {"question", "evidence", "cut"} & set(hello["can"])
    assert "jumok ask FOLDER --open" in str(client.fail("question", question="Who?"))
    assert "jumok ask FOLDER --open" in str(client.fail("run", model="tiny", text="a", answer=1))
    session.close()


def test_the_answer_is_that_of_jumok_ask(client: PageClient, index: FolderIndex, answer: dict[str, Any]) -> None:
    expected = ask(index, QUESTION, PromptReader(LOADED), AskSettings(passages=3, limit=6, why=True))
    passages = [passage for passage in expected.passages if not passage.is_control]
    assert (answer["text"], answer["verdict"]) == (expected.text, expected.verdict)
    assert [passage["location"] for passage in answer["passages"]] == [hit.hit.passage.location for hit in passages]
    assert [passage["change"] for passage in answer["passages"]] == pytest.approx([hit.change for hit in passages])
    cited = None if expected.citation is None else passages.index(expected.citation)
    assert answer["citation"] == cited and answer["is_cuttable"] and answer["has_attention"]

    evidence = client.ask("evidence", answer=answer["number"])
    assert evidence["attention"] == pytest.approx([hit.attention for hit in passages], abs=1e-6)
    controls = [passage for passage in expected.passages if passage.is_control]
    assert len(passages) == 3 and len(controls) == 1
    assert [control["location"] for control in evidence["controls"]] == [hit.hit.passage.location for hit in controls]
    for name in ("change", "attention"):
        measured = [control[name] for control in evidence["controls"]]
        assert measured == pytest.approx([getattr(hit, name) for hit in controls], abs=1e-4)


@pytest.mark.parametrize("cut", [[0], [1], [2, 0], [0, 1, 2]])
def test_a_cut_rewrites_the_answer_and_scores_the_first_one(client, answer, cut: list[int]) -> None:
    body = client.ask("cut", answer=answer["number"], cut=cut)
    assert body["cut"] == sorted(cut) and body["note"] is None
    expected = score_without(answer, cut) - score_without(answer, [])
    assert body["change"] == pytest.approx(expected, abs=1e-4) and abs(expected) > 1e-2

    reader = PromptReader(LOADED)
    prompt = reader.build_prompt(QUESTION, [passage["text"] for passage in answer["passages"]])
    with Lens(LOADED) as lens:
        edits = [KnockOut(key=prompt.passages[index]) for index in cut]
        generation = lens.generate(torch.tensor([prompt.token_ids]), edits=edits, limit=6)
    assert body["text"] == reader.tokenizer.decode(generation.token_ids).strip()


def test_a_run_reads_the_prompt_and_its_answer_with_the_same_cuts(client, answer) -> None:
    first, end = answer["passages"][1]["range"]
    edit = KnockOut(key=range(first, end)).to_json()
    run = client.ask("run", model="GPT", answer=answer["number"], edits=[edit])
    assert run["answered"]["number"] == answer["number"]
    assert [passage["range"] for passage in run["answered"]["passages"]] == [
        passage["range"] for passage in answer["passages"]
    ]
    assert "".join(run["source"][first:end]).startswith(answer["passages"][1]["text"].replace(" ", "␣"))
    assert run["generated"] < len(run["source"]) and run["text"] == QUESTION and run["edits"] == [edit]

    # the log-probability of the answer under the edits of the page is that of the cut
    reader = PromptReader(LOADED)
    reading = reader.read(QUESTION, [passage["text"] for passage in answer["passages"]], 6)
    rows = {prediction["position"]: prediction["actual"] for prediction in run["edited"]}
    start = run["generated"] - 1
    assert [rows[start + step]["id"] for step in range(6)] == list(reading.token_ids)
    log_probability = sum(torch.tensor(rows[start + step]["probability"]).log() for step in range(6))
    change = float(log_probability) - sum(reading.log_probabilities)
    assert change == pytest.approx(client.ask("cut", answer=answer["number"], cut=[1])["change"], abs=1e-3)
    row = client.ask_floats("line", run=run["run"], show="edited", site=1, head=2, query=len(run["source"]) - 1)
    assert row[first:end].sum() == 0 and row.sum() == pytest.approx(1, abs=1e-5)


def test_the_code_of_a_prompt_runs_and_prints_the_same_weight(client, answer) -> None:
    run = client.ask("run", model="GPT", answer=answer["number"], edits=[])
    selection = {"site": 0, "head": 0, "query": 40, "key": 3}
    code = client.ask("code", run=run["run"], selection=selection)["code"]
    code = code.replace("model = ...", "model = LOADED.model").replace(
        "tokenizer = ...", "tokenizer = LOADED.tokenizer"
    )
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {"LOADED": LOADED})
    weight = client.ask_floats("line", run=run["run"], show="clean", site=0, head=0, query=40)[3]
    assert f"clean weight: {weight}"[:20] in printed.getvalue()


def test_a_model_that_cannot_write_without_a_passage_says_why(index: FolderIndex) -> None:
    with answer_from(index, create_loaded(positions="alibi")) as session:
        client = PageClient(session)
        number = client.ask("question", question=QUESTION)["number"]
        body = client.ask("cut", answer=number, cut=[0, 1])
        assert body["text"] is None and "needs a model without a window" in body["note"] and body["change"] != 0


def test_passages_that_are_read_apart_can_be_cut(index: FolderIndex) -> None:
    loaded = create_fusion()
    reader = FusionReader(loaded)
    with answer_from(index, loaded) as session:
        client = PageClient(session)
        answer = client.ask("question", question=QUESTION)
        assert answer["is_cuttable"] and not answer["has_attention"]
        assert answer["passages"][0]["range"][0] == 0
        texts = [passage["text"] for passage in answer["passages"]]
        reading = reader.read(QUESTION, texts, 6)
        body = client.ask("cut", answer=answer["number"], cut=[0, 2])
        remaining = reader.score(QUESTION, [texts[1]], reading.token_ids)
        expected = sum(remaining.log_probabilities) - sum(reading.log_probabilities)
        assert body["change"] == pytest.approx(expected, abs=1e-5) and abs(expected) > 1e-4
        assert body["text"] == reader.read(QUESTION, [texts[1]], 6).text
        assert client.ask("cut", answer=answer["number"], cut=[0, 1, 2])["note"] is None  # all of them
        assert "in one prompt" in str(client.fail("run", model="Fusion", answer=answer["number"]))
        evidence = client.ask("evidence", answer=answer["number"])
        assert len(evidence["attention"]) == 3 and len(evidence["controls"]) == 1


def test_a_question_that_the_reader_cannot_read_gets_passages_only(client: PageClient) -> None:
    body = client.ask("question", question="boat: 언제 떠납니까?")
    assert body["verdict"] is None and body["text"] is None and body["passages"] and not body["is_cuttable"]
    assert "not trained on the language" in body["note"]


@pytest.mark.parametrize(
    ("kind", "fields", "sentence"),
    [
        ("question", {}, "no field question"),
        ("question", {"question": " \n"}, "the question is empty"),
        ("question", {"question": 7}, "question must be a text"),
        ("question", {"question": ["Who?"]}, "question must be a text"),
        ("question", {"question": "a" * 2001}, "of length at most 2000"),
        ("question", {"question": "half \ud83d"}, "half of a character"),
        ("question", {"question": "boat " * 400}, "tokens"),
        ("cut", {}, "no field cut"),
        ("cut", {"cut": []}, "at least one passage"),
        ("cut", {"cut": [0, 1, 2, 0]}, "each once"),
        ("cut", {"cut": [0, 0]}, "each once"),
        ("cut", {"cut": [3]}, "cut must be less than 3"),
        ("cut", {"cut": [-1]}, "cut[0] must be an integer"),
        ("cut", {"cut": [True]}, "cut[0] must be an integer"),
        ("cut", {"cut": [0.0]}, "cut[0] must be an integer"),
        ("cut", {"cut": ["0"]}, "cut[0] must be an integer"),
        ("cut", {"cut": {"0": 1}}, "cut must be a list"),
        ("cut", {"cut": [0], "answer": 10**9}, "ask the question again"),
        ("cut", {"cut": [0], "answer": 0}, "answer must be an integer"),
        ("cut", {"cut": [0], "answer": "1"}, "answer must be an integer"),
        ("evidence", {"answer": None}, "answer must be an integer"),
        ("run", {"model": "GPT", "answer": True}, "answer must be an integer"),
        ("run", {"model": "smollm2", "text": "a"}, "there is no model"),
    ],
    ids=lambda part: str(part)[:40],
)
def test_hostile_asks_get_a_sentence(client, answer, kind: str, fields: dict[str, Any], sentence: str) -> None:
    failure = client.fail(kind, **{"answer": answer["number"], **fields})
    assert failure.reason == "invalid" and sentence in str(failure) and len(str(failure)) < 300


def test_a_path_is_a_question_and_never_opened(client) -> None:
    body = client.ask("question", question="/etc/passwd boat")
    assert {passage["location"].rpartition(":")[0] for passage in body["passages"]} <= set(FILES)


def test_another_client_cannot_cut_an_answer(client, answer) -> None:
    other = PageClient(client.session)
    assert "ask the question again" in str(other.fail("cut", answer=answer["number"], cut=[0]))
    assert "ask the question again" in str(other.fail("run", model="GPT", answer=answer["number"]))


def test_nothing_is_read_where_nothing_was_found(client) -> None:
    body = client.ask("question", question="zzz")
    assert body["verdict"] == "nothing fits" and body["passages"] == [] and not body["is_cuttable"]
    assert "nothing to measure" in str(client.fail("evidence", answer=body["number"]))
    assert "nothing to measure" in str(client.fail("cut", answer=body["number"], cut=[0]))


def test_the_newest_cut_stops_an_older_one_inside_the_model(client, answer, monkeypatch) -> None:
    is_inside, may_go_on, sites = threading.Event(), threading.Event(), []

    def hold(site: str, tapped: object) -> object:
        sites.append(site)
        is_inside.set()
        assert may_go_on.wait(60)
        return tapped

    read = PromptReader.read

    def read_held(*arguments: Any) -> Any:
        with tap.listen(hold):
            return read(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(PromptReader, "read", read_held)
        older = client.begin("cut", answer=answer["number"], cut=[0])
        assert is_inside.wait(60)
    waiting = client.begin("evidence", answer=answer["number"])
    newest = client.begin("cut", answer=answer["number"], cut=[1])
    may_go_on.set()
    for ask_id in (older, waiting):
        with pytest.raises(FailedAskError) as failure:
            client.wait(ask_id)
        assert failure.value.reason == "outdated"
    assert client.wait(newest)[0]["cut"] == [1]
    assert not any(site.startswith("blocks.1") for site in sites)
