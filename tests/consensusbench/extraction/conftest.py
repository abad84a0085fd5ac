"""A problem with four correct rollouts, and replies about it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from consensusbench.extraction.types import CorrectRollout
from consensusbench.llm import ModelSettings
from consensuspr.data import Problem
from tests.consensusbench.openai_server import OpenAIServer, Say

PENS = Problem(
    "pens",
    ground_truth="900",
    problem="A shop packs 15 boxes of 12 pens each day for 5 days. How many pens are packed?",
)
ROLLOUTS = (
    CorrectRollout(
        "a", "ada", "Each day: $15 \\times 12 = 180$ pens. In five days $180 \\cdot 5 = 900$."
    ),
    CorrectRollout("b", "bob", "12*15 = 180 pens daily, a total of 180 pens.\nThen 5*180=900."),
    CorrectRollout("c", "cyd", "There are 5*15=75 boxes, so 75 × 12 = 900. \\boxed{900}"),
    CorrectRollout("d", "ada", "Per day 15*12=180. The total number is 900. Answer: 900"),
)


def node(*wordings: str, **changes: Any) -> dict[str, Any]:
    """Return one node of a reply."""
    return {
        "label": wordings[0] if wordings else "",
        "wordings": list(wordings),
        "solutions": [1, 2, 3],
        "strength": "key",
        **changes,
    }


def reply_text(*nodes: dict[str, Any]) -> str:
    """Return a whole reply."""
    return json.dumps({"nodes": list(nodes)})


GOOD = reply_text(
    node("15 \\times 12 = 180", "12*15 = 180"),
    node("180 \\cdot 5 = 900", "5*180=900"),
)
GOOD_LABELS = ["15 \\times 12 = 180", "180 \\cdot 5 = 900"]
NO_CHANGES = Say('{"changes": []}')


@pytest.fixture
def model_settings(openai_server: OpenAIServer) -> Callable[..., ModelSettings]:
    """Settings that ask the test server, with changes."""

    def make(**changes: Any) -> ModelSettings:
        given: dict[str, Any] = {
            "model": "m",
            "base_url": openai_server.url,
            "max_retries": 2,
            "timeout_s": 5.0,
        }
        return ModelSettings(**(given | changes))

    return make
