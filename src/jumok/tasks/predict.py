"""Tasks that answer in one forward pass: embed, fill, classify, score, and predict numbers."""

from __future__ import annotations

from typing import TypedDict

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from jumok.checkpoint import Loaded
from jumok.errors import ArgumentError
from jumok.generate.decoding import pad_tokens
from jumok.retrieval.search.embedding import embed_token_ids, normalize_rows

from .model_inputs import ModelInput

FILL_COUNT = 5  # tokens returned for each masked position

# Functional syntax, because "class" is a keyword.
ClassShare = TypedDict("ClassShare", {"class": int, "name": str | None, "share": float})


class TokenShare(TypedDict):
    """A candidate token of a masked position, and its probability."""

    token: str
    share: float


@torch.inference_mode()
def embed(loaded: Loaded, inputs: list[ModelInput]) -> Float[Tensor, "batch width"]:
    """Return one vector of length 1 for each input.

    The vector of a text is the mean over its tokens. The vector of an image is the class token's, or the mean over its
    patches if the model has no class token.

    Args:
        loaded: An encoder without a head.
        inputs: Texts or images.
    """
    if loaded.model.reads == "text":
        return embed_token_ids(loaded.model, [model_input.token_ids for model_input in inputs])
    hidden = torch.cat([loaded.model(model_input.source).hidden for model_input in inputs])
    return normalize_rows(hidden[:, 0] if loaded.model.prefix_tokens else hidden.mean(1))


@torch.inference_mode()
def fill(loaded: Loaded, inputs: list[ModelInput]) -> list[list[list[TokenShare]]]:
    """Return the most probable tokens for each masked position of each text.

    Args:
        loaded: An encoder with a masked-language-model head, with its tokenizer.

    Raises:
        ArgumentError: If no text contains the mask token.
    """
    tokenizer = loaded.require_tokenizer()
    tokens, token_mask = _encode_and_pad(loaded, inputs)
    if tokenizer.mask is None:
        raise ArgumentError("this model's tokenizer has no mask token, so it cannot fill masks")
    is_masked = tokens == tokenizer.mask
    if not is_masked.any():
        name = tokenizer.id_to_token(tokenizer.mask)
        raise ArgumentError(f"the text contains no mask token; write {name} at the position to fill")

    logits = loaded.model(tokens, token_mask=token_mask).logits
    answers = []
    for text_logits, text_mask in zip(logits, is_masked, strict=True):
        positions = []
        for position_logits in text_logits[text_mask]:
            best = position_logits.softmax(-1).topk(FILL_COUNT)
            ranked = zip(best.values.tolist(), best.indices.tolist(), strict=True)
            positions.append(
                [TokenShare(token=tokenizer.decode([token]).strip(), share=share) for share, token in ranked]
            )
        answers.append(positions)
    return answers


@torch.inference_mode()
def classify(loaded: Loaded, inputs: list[ModelInput]) -> list[list[ClassShare]]:
    """Return all classes of each input with their probabilities, most probable first.

    The probabilities sum to 1, unless several classes may hold at once (``independent_classes``). A class has the name
    None if the model has no labels.

    Args:
        inputs: Texts or images.
    """
    # A single class is an independent probability too: its softmax would always be 1.
    independent = loaded.model.independent_classes or loaded.model.class_count == 1
    answers = []
    for logits in _compute_logits(loaded, inputs):
        probabilities = logits.sigmoid() if independent else logits.softmax(-1)
        shares, classes = probabilities.sort(descending=True, stable=True)
        ranked = zip(classes.tolist(), shares.tolist(), strict=True)
        answers.append([_describe_class(loaded, index, share) for index, share in ranked])
    return answers


@torch.inference_mode()
def score(loaded: Loaded, inputs: list[ModelInput]) -> list[list[float]]:
    """Return the outputs of a regression head for each input.

    Args:
        loaded: A model with a regression head.
        inputs: Texts or images.
    """
    return [logits.tolist() for logits in _compute_logits(loaded, inputs)]


@torch.inference_mode()
def predict_numbers(loaded: Loaded, inputs: list[ModelInput]) -> list[list[float]]:
    """Return as many predicted numbers as each sequence has."""
    model = loaded.model
    return [model.predict(model_input.source, model_input.source.shape[1])[0].tolist() for model_input in inputs]


def _describe_class(loaded: Loaded, index: int, share: float) -> ClassShare:
    name = None if loaded.labels is None else loaded.labels[index]
    return {"class": index, "name": name, "share": share}


def _compute_logits(loaded: Loaded, inputs: list[ModelInput]) -> list[Float[Tensor, " classes"]]:
    if loaded.model.reads != "text":
        return [loaded.model(model_input.source).logits[0].float() for model_input in inputs]
    tokens, token_mask = _encode_and_pad(loaded, inputs)
    return list(loaded.model(tokens, token_mask=token_mask).logits.float())


def _encode_and_pad(
    loaded: Loaded, inputs: list[ModelInput]
) -> tuple[Int[Tensor, "batch length"], Bool[Tensor, "batch length"]]:
    """Return token ids, padded on the right, and their mask (True = real token)."""
    tokens, token_mask = pad_tokens([model_input.token_ids for model_input in inputs], loaded.model.device)
    if token_mask is None:
        token_mask = torch.ones_like(tokens, dtype=torch.bool)
    return tokens, token_mask
