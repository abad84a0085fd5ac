"""``AnswerVerifier``: whether the answer in a response is right, by four rules.

``auto``, ``boxed`` and ``gsm8k`` extract an answer (:mod:`.extract`) and compare it by value.  The
fast comparison (:mod:`.compare`) stays in the calling thread and takes microseconds.  The few
answers that need computer algebra are looked up in a cache, else go to processes (:mod:`.pool`),
those of a batch together.  ``dapo`` compares strings (:mod:`.dapo`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Self

from consensuspr.errors import InputError
from consensuspr.scoring.answers.compare import Form, compare, form_of
from consensuspr.scoring.answers.dapo import dapo_answer, verify_dapo
from consensuspr.scoring.answers.extract import (
    MAX_ANSWER_CHARS,
    AnswerSource,
    Extracted,
    answer_in_prose,
    extract_auto,
    extract_boxed,
    extract_boxed_run,
    extract_gsm8k,
    extract_marked,
    numbers_in_sentence,
    only_number,
    reference_answer,
    tail_of,
)
from consensuspr.scoring.answers.pool import AnswerPair, PairOutcome, SymbolicPool
from consensuspr.scoring.answers.screening import screen

if TYPE_CHECKING:
    from consensuspr.scoring.types import AnswerRule

# Part of every reply's identity: a change of extraction or comparison that can change a
# verdict changes this.
ANSWER_VERSION = "5"

_EXTRACTORS = {"auto": extract_auto, "boxed": extract_boxed, "gsm8k": extract_gsm8k}
_RULES = (*_EXTRACTORS, "dapo")
# Results of slow comparisons, some 10 kB each at worst.  A full cache starts anew.
_MAX_KNOWN = 4096


class AnswerStatus(StrEnum):
    """Whether a verdict was reached."""

    DECIDED = "DECIDED"  # answer and ground truth were compared
    NO_ANSWER = "NO_ANSWER"  # the rule finds no answer in the response, which is wrong
    UNDECIDED = "UNDECIDED"  # no verdict within the limits


class Verdict(NamedTuple):
    """The verdict on one response."""

    correct: bool | None  # None if undecided
    answer: str | None  # taken from the response; None if none was found
    status: AnswerStatus
    method: str  # that decided, or the limit that was met

    def __repr__(self) -> str:
        verdict = f"correct={self.correct}, answer={self.answer!r:.80}"
        return f"Verdict({verdict}, status={self.status.value!r}, method={self.method!r})"


NO_ANSWER = Verdict(False, None, AnswerStatus.NO_ANSWER, "none")


def decided(correct: bool, answer: str, method: str) -> Verdict:
    """Return the verdict of a finished comparison."""
    return Verdict(correct, answer, AnswerStatus.DECIDED, method)


def undecided(answer: str | None, limit: str) -> Verdict:
    """Return the verdict if a limit stopped the comparison."""
    return Verdict(None, answer, AnswerStatus.UNDECIDED, limit)


class _Open(NamedTuple):
    """An answer that the fast path leaves open."""

    answer: str
    pair: AnswerPair

    def verdict(self, outcome: PairOutcome) -> Verdict:
        if outcome.equal is None:
            return undecided(self.answer, outcome.limit)
        return decided(outcome.equal, self.answer, "symbolic")


class AnswerVerifier:
    """Verifies final answers.  Thread-safe; processes start at the first answer that needs them.

    Args:
        workers: processes for computer algebra (>= 1).
        budget_s: CPU seconds that one answer may take there (> 0), after which it is undecided.
        memory_limit_bytes: address space of a process, beyond which an answer is undecided;
            enforced on Linux.
        while_waiting: makes a context that is entered while processes are waited for.

    Raises:
        InputError: an argument is out of its range.
    """

    def __init__(
        self,
        workers: int = 1,
        budget_s: float = 2.0,
        memory_limit_bytes: int = 1 << 30,
        while_waiting: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        if workers < 1:
            raise InputError(f"workers must be 1 or more, got {workers!r}")
        if not 0.0 < budget_s < 3600.0:
            raise InputError(f"budget_s must be in (0, 3600), got {budget_s!r}")
        if memory_limit_bytes < 1 << 27:
            raise InputError(
                f"memory_limit_bytes must be {1 << 27} or more, got {memory_limit_bytes!r}"
            )
        self._while_waiting = while_waiting
        self._pool = SymbolicPool(workers, budget_s, memory_limit_bytes)
        self._known: dict[AnswerPair, PairOutcome] = {}

    def verify(
        self, ground_truth: str, response: str | bytes, rule: str | AnswerRule = "auto"
    ) -> Verdict:
        """Verify one response; see :meth:`verify_batch`."""
        return self.verify_batch([ground_truth], [response], rule)[0]

    def verify_batch(
        self,
        ground_truths: Sequence[str],
        responses: Sequence[str | bytes],
        rule: str | AnswerRule = "auto",
        deadline: float | None = None,
    ) -> list[Verdict]:
        """Return the verdicts on responses, in order.

        Args:
            ground_truths: (n,) reference answers, bare or as a dataset writes them.
            responses: (n,) texts; UTF-8 if bytes, invalid sequences are tolerated.
            rule: where the answer is looked for and how it is compared.
            deadline: ``time.monotonic()`` after which open answers are undecided (``load``).

        Raises:
            InputError: the lengths differ or the rule is unknown.
            VerifierUnavailable: an answer needs a process and none can be had.
        """
        if len(ground_truths) != len(responses):
            raise InputError(
                f"got {len(ground_truths)} ground truths for {len(responses)} responses"
            )
        rule = _known_rule(rule)
        found = [
            _fast_verdict(truth, _text(response), rule)
            for truth, response in zip(ground_truths, responses, strict=True)
        ]
        wanted = {verdict.pair for verdict in found if isinstance(verdict, _Open)}
        outcomes = self._outcomes(wanted, deadline) if wanted else {}
        return [
            verdict if isinstance(verdict, Verdict) else verdict.verdict(outcomes[verdict.pair])
            for verdict in found
        ]

    def close(self) -> None:
        """End the processes; answers that still wait raise VerifierUnavailable."""
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _outcomes(
        self, wanted: set[AnswerPair], deadline: float | None
    ) -> dict[AnswerPair, PairOutcome]:
        """Return the results of comparisons, from the cache or from processes."""
        cache = self._known  # another thread may replace it
        known = {pair: cache[pair] for pair in wanted if pair in cache}
        missing = wanted - known.keys()
        if not missing:
            return known
        with self._while_waiting():
            made = self._pool.compare(missing, math.inf if deadline is None else deadline)
        if len(self._known) + len(made) > _MAX_KNOWN:
            self._known = {}
        self._known |= {pair: outcome for pair, outcome in made.items() if outcome.is_final}
        return known | made


def verify_answer(
    ground_truth: str, response: str | bytes, rule: str | AnswerRule = "auto"
) -> Verdict:
    """Verify one response with a verifier that is made at the first call."""
    return _default_verifier().verify(ground_truth, response, rule)


_default_verifier = lru_cache(maxsize=1)(AnswerVerifier)


def has_marked_answer(response: str | bytes, rule: str | AnswerRule = "auto") -> bool:
    """Return whether the response marks a final answer that the rule accepts.

    A mark is ``\\boxed``, ``####``, ``Answer:`` or "answer is", with something behind it.  A bare
    answer or a last number, which ``auto`` accepts without a mark, is not one.

    Raises:
        InputError: the rule is unknown.
    """
    rule, text = _known_rule(rule), _text(response)
    if rule == "dapo":
        line = dapo_answer(text)
        return line is not None and bool(line[0].strip())
    found = extract_marked(text) if rule == "auto" else _EXTRACTORS[rule](text)
    return found is not None and (found.overlong or bool(form_of(found.answer).text))


def _known_rule(rule: str) -> str:
    if rule not in _RULES:
        raise InputError(f"answer rule must be one of {', '.join(_RULES)}, got {rule!r}")
    return str(rule)


def _text(response: str | bytes) -> str:
    return response if isinstance(response, str) else response.decode("utf-8", "replace")


def _fast_verdict(ground_truth: str, response: str, rule: str) -> Verdict | _Open:
    if rule == "dapo":
        compared = verify_dapo(ground_truth, response)
        return NO_ANSWER if compared is None else decided(*compared)
    # What is longer than any answer is cut, and then screened.
    gold = reference_answer(ground_truth)[: MAX_ANSWER_CHARS + 1]
    if not gold:
        return undecided(None, "no-ground-truth")
    found = _EXTRACTORS[rule](response)
    if found is None:
        return NO_ANSWER
    answer = found.answer
    if found.overlong:
        return undecided(answer, "length")
    gold_form = form_of(gold)
    if not gold_form.text:
        return undecided(answer, "no-ground-truth")
    form = form_of(answer)
    if not form.text:
        return NO_ANSWER
    equal, method = compare(gold_form, form)
    if equal:
        return decided(True, answer, method)
    if gold_form.parts is not None and found.source is AnswerSource.BOXED:
        run = extract_boxed_run(response)
        if run is not None and not run.overlong:
            answer = run.answer
            equal, method = compare(gold_form, form_of(answer))
    elif gold_form.value is not None and form.value is None:
        number = _number_meant(found, response)
        if number is not None and compare(gold_form, form_of(number))[0]:
            return decided(True, number, "rational")
    if equal is not None:
        return decided(equal, answer, method)
    if gold_form.value is not None and _states_another_number(gold_form, answer):
        return decided(False, answer, "text")
    # Where no mark announces the answer, math-verify looks for it once more.
    unmarked = found.source in (AnswerSource.BARE, AnswerSource.PROSE)
    context = tail_of(response) if unmarked else ""
    if any(screen(text) is not None for text in (answer, gold, context)):
        return undecided(answer, "screened")
    return _Open(answer, AnswerPair(gold, answer, context))


def _number_meant(found: Extracted, response: str) -> str | None:
    """Return the number that a marked answer in words means, where a number is asked for."""
    if found.source in (AnswerSource.BOXED, AnswerSource.HASH):
        return only_number(found.answer)
    if found.context and form_of(found.answer).words is not None:
        # "The answer is as expected" announces nothing; the last number is the answer.
        return answer_in_prose(found.context)
    return None


def _states_another_number(gold: Form, answer: str) -> bool:
    """Return whether the answer is a sentence and none of its numbers is the ground truth."""
    numbers = numbers_in_sentence(answer)
    return numbers is not None and all(
        compare(gold, form_of(number))[0] is False for number in numbers
    )
