"""What follows ``</think>``, scored alone: as if the thoughts had never been written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consensuspr.core import normalize
from consensuspr.scoring import (
    AnswerVerifier,
    DatasetIndex,
    RewardSpec,
    Rollout,
    Score,
    ScoreOptions,
    Scorer,
    Status,
)
from tests.rows import write_rows

PROBLEM = {
    "problem_id": "p",
    "ground_truth": "72",
    "nodes": [
        {"node_id": "half", "expressions": ["48/2=24"]},
        {"node_id": "sum", "expressions": ["48+24=72"]},
    ],
}
STEPS = "In May 48 / 2 = 24 clips, so 48 + 24 = 72."
ANSWER = r"She sold \boxed{72}."
LISTED = "\n".join(f"{a} + {b} = {a + b}" for a in range(60) for b in (2, 24))

WHOLE = ScoreOptions(RewardSpec.linear(), include_spans=True)
AFTER = replace(WHOLE, reward=RewardSpec.linear(after_think=True))


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scorer]:
    path: Path = tmp_path_factory.mktemp("think") / "set.jsonl"
    write_rows(path, [PROBLEM])
    with AnswerVerifier(workers=1) as verifier:
        yield Scorer({"default": DatasetIndex.load(path)}, verifier=verifier)


def scored(scorer: Scorer, response: str | bytes, options: ScoreOptions = AFTER) -> Score:
    (score,), identity = scorer.score([Rollout("p", response, num_tokens=60)], options)
    assert identity.reward == options.reward
    return score


@pytest.mark.parametrize(
    ("response", "acc", "ncr"),
    [
        (f"{STEPS}</think>{ANSWER}", 1.0, 0.0),
        (f"<think>\n{STEPS}\n</think>\n\n{ANSWER}", 1.0, 0.0),
        (f"hm</think>{STEPS} {ANSWER}", 1.0, 1.0), (f"</think>{STEPS} {ANSWER}", 1.0, 1.0),
        # Thoughts that never end, or in marks of another name, are no answer.
        (f"<think>{STEPS} {ANSWER}", 0.0, 0.0), (f"{STEPS} {ANSWER}", 0.0, 0.0),
        (f"hm</THINK>{STEPS} {ANSWER}", 0.0, 0.0), ("", 0.0, 0.0),
        # Of several ends the last: what stands between two was thought again.
        (f"hm</think>{STEPS}</think>{ANSWER}", 1.0, 0.0),
        (f"{STEPS}</think>{ANSWER}</think>I am done.", 0.0, 0.0),
        (f"{STEPS} {ANSWER}</think>", 0.0, 0.0),
        # A box of the thoughts is no answer, nor is half a step of theirs.
        (f"so {ANSWER}</think>It is clear.", 0.0, 0.0), ("48 / 2</think> = 24", 0.0, 0.0),
    ],
)  # fmt: skip
def test_what_is_scored(thinker: Scorer, response: str, acc: float, ncr: float) -> None:
    for text in (response, response.encode()):
        score = scored(thinker, text)
        assert (score.status, score.acc, score.ncr) == (Status.OK, acc, ncr)
        assert (score.reward, score.guard) == ((acc + ncr) / 2, 1.0)


any_text = st.text(st.characters(), max_size=30)


@given(thoughts=any_text, before=any_text, steps=st.booleans())
def test_it_is_the_score_of_the_answer_alone(
    thinker: Scorer, thoughts: str, before: str, steps: bool
) -> None:
    answer = before + STEPS * steps + ANSWER
    whole = f"{thoughts}</think>{answer}"
    for text in (whole, whole.encode("utf-8", "surrogatepass")):
        score, alone = scored(thinker, text), scored(thinker, answer, WHOLE)
        assert alone.spans is not None
        by = len(whole) - len(answer)
        shifted = tuple(span and (span[0] + by, span[1] + by) for span in alone.spans)
        assert score == replace(alone, spans=shifted)


def test_the_guard_counts_what_is_scored(thinker: Scorer) -> None:
    thought, answered = f"{LISTED}</think>{STEPS}", f"{STEPS}</think>{LISTED}\n{STEPS}"
    assert scored(thinker, thought).guard == 1.0
    assert scored(thinker, thought, WHOLE).guard < 0.5  # type: ignore[operator]
    # Long thoughts buy no room for a list.
    padded = scored(thinker, "hm " * 100_000 + answered).guard
    assert padded == scored(thinker, answered).guard
    assert padded < 0.5  # type: ignore[operator]


def test_the_explanation_shows_places_in_the_whole_response(thinker: Scorer) -> None:
    response = f"Größe, 48 / 2 = 24?</think>{STEPS} {ANSWER}"
    explained = thinker.explain(Rollout("p", response), AFTER)
    spans = [node.span for node in explained.nodes]
    assert [response[span[0] : span[1]] for span in spans if span] == [
        "48 / 2 = 24",
        "48 + 24 = 72",
    ]
    assert all(span and span[0] > response.index("</think>") for span in spans)
    assert explained.normal_form == normalize(f"{STEPS} {ANSWER}")
    assert explained.guard is not None
    assert explained.guard.statements == 2
