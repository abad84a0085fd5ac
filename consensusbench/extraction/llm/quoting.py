"""Problem and rollouts as the quoted part of a prompt, of bounded size.

Rollouts are untrusted: a policy wrote them, and they may hold instructions, reply formats or
end marks.  Each stands between two lines that carry a digest of everything quoted, which
no quoted text can contain.  What a rollout talks a model into saying is checked against the
rollouts all the same (:mod:`.checking`).

What is too long is cut in the middle, for a solution names its approach at the start and
its results towards the end.  Of a thinking rollout only what follows the thinking is quoted
where there is such a part: it says the same in a tenth of the length.  Support is counted
over the whole texts either way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from consensusbench.extraction.types import CorrectRollout
from consensuspr.data import Problem

_END_OF_THINKING = "</think>"
# An answer part below this holds no solution ("The answer is 5.").
_MIN_ANSWER_PART_CHARS = 200
# A problem is rarely beyond 2,000 characters; it may take up to this share of the quotation.
_PROBLEM_SHARE = 4


def choose_rollouts(rollouts: Sequence[CorrectRollout], limit: int) -> list[CorrectRollout]:
    """Return the rollouts to show: as many models as possible, in turns, in the order given."""
    by_model: dict[str, list[CorrectRollout]] = {}
    for rollout in rollouts:
        by_model.setdefault(rollout.model, []).append(rollout)
    chosen: list[CorrectRollout] = []
    turn = 0
    while len(chosen) < min(limit, len(rollouts)):
        for queue in by_model.values():
            if turn < len(queue) and len(chosen) < limit:
                chosen.append(queue[turn])
        turn += 1
    return chosen


def quote(problem: Problem, rollouts: Sequence[CorrectRollout], max_chars: int) -> str:
    """Return the problem and the rollouts between marked lines.

    Args:
        problem: whose text is quoted.
        rollouts: to quote, all of them.
        max_chars: bound on the quoted texts together, marks not counted.
    """
    statement = clip_middle(_sendable(problem.problem).strip(), max_chars // _PROBLEM_SHARE)
    answers = [_shown_part(_sendable(rollout.response)) for rollout in rollouts]
    limits = _shares([len(text) for text in answers], max_chars - len(statement))
    texts = [clip_middle(text, limit) for text, limit in zip(answers, limits, strict=True)]
    mark = _mark([statement, *texts])
    parts = [f"BEGIN PROBLEM {mark}\n{statement}\nEND PROBLEM {mark}"]
    parts.extend(
        f"BEGIN SOLUTION {number} {mark}\n{text}\nEND SOLUTION {number} {mark}"
        for number, text in enumerate(texts, start=1)
    )
    return "\n\n".join(parts)


def clip_middle(text: str, limit: int) -> str:
    """Return ``text`` with its middle left out where it is longer than ``limit`` characters.

    The note that says so is part of the limit; both ends stop at a line where one is near.
    """
    if len(text) <= limit:
        return text
    note = f"\n[... {len(text) - limit} characters left out ...]\n"
    room = max(0, limit - len(note))
    head, tail = text[: room // 2], text[len(text) - (room - room // 2) :]
    near = room // 10
    cut = head.rfind("\n", len(head) - near)
    head = head if cut < 0 else head[:cut]
    cut = tail.find("\n", 0, near)
    tail = tail if cut < 0 else tail[cut + 1 :]
    return (head + note + tail)[:limit]


def _sendable(text: str) -> str:
    """Return the text without what no request can carry: lone surrogates and NUL."""
    return text.encode("utf-8", "replace").decode().replace("\x00", " ")


def _shown_part(response: str) -> str:
    """Return the response without its thinking, if what remains is a solution."""
    end = response.rfind(_END_OF_THINKING)
    answer = response[end + len(_END_OF_THINKING) :].strip() if end >= 0 else ""
    return answer if len(answer) >= _MIN_ANSWER_PART_CHARS else response.strip()


def _shares(lengths: Sequence[int], room: int) -> list[int]:
    """Return a limit for each text; what short ones leave goes to the long ones."""
    limits = [0] * len(lengths)
    left = room
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    for place, index in enumerate(order):
        limits[index] = min(lengths[index], left // (len(order) - place))
        left -= limits[index]
    return limits


def _mark(texts: Sequence[str]) -> str:
    """Return a word that none of the texts contains, the same for the same texts."""
    digest = hashlib.sha256("\x00".join(texts).encode())
    while any(digest.hexdigest()[:12] in text for text in texts):
        digest.update(b"again")
    return digest.hexdigest()[:12]
