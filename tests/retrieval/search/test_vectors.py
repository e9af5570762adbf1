"""Vectors: exact products against numpy, the graph of neighbours, stored files, and vectors of minilm."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import jumok
from catalogue_cache import download_or_skip
from jumok.checkpoint import Loaded
from jumok.data.tokenizers.tokenizer import Tokenizer
from jumok.errors import ArgumentError, ContextWarning, DataError
from jumok.models.bert import BERT, BERTConfig
from jumok.models.gpt import GPT, GPTConfig
from jumok.retrieval.search import embedding as embedding_module
from jumok.retrieval.search.embedding import embed_passages, embed_question
from jumok.retrieval.search.vectors import NeighbourGraph, VectorIndex


def random_vectors(number: int, width: int, seed: int = 3) -> np.ndarray:
    vectors = np.random.default_rng(seed).standard_normal((number, width)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def rank_by_products(matrix: np.ndarray, vector: np.ndarray) -> list[int]:
    return np.argsort(-(matrix.astype(np.float64) @ vector.astype(np.float64)), kind="stable").tolist()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_exact_search_equals_sorted_products(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jumok.retrieval.search.vectors.BLOCK_ROWS", 101)
    matrix = random_vectors(1009, 37).astype(dtype)
    index = VectorIndex(matrix)
    for vector in random_vectors(5, 37, seed=8):
        outcome = index.search(vector, 11)
        numbers = [number for number, _ in outcome]
        assert numbers == rank_by_products(matrix, vector)[:11]
        expected = matrix[numbers].astype(np.float64) @ vector
        assert [cosine for _, cosine in outcome] == pytest.approx(expected.tolist(), abs=1e-6)
        assert index.score(vector, numbers) == pytest.approx(expected.tolist(), abs=1e-6)


def test_equal_vectors_come_in_the_order_of_their_numbers() -> None:
    index = VectorIndex(np.repeat(random_vectors(2, 5), 7, axis=0))
    vector = random_vectors(2, 5)[1]
    assert [number for number, _ in index.search(vector, 5)] == [7, 8, 9, 10, 11]
    assert len(index.search(vector, 99)) == 14


def test_stored_vectors_are_mapped(tmp_path: Path) -> None:
    matrix = random_vectors(13, 5).astype(np.float16)
    np.save(tmp_path / "vectors.npy", matrix)
    index = VectorIndex.open(tmp_path / "vectors.npy")
    assert len(index) == 13 and index.is_exact and isinstance(index._matrix, np.memmap)
    assert [number for number, _ in index.search(matrix[4].astype(np.float32), 1)] == [4]


def test_an_empty_matrix_finds_nothing(tmp_path: Path) -> None:
    np.save(tmp_path / "vectors.npy", np.empty((0, 5), dtype=np.float16))
    index = VectorIndex.open(tmp_path / "vectors.npy")
    assert len(index) == 0 and index.search(random_vectors(1, 5)[0], 3) == []


def test_damaged_vectors_are_noticed(tmp_path: Path) -> None:
    file = tmp_path / "vectors.npy"
    with pytest.raises(DataError, match="build the index again"):
        VectorIndex.open(file)
    np.save(file, random_vectors(13, 5))
    file.write_bytes(file.read_bytes()[:-7])
    with pytest.raises(DataError, match="build the index again"):
        VectorIndex.open(file)
    np.save(file, np.array([{"a": 1}]), allow_pickle=True)
    with pytest.raises(DataError, match="build the index again"):
        VectorIndex.open(file)
    np.save(file, np.zeros((3, 5)))
    with pytest.raises(DataError, match="float32 or float16"):
        VectorIndex.open(file)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_nan_is_never_a_result(dtype: str) -> None:
    matrix = random_vectors(7, 5).astype(dtype)
    with pytest.raises(ArgumentError, match="must be finite"):
        VectorIndex(matrix).search(np.array([0, 0, np.nan, 0, 0], dtype=np.float32), 2)
    matrix[3, 1] = np.nan
    with pytest.raises(DataError, match="vector 3 of the index"):
        VectorIndex(matrix).search(random_vectors(1, 5)[0], 2)
    with pytest.raises(DataError, match="vector 3 of the index"):
        VectorIndex(matrix).score(random_vectors(1, 5)[0], [2, 3])


def test_wrong_arguments() -> None:
    index = VectorIndex(random_vectors(7, 5))
    with pytest.raises(ArgumentError, match="must have 5 numbers"):
        index.search(random_vectors(1, 3)[0], 2)
    with pytest.raises(ArgumentError, match="at least 1"):
        index.search(random_vectors(1, 5)[0], 0)
    with pytest.raises(ArgumentError, match="there is no vector 7"):
        index.score(random_vectors(1, 5)[0], [7])


def measure_recall(matrix: np.ndarray, questions: np.ndarray, folder: Path, count: int = 10) -> float:
    """Which share of the exact neighbours a search in the graph finds."""
    graph = NeighbourGraph.build(folder / "graph", matrix)
    exact, approximate = VectorIndex(matrix), VectorIndex(matrix, graph)
    assert not approximate.is_exact
    common = 0
    for vector in questions:
        expected = {number for number, _ in exact.search(vector, count)}
        common += len(expected & {number for number, _ in approximate.search(vector, count)})
    return common / (count * len(questions))


def test_the_graph_finds_the_neighbours_of_random_vectors(tmp_path: Path) -> None:
    pytest.importorskip("usearch")
    assert measure_recall(random_vectors(3001, 32), random_vectors(50, 32, seed=4), tmp_path) >= 0.95


def test_the_scores_of_the_graph_are_exact_products(tmp_path: Path) -> None:
    pytest.importorskip("usearch")
    matrix = np.concatenate([random_vectors(500, 16), random_vectors(500, 16)])  # each vector twice
    index = VectorIndex(matrix, NeighbourGraph.build(tmp_path / "graph", matrix))
    vector = random_vectors(1, 16, seed=5)[0]
    outcome = index.search(vector, 6)
    assert [cosine for _, cosine in outcome] == pytest.approx(
        (matrix[[n for n, _ in outcome]] @ vector).tolist(), abs=1e-6
    )
    assert [number for number, _ in outcome][::2] == [number - 500 for number, _ in outcome][1::2]
    assert index.search(vector, 6) == outcome


def test_damaged_graphs_are_noticed(tmp_path: Path) -> None:
    pytest.importorskip("usearch")
    matrix, file = random_vectors(101, 5), tmp_path / "graph"
    with pytest.raises(DataError, match="no graph"):
        NeighbourGraph.open(file)
    graph = NeighbourGraph.build(file, matrix)
    with pytest.raises(DataError, match="101 vectors, but there are 100"):
        VectorIndex(matrix[:100], graph)
    del graph
    file.write_bytes(b"damaged")
    with pytest.raises(DataError, match="damaged"):
        NeighbourGraph.open(file)


# embedding


@pytest.fixture(scope="module")
def small_embedder() -> Loaded:
    """A small encoder with random parameters and bytes as tokens."""
    torch.manual_seed(0)
    config = BERTConfig(vocabulary=256, width=24, layers=2, heads=3, hidden=48, length=40)
    return Loaded(BERT(config).eval(), Tokenizer.for_bytes())


TEXTS = ["a white whale", "ship", "the rabbit looked at its watch", "x", "ship", "Call me Ishmael."]


def test_vectors_are_means_of_length_1_in_the_order_of_the_texts(
    small_embedder: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding_module, "CHUNK", 4)
    monkeypatch.setattr(embedding_module, "BATCH_TOKENS", 40)
    finished: list[int] = []
    vectors = list(embed_passages(small_embedder, iter(TEXTS), finished.append))
    assert len(vectors) == len(TEXTS) and finished[-1] == len(TEXTS) and finished == sorted(finished)
    for text, vector in zip(TEXTS, vectors, strict=True):
        with torch.no_grad():
            hidden = small_embedder.model(torch.tensor([list(text.encode())])).hidden[0].double()
        mean = hidden.mean(0)
        assert vector.dtype == np.float32 and np.allclose(vector, (mean / mean.norm()).numpy(), atol=1e-6)
    assert np.array_equal(embed_question(small_embedder, TEXTS[2]), next(embed_passages(small_embedder, [TEXTS[2]])))
    assert list(embed_passages(small_embedder, [])) == []


def test_tasks_compute_the_same_vectors(small_embedder: Loaded) -> None:
    vectors = np.stack(list(embed_passages(small_embedder, TEXTS)))
    assert np.allclose(jumok.run(small_embedder, TEXTS).numpy(), vectors, atol=1e-6)


def test_texts_beyond_the_context_are_cut_with_a_warning(small_embedder: Loaded) -> None:
    with pytest.warns(ContextWarning, match="2 of the texts are longer than the 40 tokens"):
        vectors = list(embed_passages(small_embedder, ["a" * 41, "b" * 100, "c" * 40]))
    assert np.allclose(vectors[0], next(embed_passages(small_embedder, ["a" * 40])), atol=1e-6)


def test_nan_of_the_model_is_an_error(small_embedder: Loaded) -> None:
    model = BERT(small_embedder.config).eval()
    with torch.no_grad():
        model.embedding.weight[ord("x")] = float("nan")
    damaged = Loaded(model, small_embedder.tokenizer)
    assert len(list(embed_passages(damaged, ["ship"]))) == 1
    with pytest.raises(DataError, match="NaN or infinity for the text 'box'"):
        list(embed_passages(damaged, ["ship", "box"]))


def test_other_models_embed_nothing() -> None:
    config = GPTConfig(vocabulary=256, width=24, layers=1, heads=3, length=40)
    gpt = Loaded(GPT(config).eval(), Tokenizer.for_bytes())
    with pytest.raises(ArgumentError, match='needs a model that embeds text, such as "minilm"'):
        list(embed_passages(gpt, ["a"]))
    encoder = BERTConfig(vocabulary=256, width=24, layers=1, heads=3, hidden=48)
    with pytest.raises(ArgumentError, match="no tokenizer"):
        list(embed_passages(Loaded(BERT(encoder).eval(), None), ["a"]))


@pytest.mark.slow
@pytest.mark.xdist_group("real")
def test_minilm_vectors_equal_transformers() -> None:
    from transformers import AutoModel, AutoTokenizer

    folder = download_or_skip("minilm")
    texts = ["Who follows the rabbit?", "The captain lost his leg to a whale. " * 9, "나는 학교에 간다"]
    tokenizer, reference = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    for text, vector in zip(texts, embed_passages(jumok.load(folder), texts), strict=True):
        with torch.no_grad():
            mean = reference(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0)
        assert np.allclose(vector, (mean / mean.norm()).numpy(), atol=1e-5)


@pytest.mark.slow
@pytest.mark.xdist_group("real")
def test_the_graph_finds_the_neighbours_of_real_vectors(tmp_path: Path) -> None:
    pytest.importorskip("usearch")
    loaded = jumok.load(download_or_skip("minilm"))
    text = (download_or_skip("gutenberg") / "carroll-alice.txt").read_text(errors="replace")
    sentences = [" ".join(sentence.split()) for sentence in text.split(".") if len(sentence) > 40][:311]
    matrix = np.stack(list(embed_passages(loaded, sentences)))
    assert measure_recall(matrix, matrix[::7], tmp_path) >= 0.95
