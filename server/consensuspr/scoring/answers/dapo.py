"""Rule ``dapo``: verl's outcome rule ``math_dapo`` (verl 0.9.1), with which the paper trained.

A strict string rule: the last ``Answer: …`` of the last 300 characters, normalised, must equal the
normalised ground truth.  Without such a line, the last ``\\boxed{…}`` of the last 100 characters
must equal the ground truth as it stands.  The order of its rewrites is part of the rule, odd
corners included (``7.0`` is not 7, ``**Answer:** 7`` is wrong), because runs with this reward must
agree with runs under verl.
"""

from __future__ import annotations

import re
from functools import lru_cache

from consensuspr.scoring.answers.extract import closing_brace

_TAIL_CHARS = 300
_BOX_TAIL_CHARS = 100
_MAX_TRUTH_CHARS = 2000
_ANSWER_LINE = re.compile(r"(?i)Answer\s*:\s*([^\n]+)")
# What verl puts where no line matches, so a model that writes it is treated the same way.
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


def verify_dapo(ground_truth: str, response: str) -> tuple[bool, str, str] | None:
    """Return what verl's ``math_dapo`` decides (its -1 is False), of which answer, by which method.

    None if it finds no answer.
    """
    found = dapo_answer(response)
    if found is None:
        return None
    answer, method = found
    expected = _normal_truth(ground_truth) if method == "dapo" else ground_truth
    return answer == expected, answer, method


def dapo_answer(response: str) -> tuple[str, str] | None:
    """Return the answer and the method that finds it, or None."""
    tail = response[-_TAIL_CHARS:]
    lines = _ANSWER_LINE.findall(tail)
    answer = normalize_answer(lines[-1]) if lines else _INVALID
    if answer != _INVALID:
        return answer, "dapo"
    _, box, boxed = tail[-_BOX_TAIL_CHARS:].rpartition("\\boxed{")
    end = closing_brace(boxed)
    if not box or end == len(boxed):
        return None
    return boxed[:end], "dapo-boxed"


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


@lru_cache(maxsize=512)  # a group of rollouts shares its ground truth
def _normal_truth(ground_truth: str) -> str | None:
    """Return the ground truth as rule ``dapo`` compares it, None if it is too long to be equal."""
    # The rewrites take quadratic time at worst, and nothing so long equals a clipped answer.
    return normalize_answer(ground_truth) if len(ground_truth) <= _MAX_TRUTH_CHARS else None
