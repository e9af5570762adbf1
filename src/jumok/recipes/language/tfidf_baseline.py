"""TF-IDF and logistic regression: what a text classifier has to beat. By scikit-learn, which is an extra."""

from __future__ import annotations

import importlib.util
from typing import Any

from jumok.errors import ArgumentError

Labelled = list[tuple[str, str]]

STRENGTHS = (1.0, 3.0, 10.0)
WEIGHTS = (None, "balanced")


def require_scikit_learn() -> None:
    """Before a model trains for minutes."""
    if importlib.util.find_spec("sklearn") is None:
        raise ArgumentError(
            "the recipe sentiment compares its model with scikit-learn's logistic regression: "
            "pip install 'jumok[train]'"
        )


def predict_baseline(train: Labelled, choosing: Labelled, held_out: Labelled) -> list[str]:
    """The labels that it gives to the held-out texts. Its settings are the best for ``choosing``; then it learns those
    texts too, because nothing else is left to choose."""
    from sklearn.metrics import f1_score

    best: tuple[float, float, str | None] = (-1.0, 1.0, None)
    vectors, read = _read(train)
    wanted, seen = [label for _, label in choosing], read.transform([text for text, _ in choosing])
    for weight in WEIGHTS:
        for strength in STRENGTHS:
            model = _fitted(vectors, train, strength, weight)
            score = float(f1_score(wanted, model.predict(seen), average="macro"))
            best = max(best, (score, strength, weight), key=lambda one: one[0])
    both = train + choosing
    vectors, read = _read(both)
    model = _fitted(vectors, both, *best[1:])
    return [str(label) for label in model.predict(read.transform([text for text, _ in held_out]))]


def _read(texts: Labelled) -> tuple[Any, Any]:
    """Words, marks, and pairs of them; in many texts only those that occur twice."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    read = TfidfVectorizer(
        ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\w+|[^\w\s]", min_df=2 if len(texts) > 1000 else 1
    )
    return read.fit_transform([text for text, _ in texts]), read


def _fitted(vectors: Any, texts: Labelled, strength: float, weight: str | None) -> Any:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=strength, class_weight=weight, max_iter=2000)
    return model.fit(vectors, [label for _, label in texts])
