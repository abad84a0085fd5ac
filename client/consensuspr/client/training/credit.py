"""Step credit: a response's reward on the tokens that earned it, with the same sum.

A score says where each node was first hit, in code points of the response's text
(:attr:`~consensuspr.scoring.types.Score.spans`).  A :data:`Finder` returns the token with which
the last code point of a span was complete.

- The token that reached a node earns the node's share of NCR before the guard, times the weight of
  NCR in the reward.  A node counts once, at its first hit, and not in a tool's text.
- The last token of the policy earns the difference: Acc's part, the guard's reduction, a penalty
  for length, nodes without a token.

So a token's reward depends only on the text up to it.

Amounts are multiples of 2^-22 (coarser by powers of two for rewards beyond 2), so that trainers add
them as float32 in any order without rounding.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from consensuspr.errors import InputError
from consensuspr.scoring.types import Score

# Returns the token with which so many code points of the text are complete; None: it has fewer.
Finder: TypeAlias = Callable[[int], int | None]

# Binary digits of float32, and those before the point.
_DIGITS = 24
_WHOLE_DIGITS = 2

# Separates turns of the policy in the text that is scored, so that nothing is read across them.
BETWEEN = "\n"

# As GRPO, for groups whose rewards hardly differ.
_EPSILON = 1e-6

# Unit in which earnings are compared: finer than any node, coarser than rounding errors.
_EARNED_STEP = 2.0**-16


def finder_of_decoding(ids: Sequence[int] | NDArray[Any], decode: Callable[[Any], str]) -> Finder:
    """Return the finder of a response of any tokenizer whose text only grows with its tokens.

    It decodes beginnings of the response, about twelve for a node of a long one.  A U+FFFD in the
    text itself counts as complete with the first token that shows one.

    Args:
        ids: of the response.
        decode: returns the text of ids, as the response was decoded that was scored.
    """
    text = decode(ids)

    @cache
    def beginning(count: int) -> str:
        return decode(ids[:count])

    def find(end: int) -> int | None:
        if end > len(text):
            return None
        # A code point of which bytes are missing is U+FFFD meanwhile, so texts are compared.
        wanted = text[:end]
        counts = range(1, len(ids) + 1)
        token = bisect_left(counts, True, key=lambda n: beginning(n).startswith(wanted))
        return token if token < len(ids) else None

    return find


def finder_of_turns(
    turns: Sequence[tuple[int, Sequence[int] | NDArray[Any]]],
    texts: Sequence[str],
    decode: Callable[[Any], str],
) -> Finder:
    """Return the finder of the turns of a policy, whose texts are joined by :data:`BETWEEN`.

    Args:
        turns: the first token of each among all, and its ids.
        texts: of each, decoded.
        decode: as for :func:`finder_of_decoding`.
    """
    finders = [finder_of_decoding(ids, decode) for _, ids in turns]

    def find(end: int) -> int | None:
        for (first, _), text, find_in_turn in zip(turns, texts, finders, strict=True):
            if end <= len(text):
                token = find_in_turn(end) if end > 0 else None
                return None if token is None else first + token
            end -= len(text) + len(BETWEEN)
        return None

    return find


def place_reward(
    reward: float,
    score: Score,
    ncr_weight: float,
    find: Finder,
    policy: Sequence[Any] | NDArray[Any],
) -> dict[int, float]:
    """Return what each token of a response earns, by token; those that are missing earn 0.

    Args:
        reward: final score of the sample, with penalties.
        score: of the response, asked for with spans.
        ncr_weight: of the reward (:meth:`~consensuspr.scoring.rewards.RewardSpec.ncr_weight`).
        find: of the text that was scored.
        policy: of each token, whether the policy wrote it.  If it wrote none, the last token
            earns everything.

    Raises:
        InputError: the response has no tokens, or the server sends no shares of nodes.
    """
    if not len(policy):
        raise InputError("a response without tokens cannot earn step credit")
    written = np.flatnonzero(policy)
    last = int(written[-1]) if written.size else len(policy) - 1
    # A user's own number is no sum of nodes.
    spans = score.spans if score.reward is not None and ncr_weight and score.spans else ()
    shares = score.shares or ()
    # Nodes of weight 0 add nothing; an NCR that nothing adds to is of a server that does not say.
    if (score.ncr_raw or score.ncr) and spans and not any(shares):
        raise InputError(
            "the server sends the places of nodes without their shares, which step credit needs;"
            " it is older than this client"
        )
    parts = []
    for span, share in zip(spans, shares, strict=bool(spans)):
        token = None if span is None else find(span[1])
        if token is not None and policy[token]:
            parts.append((token, ncr_weight * share))
    # Amounts are multiples of the step: no sum of some of them, each rounded, needs more digits.
    _, digits = math.frexp(1.001 * (abs(reward) + 2 * sum(part for _, part in parts)))
    step = math.ldexp(1.0, max(digits, _WHOLE_DIGITS) - _DIGITS)
    placed: dict[int, float] = {}
    for token, part in parts:
        placed[token] = placed.get(token, 0.0) + round(part / step) * step
    placed[last] = placed.get(last, 0.0) + round(reward / step) * step - sum(placed.values())
    return {token: amount for token, amount in placed.items() if amount}


def compare_group(
    rewards: NDArray[np.float64], policy: NDArray[np.bool_], by_std: bool = True
) -> NDArray[np.float64]:
    """Return the advantage of each token by ``verl.step_credit.step_advantage``'s formula.

    Args:
        rewards: (n, length) what each token of the group's responses earns.
        policy: (n, length) whether the policy wrote it, which it did of one at least in each.
        by_std: divide by the standard deviation of the responses' rewards, as GRPO does.
    """
    total = rewards.sum(axis=1)
    steps = [list(_steps(*row)) for row in zip(rewards, policy, strict=True)]
    reached: defaultdict[int, set[int]] = defaultdict(set)
    for row, stretches in enumerate(steps):
        for earned, _, _ in stretches:
            reached[earned].add(row)
    spread = float(np.std(total, ddof=1)) if len(total) > 1 else 0.0
    scale = spread + _EPSILON if by_std else 1.0
    advantages = np.zeros_like(rewards)
    for row, stretches in enumerate(steps):
        baseline = total[row]
        for earned, start, end in stretches:
            compared = reached[earned]
            if len(compared) > 1:
                baseline = sum(total[other] for other in compared) / len(compared)
            advantages[row, start:end] = (total[row] - baseline) / scale
    return advantages * policy


def _steps(
    rewards: NDArray[np.float64], policy: NDArray[np.bool_]
) -> Iterator[tuple[int, int, int]]:
    """Yield each stretch between tokens that earn, with the sum earned before it in whole units."""
    start, earned = 0, 0.0
    for token in [*np.flatnonzero(rewards).tolist(), len(rewards) - 1]:
        if policy[start : token + 1].any():
            yield round(earned / _EARNED_STEP), start, token + 1
        start, earned = token + 1, earned + rewards[token]
