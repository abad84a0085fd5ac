"""The policy's model: a Llama whose number tokens are sums of their digits, and its files.

A number is one token, so that responses are short.  Its embedding, which the output uses too, is
the sum of one vector for each digit, so that a model of a quarter of a million weights learns
arithmetic digit by digit.  The weights that a run starts from are stored in 8 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from arithmetic_grpo.model import HIDDEN, Llama, Tokens, generate
from torch import Tensor, nn
from torch.nn import functional

from consensuspr.data import Problem, atomic_file

from .task import MAX_RESPONSE_TOKENS, vocabulary

TOKENS = Tokens(vocabulary())


def _parts() -> Tensor:
    """Return the (tokens, parts) matrix of ones where a token has a part."""
    parts: dict[str, int] = {}
    of_tokens = []
    for word in TOKENS.words:
        digits = word.isdigit() and len(word) == 3
        names = [f"{digit} at {place}" for place, digit in enumerate(word)] if digits else [word]
        of_tokens.append([parts.setdefault(name, len(parts)) for name in names])
    matrix = torch.zeros(len(of_tokens), len(parts))
    for row, columns in enumerate(of_tokens):
        matrix[row, columns] = 1
    return matrix


class DigitEmbedding(nn.Module):  # type: ignore[misc]  # torch has no types here
    """Embeddings of tokens, each the sum of its parts."""

    def __init__(self) -> None:
        super().__init__()
        self.of_tokens = _parts()
        self.parts = nn.Parameter(torch.empty(self.of_tokens.shape[1], HIDDEN))

    @property
    def weight(self) -> Tensor:
        """The (tokens, hidden) embeddings."""
        return self.of_tokens @ self.parts

    def forward(self, ids: Tensor) -> Tensor:
        return functional.embedding(ids, self.weight)

    def logits(self, states: Tensor) -> Tensor:
        """Return ``states @ weight.T``, at the price of the parts alone."""
        return (states @ self.parts.T) @ self.of_tokens.T


class StudyModel(Llama):
    """A Llama with embeddings of digits."""

    def __init__(self, seed: int) -> None:
        super().__init__(len(TOKENS.words), seed)
        self.embedding = DigitEmbedding()
        generator = torch.Generator().manual_seed(seed)
        nn.init.normal_(self.embedding.parts, std=0.02, generator=generator)

    def logits(self, states: Tensor) -> Tensor:
        found: Tensor = self.embedding.logits(states)
        return found


def rounded(model: StudyModel) -> dict[str, np.ndarray]:
    """Return the weights in 8 bits: whole numbers from -127 to 127 by name, and a scale a row."""
    stored: dict[str, np.ndarray] = {}
    for name, value in model.state_dict().items():
        rows = value.reshape(len(value), -1) if value.dim() > 1 else value[None]
        scale = rows.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / 127
        stored[name] = (rows / scale).round().to(torch.int8).reshape(value.shape).numpy()
        stored[f"{name} scale"] = scale[:, 0].numpy()
    return stored


def model_of(stored: dict[str, np.ndarray]) -> StudyModel:
    """Return the model with weights of :func:`rounded`."""
    model = StudyModel(seed=0)
    state = {}
    for name, value in model.state_dict().items():
        scale = torch.from_numpy(stored[f"{name} scale"]).float()
        whole = torch.from_numpy(stored[name]).float()
        state[name] = (whole.reshape(len(scale), -1) * scale[:, None]).reshape(value.shape)
    model.load_state_dict(state)
    return model


def save_start(stored: dict[str, np.ndarray], path: Path) -> None:
    with atomic_file(path) as stream:
        np.savez_compressed(stream, allow_pickle=False, **stored)


def load_start(path: Path) -> StudyModel:
    with np.load(path) as weights:
        return model_of({name: weights[name] for name in weights.files})


def sample(
    model: Llama,
    problems: Sequence[Problem],
    samples: int,
    generator: torch.Generator | None,
    max_tokens: int = MAX_RESPONSE_TOKENS,
) -> list[list[int]]:
    """Return responses as token ids, those of a problem side by side.

    Without a generator, each token is the most likely one.
    """
    responses: list[list[int]] = []
    rows = max(1, 256 // samples)
    for start in range(0, len(problems), rows):
        prompts = [TOKENS.prompt(problem.problem) for problem in problems[start : start + rows]]
        responses += generate(model, TOKENS, prompts, samples, generator, max_tokens)
    return responses
