"""The reference of answer rules, executed."""

from __future__ import annotations

from consensuspr.scoring.answers import AnswerVerifier
from consensuspr.scoring.answers.extract import extract_auto
from tests.pages import YES, code, page, rows

PAGE = page("concepts/answers.md")


def test_found() -> None:
    found = list(rows(PAGE, "response", "answer"))
    assert len(found) > 5
    wrong = []
    for number, response, answer in found:
        extracted = extract_auto(code(response))
        if extracted is None or extracted.answer != code(answer):
            wrong.append(number)
    assert wrong == []


def test_compared(verifier: AnswerVerifier) -> None:
    compared = list(rows(PAGE, "ground truth", "answer", "equal"))
    assert len(compared) > 14
    verdicts = verifier.verify_batch(
        [code(truth) for _, truth, _, _ in compared],
        [rf"\boxed{{{code(answer)}}}" for _, _, answer, _ in compared],
    )
    wrong = [
        number
        for (number, _, _, equal), verdict in zip(compared, verdicts, strict=True)
        if verdict.correct is not YES[equal]
    ]
    assert wrong == []
