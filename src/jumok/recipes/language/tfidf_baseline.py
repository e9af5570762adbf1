"""The baseline of the recipe ``sentiment``: TF-IDF features and logistic regression, by scikit-learn (optional)."""

from __future__ import annotations

import importlib.util

from jumok.errors import ArgumentError

LabelledTexts = list[tuple[str, str]]  # text, label

REGULARIZATION = (1.0, 3.0, 10.0)  # scikit-learn's C: larger = weaker regularization
CLASS_WEIGHTS = (None, "balanced")


def require_scikit_learn() -> None:
    """Raise an ArgumentError if scikit-learn is not installed. The recipe calls this before it trains."""
    if importlib.util.find_spec("sklearn") is None:
        raise ArgumentError(
            "the sentiment recipe compares its model with scikit-learn's logistic regression: "
            'pip install "jumok[train]"'
        )


def predict_baseline(train: LabelledTexts, validation: LabelledTexts, held_out: LabelledTexts) -> list[str]:
    """Train the baseline and return its labels for the held-out texts.

    The settings with the best macro-F1 on the validation texts are chosen; the final model is then trained on the
    training and the validation texts.
    """
    from sklearn.metrics import f1_score

    baseline = _Baseline(train)
    labels = [label for _, label in validation]
    best_score = -1.0
    best_settings: tuple[float, str | None] = (1.0, None)
    for class_weight in CLASS_WEIGHTS:
        for strength in REGULARIZATION:
            predictions = baseline.predict(validation, strength, class_weight)
            score = float(f1_score(labels, predictions, average="macro"))
            if score > best_score:
                best_score, best_settings = score, (strength, class_weight)
    return _Baseline(train + validation).predict(held_out, *best_settings)


class _Baseline:
    """TF-IDF features of words, punctuation marks and bigrams; with more than 1,000 texts, only repeated ones."""

    def __init__(self, texts: LabelledTexts) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        self.vectorizer = TfidfVectorizer(
            ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\w+|[^\w\s]", min_df=2 if len(texts) > 1000 else 1
        )
        self.features = self.vectorizer.fit_transform([text for text, _ in texts])
        self.labels = [label for _, label in texts]

    def predict(self, texts: LabelledTexts, strength: float, class_weight: str | None) -> list[str]:
        """Fit the logistic regression and return its labels for other texts."""
        from sklearn.linear_model import LogisticRegression

        model = LogisticRegression(C=strength, class_weight=class_weight, max_iter=2000)
        model.fit(self.features, self.labels)
        return [str(label) for label in model.predict(self.vectorizer.transform([text for text, _ in texts]))]
