"""``AnswerVerifier``: whether the answer in a response is right, by four rules.

``auto``, ``boxed`` and ``gsm8k`` extract an answer (:mod:`.extract`) and compare it by value: the
fast comparison (:mod:`.compare`) stays in the calling thread and takes microseconds; the few
answers of a batch that need computer algebra are looked for in a cache, go to worker processes
(:mod:`.sandbox`) together and come back together.

``dapo`` is verl's outcome rule ``math_dapo`` (verl 0.9.1), which the paper's runs were trained
with.  A strict string rule: the last ``Answer: …`` of the last 300 characters, normalised, must
equal the normalised ground truth; without such a line, the last ``\\boxed{…}`` of the last
100 characters must equal the ground truth as it stands.  Its order of rewrites is part of
the rule, odd corners included (``7.0`` is not 7, ``**Answer:** 7`` is wrong), because runs
with this reward must agree with runs under verl.  Values are not compared.
"""

from __future__ import annotations

import atexit
import os
import re
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from enum import StrEnum
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple, Self

from consensuspr.errors import InputError
from consensuspr.scoring.answers.compare import Form, compare, forget_forms, form_of
from consensuspr.scoring.answers.extract import (
    MAX_ANSWER_CHARS,
    AnswerSource,
    Extracted,
    answer_in_prose,
    clip_tail,
    closing_brace,
    extract_auto,
    extract_boxed,
    extract_boxed_run,
    extract_gsm8k,
    extract_marked,
    numbers_in_sentence,
    only_number,
)
from consensuspr.scoring.answers.sandbox import (
    Caller,
    ComparisonKey,
    ComparisonOutcome,
    PendingComparison,
    SymbolicPool,
    screen,
)

if TYPE_CHECKING:
    from consensuspr.scoring.types import AnswerRule

# Part of every reply's identity: a change of extraction or comparison that can change a
# verdict changes this.
ANSWER_VERSION = "2"


class AnswerStatus(StrEnum):
    """How far the verifier came."""

    DECIDED = "DECIDED"
    """Answer and ground truth were compared; ``correct`` is True or False."""

    NO_ANSWER = "NO_ANSWER"
    """The rule finds no answer in the response; ``correct`` is False."""

    UNDECIDED = "UNDECIDED"
    """No verdict within the limits; ``correct`` is None and ``method`` names the limit."""


class Verdict(NamedTuple):
    """The verdict on one response.

    Attributes:
        correct: True or False where decided, None where undecided.
        answer: the answer taken from the response, None where none was found.
        status: how far the verifier came; read it before ``correct``.
        method: what decided (``canonical``, ``rational``, ``numeric``, ``algebraic``,
            ``text``, ``elements``, ``symbolic``, ``dapo``, ``dapo-boxed``), ``none`` where no
            answer was found, or the limit that was met (``budget``, ``memory``, ``crash``,
            ``screened``, ``length``, ``killed``, ``load``, ``deadline``, ``no-ground-truth``).
    """

    correct: bool | None
    answer: str | None
    status: AnswerStatus
    method: str


def decided(correct: bool, answer: str, method: str) -> Verdict:
    """Return the verdict of a finished comparison."""
    return Verdict(correct, answer, AnswerStatus.DECIDED, method)


def undecided(answer: str | None, limit: str) -> Verdict:
    """Return the verdict where ``limit`` stopped the comparison."""
    return Verdict(None, answer, AnswerStatus.UNDECIDED, limit)


NO_ANSWER = Verdict(False, None, AnswerStatus.NO_ANSWER, "none")


_EXTRACTORS = {"auto": extract_auto, "boxed": extract_boxed, "gsm8k": extract_gsm8k}
_RULES = (*_EXTRACTORS, "dapo")
# Where no mark announces the answer, math-verify looks for it once more.
_UNCERTAIN = (AnswerSource.BARE, AnswerSource.PROSE)
_CACHE_BYTES = 16 << 20
# How long the open answers of one batch are waited for where its caller sets no deadline, in
# budgets of one answer: what a machine takes that is busy three times over, and a slice of the fast
# lane for each.  Honest comparisons take a tenth of a slice.
_BATCH_BUDGETS = 9.0
_BUDGETS_PER_ANSWER = 1 / 8


# An entry's own cost beside its characters: tuple, strings, links.
_ENTRY_BYTES = 600


class ResultCache:
    """The results used last; bytes are estimated from above, and 0 entries keep nothing."""

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._results: OrderedDict[ComparisonKey, ComparisonOutcome] = OrderedDict()
        self._nbytes = 0
        self._lock = threading.Lock()

    def get(self, key: ComparisonKey) -> ComparisonOutcome | None:
        """Return the result of ``key``, None where it is not known."""
        with self._lock:
            outcome = self._results.get(key)
            if outcome is not None:
                self._results.move_to_end(key)
            return outcome

    def put(self, key: ComparisonKey, outcome: ComparisonOutcome) -> None:
        """Keep a result, dropping the least recently used ones beyond the bounds."""
        size = _cache_size(key)
        if self._max_entries == 0 or size > self._max_bytes:
            return
        with self._lock:
            if key not in self._results:
                self._nbytes += size
            self._results[key] = outcome
            self._results.move_to_end(key)
            while len(self._results) > self._max_entries or self._nbytes > self._max_bytes:
                oldest, _ = self._results.popitem(last=False)
                self._nbytes -= _cache_size(oldest)

    @property
    def nbytes(self) -> int:
        """Estimated bytes kept."""
        return self._nbytes

    def __len__(self) -> int:
        return len(self._results)


def _cache_size(key: ComparisonKey) -> int:
    # Four bytes a character is the widest that CPython stores.
    return _ENTRY_BYTES + 4 * sum(map(len, key))


class _Open(NamedTuple):
    """An answer that the fast path leaves open."""

    answer: str
    key: ComparisonKey


class AnswerVerifier:
    """Verifies final answers.  Thread-safe; processes start at the first answer that needs them.

    Args:
        workers: worker processes per lane (>= 1); at most twice as many run, and the process
            that they are forked from.
        budget_s: seconds that one answer may take in a worker (> 0), after which it is
            undecided.
        memory_limit_bytes: address space of a worker, beyond which an answer is undecided;
            enforced on Linux.
        cache_size: results of slow comparisons kept (0: none), within 16 MiB.
        while_waiting: makes a context that is entered for as long as a worker is waited for.

    Raises:
        InputError: an argument is out of its range.
    """

    def __init__(
        self,
        workers: int = 1,
        budget_s: float = 2.0,
        memory_limit_bytes: int = 1 << 30,
        cache_size: int = 65536,
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
        if cache_size < 0:
            raise InputError(f"cache_size must be 0 or more, got {cache_size!r}")
        self._cache_size = cache_size
        self._budget_s = budget_s
        self._while_waiting = while_waiting
        self._pool = SymbolicPool(workers, budget_s, memory_limit_bytes)
        self._reset()
        _VERIFIERS.add(self)

    def _reset(self) -> None:
        self._cache = ResultCache(self._cache_size, _CACHE_BYTES)
        # Reentrant: cancelling a comparison calls _finished in the same thread.
        self._lock = threading.RLock()
        self._running: dict[ComparisonKey, _Running] = {}

    def verify(
        self, ground_truth: str, response: str | bytes, rule: str | AnswerRule = "auto"
    ) -> Verdict:
        """Verify one response; see :meth:`verify_batch`."""
        verdict = _fast_verdict(ground_truth, response, _known_rule(rule))
        if isinstance(verdict, Verdict):
            return verdict
        return self._slow_verdicts([verdict], None)[0]

    def verify_batch(
        self,
        ground_truths: Sequence[str],
        responses: Sequence[str | bytes],
        rule: str | AnswerRule = "auto",
        deadline: float | None = None,
    ) -> list[Verdict]:
        """Verify responses against their ground truths.

        Args:
            ground_truths: (n,) reference answers, bare or as a dataset writes them.
            responses: (n,) texts; UTF-8 where bytes, invalid sequences are tolerated.
            rule: where the answer is looked for and how it is compared.
            deadline: ``time.monotonic()`` after which open answers are undecided
                (method ``deadline``); None: after a time that grows with their number they are
                undecided too (method ``load``).

        Returns:
            (n,) verdicts in order.

        Raises:
            InputError: the lengths differ or the rule is unknown.
            VerifierUnavailable: an answer needs a worker process and none can be had.
        """
        if len(ground_truths) != len(responses):
            raise InputError(
                f"{len(ground_truths)} ground truths do not go with {len(responses)} responses"
            )
        rule = _known_rule(rule)
        found = [
            _fast_verdict(truth, response, rule)
            for truth, response in zip(ground_truths, responses, strict=True)
        ]
        open_answers = [one for one in found if isinstance(one, _Open)]
        if not open_answers:
            return [one for one in found if isinstance(one, Verdict)]
        slow = iter(self._slow_verdicts(open_answers, deadline))
        return [one if isinstance(one, Verdict) else next(slow) for one in found]

    @property
    def processes_started(self) -> int:
        """Worker processes started so far; what is above the number of workers replaced one."""
        return self._pool.processes_started

    def close(self) -> None:
        """End the worker processes; answers that still wait raise VerifierUnavailable."""
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _slow_verdicts(self, open_answers: list[_Open], deadline: float | None) -> list[Verdict]:
        """Return the verdicts of answers that need the cache or a worker."""
        known: dict[ComparisonKey, ComparisonOutcome] = {}
        waiting: dict[ComparisonKey, _Running] = {}
        call = Caller()
        with ExitStack() as leaving:
            for one in open_answers:
                if one.key in known or one.key in waiting:
                    continue
                outcome = self._cache.get(one.key)
                if outcome is None:
                    waiting[one.key] = self._join(one.key, call)
                    leaving.callback(self._leave, waiting[one.key])
                else:
                    known[one.key] = outcome
            if deadline is None:
                # However slow the pool is under load, a batch comes back in bounded time.
                budgets = _BATCH_BUDGETS + _BUDGETS_PER_ANSWER * len(waiting)
                until, cause = time.monotonic() + budgets * self._budget_s, "load"
            else:
                until, cause = deadline, "deadline"
            if waiting:
                with self._while_waiting():
                    futures = [running.future for running in waiting.values()]
                    wait(futures, max(0.0, until - time.monotonic()))
                    leaving.close()  # at once, so that what is late is not begun any more
        for key, running in waiting.items():
            late = not running.future.done() or running.future.cancelled()
            known[key] = ComparisonOutcome(None, cause, False) if late else running.future.result()
        return [_slow_verdict(one, known[one.key]) for one in open_answers]

    def _join(self, key: ComparisonKey, call: Caller) -> _Running:
        """Wait for a comparison together with whoever waits for the same one."""
        with self._lock:
            running = self._running.get(key)
            if running is None:
                running = self._running[key] = _Running(self._pool.submit(key, call))
                running.future.add_done_callback(partial(self._finished, key))
            running.waiting += 1
            running.comparison.wanted = True
            return running

    def _leave(self, running: _Running) -> None:
        """Stop waiting; what nobody waits for is not started any more."""
        with self._lock:
            running.waiting -= 1
            if running.waiting == 0:
                running.comparison.wanted = False
                running.future.cancel()

    def _finished(self, key: ComparisonKey, future: Future[ComparisonOutcome]) -> None:
        if not future.cancelled() and future.exception() is None and future.result().final:
            self._cache.put(key, future.result())
        with self._lock:
            self._running.pop(key, None)

    def _forget(self) -> None:
        self._pool.forget()
        self._reset()


class _Running:
    """A comparison under way and how many calls wait for it."""

    __slots__ = ("comparison", "future", "waiting")

    def __init__(self, comparison: PendingComparison) -> None:
        self.comparison = comparison
        self.future = comparison.future
        self.waiting = 0


def verify_answer(
    ground_truth: str, response: str | bytes, rule: str | AnswerRule = "auto"
) -> Verdict:
    """Verify one response with a verifier that is made at the first call and closed at exit."""
    return _default_verifier().verify(ground_truth, response, rule)


@lru_cache(maxsize=1)
def _default_verifier() -> AnswerVerifier:
    verifier = AnswerVerifier()
    atexit.register(verifier.close)
    return verifier


def has_marked_answer(response: str | bytes, rule: str | AnswerRule = "auto") -> bool:
    """Return whether the response marks a final answer that the rule accepts.

    A mark is ``\\boxed``, ``####``, ``Answer:`` or "answer is", with something behind it.  A bare
    answer or a last number, which ``auto`` accepts without a mark, is not one.

    Raises:
        InputError: the rule is unknown.
    """
    rule = _known_rule(rule)
    if rule == "dapo":
        line = _dapo_answer(response)
        return line is not None and bool(line[0].strip())
    found = extract_marked(response) if rule == "auto" else _EXTRACTORS[rule](response)
    return found is not None and (found.overlong or bool(form_of(found.answer).text))


def _known_rule(rule: str) -> str:
    if rule not in _RULES:
        raise InputError(f"answer rule must be one of {', '.join(_RULES)}, got {rule!r}")
    return str(rule)


def _fast_verdict(ground_truth: str, response: str | bytes, rule: str) -> Verdict | _Open:
    if rule == "dapo":
        return verify_dapo(ground_truth, response)
    gold = _bare_truth(ground_truth)
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
    return _screened(gold, answer, response, found.source, rule)


def _number_meant(found: Extracted, response: str | bytes) -> str | None:
    """Return the number that a marked answer in words means, where a number is asked for."""
    if found.source in (AnswerSource.BOXED, AnswerSource.HASH):
        return only_number(found.answer)
    if found.source is AnswerSource.MARKER and form_of(found.answer).words is not None:
        # "The answer is as expected" announces nothing; the last number is the answer.
        return answer_in_prose(clip_tail(response))
    return None


def _states_another_number(gold: Form, answer: str) -> bool:
    """Tell whether the answer is a sentence and none of its numbers is the ground truth."""
    numbers = numbers_in_sentence(answer)
    return numbers is not None and all(
        compare(gold, form_of(number))[0] is False for number in numbers
    )


def _screened(
    gold: str, answer: str, response: str | bytes, source: AnswerSource, rule: str
) -> Verdict | _Open:
    context = clip_tail(response) if source in _UNCERTAIN else ""
    for text in (answer, gold, context):
        if screen(text) is not None:
            return undecided(answer, "screened")
    return _Open(answer, ComparisonKey(gold, answer, context, rule))


def _bare_truth(ground_truth: str) -> str:
    if len(ground_truth) <= _TRUTH_MEMO_CHARS:
        if ground_truth.isdigit():
            return ground_truth
        return _memoised_truth(ground_truth)
    return _truth_within(ground_truth)


def _truth_within(ground_truth: str) -> str:
    """Return the reference answer inside what a dataset gives as ground truth.

    Most datasets give the bare answer; some a sentence with a box, some a whole solution
    that ends with ``#### 18``.  What is longer than any answer is cut, and then screened.
    """
    found: Extracted | None = None
    if "\\boxed" in ground_truth or "\\fbox" in ground_truth:
        found = extract_boxed_run(ground_truth) or extract_boxed(ground_truth)
    elif "####" in ground_truth:
        found = extract_gsm8k(ground_truth)
    text = ground_truth if found is None else found.answer
    return text.strip()[: MAX_ANSWER_CHARS + 1]


# A group shares its ground truth; long ones would make the memo large.
_TRUTH_MEMO_CHARS = 256
_memoised_truth = lru_cache(maxsize=8192)(_truth_within)


def forget_memos() -> None:
    """Empty what is remembered of ground truths and forms, for measurements."""
    _memoised_truth.cache_clear()
    _short_dapo_truth.cache_clear()
    forget_forms()


def _slow_verdict(one: _Open, outcome: ComparisonOutcome) -> Verdict:
    if outcome.equal is None:
        return undecided(one.answer, outcome.limit)
    return decided(outcome.equal, one.answer, "symbolic")


_VERIFIERS: weakref.WeakSet[AnswerVerifier] = weakref.WeakSet()


def _forget_in_child() -> None:
    for verifier in list(_VERIFIERS):
        with suppress(OSError):
            verifier._forget()


if hasattr(os, "register_at_fork"):
    # A process forked from one with a running pool has neither its threads nor its locks.
    os.register_at_fork(after_in_child=_forget_in_child)


# Rule ``dapo``.

_TAIL_CHARS = 300
_BOX_TAIL_CHARS = 100
_MAX_TRUTH_CHARS = 2000
_ANSWER_LINE = re.compile(r"(?i)Answer\s*:\s*([^\n]+)")
# What verl puts where no line matches; a model that writes it is treated the same way.
_INVALID = "[INVALID]"

# Applied one after the other, to everything that follows the last "=".
_REWRITES = (
    ("an ", ""), ("a ", ""), (".$", "$"), ("\\$", ""), ("\\ ", ""), (" ", ""), ("mbox", "text"),
    (",\\text{and}", ","), ("\\text{and}", ","), ("\\text{m}", "\\text{}"),
)  # fmt: skip
_REMOVED = (
    "square", "ways", "integers", "dollars", "mph", "inches", "hours", "km", "units", "\\ldots",
    "sue", "points", "feet", "minutes", "digits", "cents", "degrees", "cm", "gm", "pounds",
    "meters", "meals", "edges", "students", "childrentickets", "multiples", "\\text{s}",
    "\\text{.}", "\\text{\ns}", "\\text{}^2", "\\text{}^3", "\\text{\n}", "\\text{}",
    "\\mathrm{th}", "^\\circ", "^{\\circ}", "\\;", ",\\!", "{,}", '"', "\\dots",
)  # fmt: skip
# Each keeps one group: the first formula between dollar signs alone, then what LaTeX wraps.
_UNWRAPPED = (
    (re.compile(r".*?\$(.*?)\$.*"), r"$\1$"),
    (re.compile(r"\\text\{(.*?)\}"), r"\1"),
    (re.compile(r"\\textbf\{(.*?)\}"), r"\1"),
    (re.compile(r"\\overline\{(.*?)\}"), r"\1"),
    (re.compile(r"\\boxed\{(.*)\}"), r"\1"),
    (re.compile(r"frac([^{])(.)"), r"frac{\1}{\2}"),
    (re.compile(r"sqrt([^{])"), r"sqrt{\1}"),
)


def verify_dapo(ground_truth: str, response: str | bytes) -> Verdict:
    """Judge a response as verl's ``math_dapo`` does; its -1 is False here."""
    found = _dapo_answer(response)
    if found is None:
        return NO_ANSWER
    answer, method = found
    expected = _comparable(ground_truth) if method == "dapo" else ground_truth
    return decided(answer == expected, answer, method)


def _dapo_answer(response: str | bytes) -> tuple[str, str] | None:
    """Return the answer and the method that finds it, or None."""
    tail = clip_tail(response, _TAIL_CHARS)
    lines = _ANSWER_LINE.findall(tail)
    answer = normalize_answer(lines[-1]) if lines else _INVALID
    if answer != _INVALID:
        return answer, "dapo"
    _, box, rest = tail[-_BOX_TAIL_CHARS:].rpartition("\\boxed{")
    end = closing_brace(rest)
    if not box or end == len(rest):
        return None
    return rest[:end], "dapo-boxed"


def normalize_answer(text: str) -> str:
    """Return the string that rule ``dapo`` compares."""
    text = text.rpartition("=")[2]
    for old, new in _REWRITES:
        text = text.replace(old, new)
    for part in _REMOVED:
        text = text.replace(part, "")
    for pattern, kept in _UNWRAPPED:
        text = pattern.sub(kept, text)
    text = text.replace("$", "")
    digits = text.replace(",", "")
    return (digits if digits.isdigit() else text).strip()


# Of up to _MAX_TRUTH_CHARS each: a megabyte, or four.
@lru_cache(maxsize=512)
def _short_dapo_truth(ground_truth: str) -> str:
    """Normalise once for the group of rollouts that shares a ground truth."""
    return normalize_answer(ground_truth)


def _comparable(ground_truth: str) -> str | None:
    # The rewrites take quadratic time at worst, and nothing so long equals a clipped answer.
    return _short_dapo_truth(ground_truth) if len(ground_truth) <= _MAX_TRUTH_CHARS else None
