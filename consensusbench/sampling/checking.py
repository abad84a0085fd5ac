"""Whether a reply's answer is right, found out off the event loop.

A reply that was cut at the limit of tokens is not correct, whatever number it happens to break
off after: a rollout without an end is no derivation to take conclusions from.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

from consensusbench.construction.verification import VerifyingJudge
from consensusbench.models import Reply
from consensusbench.sampling.records import Correct, Question, Records
from consensusbench.sampling.settings import SampleSettings
from consensuspr.scoring import AnswerVerifier

CUT = "length"


class Checker:
    """Verdicts on replies, from the journal or from the answer verifier; a context manager.

    Args:
        records: where verdicts are kept.
        settings: say how an answer is found.
    """

    def __init__(self, records: Records, settings: SampleSettings) -> None:
        self._records = records
        self._settings = settings
        workers = max(1, os.cpu_count() or 1)
        self._verifier = AnswerVerifier(workers=workers)
        # Asks again what a busy machine left open: the verdict is on record for good.
        self._judge = VerifyingJudge(self._verifier)
        # Of its own: replies waiting for a slow answer must not hold up those on their way
        # to the journal.
        self._threads = ThreadPoolExecutor(2 * workers, "answer-check")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._verifier.close()
        self._threads.shutdown(cancel_futures=True)

    async def correct(self, question: Question, index: int, reply: Reply | None = None) -> Correct:
        """Return the verdict on a recorded reply; None: undecided, or no ground truth.

        Args:
            question: what was asked.
            index: the number of the attempt.
            reply: where it is at hand; read from the journal otherwise.

        Raises:
            VerifierUnavailable: the worker processes of the answer check cannot run.
        """
        problem = question.problem
        if problem.ground_truth is None:
            return None
        rule = self._settings.rule_of(problem)
        known = self._records.verdict(question, index, rule)
        if known != "unknown":
            return known
        found = self._records.reply(question, index) if reply is None else reply
        correct: Correct = False
        if isinstance(found, Reply) and found.finish_reason != CUT:
            [correct] = await asyncio.get_running_loop().run_in_executor(
                self._threads, self._judge.judge, [problem.ground_truth], [found.text], rule
            )
        await self._records.add_verdict(question, index, rule, correct)
        return correct
