"""Step credit: a response's reward on the tokens that earned it, with the same sum.

A score says where each node was first hit, in code points of the response's text
(:attr:`~consensuspr.scoring.types.Score.spans`).  A trainer needs the token, of the very ids that
the policy wrote: a text that is encoded again may become other tokens.  The token that reached a
node is the one with which the last code point of its span was complete.

A :data:`Finder` knows the text of one response.  There are two, for the two ways in which
tokenizers write: the bytes of each token one behind the other (:func:`finder_of_bytes`), or
anything else whose text only grows as tokens are added (:func:`finder_of_decoding`).  Special
tokens that the text lacks write nothing, and reach nothing.

What a token earns (:func:`place_reward`):

- The token that reached a node earns the node's share of NCR before the guard, times the weight of
  NCR in the reward (linear: 1 - alpha; max and the first stage of a curriculum: 1; else 0).  A node
  counts once, at its first hit, and one in what a tool wrote nowhere.
- The last token of the policy earns the rest, whatever makes the reward: Acc's part, what the
  guard takes (a negative rest), a penalty for length, nodes that found no token, and what rounding
  leaves.

So a token's reward follows from what was written up to it, as a step's reward should: the guard,
which judges the whole text, does not reach back to the nodes but lowers the end, and a policy that
goes on to list values after its nodes is told so where it does.  The sum is the reward, wherever
the nodes stand: text that is moved about earns the same.

The sum is exact, not nearly so: trainers add float32 in an order of their own, and compare.
Amounts are multiples of 2^-22 (2.4e-7, coarser by powers of two for rewards beyond 2), so few that
any order adds them up without rounding, to the reward as a multiple of the same.
"""

from __future__ import annotations

import codecs
import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from consensuspr.errors import InputError
from consensuspr.scoring.types import Score

# Of code points of a text: half-open; None where a node was not reached.
Span: TypeAlias = tuple[int, int] | None

# Returns the token with which so many code points of the text are complete, None where it has less.
Finder: TypeAlias = Callable[[int], int | None]

# What decodes to one U+FFFD becomes one code point that says how many bytes that was: a lone
# surrogate, which no UTF-8 holds.
_COUNTED = "consensuspr-counted"
_BAD_BYTES = 0xDC00
codecs.register_error(
    _COUNTED,
    lambda error: (
        chr(_BAD_BYTES + error.end - error.start),  # type: ignore[attr-defined]
        error.end,  # type: ignore[attr-defined]
    ),
)


# Of float32's 24 binary digits, those before and behind the point.
_DIGITS = 24
_WHOLE_DIGITS = 2


# Turns of the policy are apart in the text that is scored, so that nothing is read across the gap.
BETWEEN = "\n"

# As GRPO, for groups whose rewards hardly differ.
_EPSILON = 1e-6

# What was earned so far is compared in these steps, far finer than any node and coarser than what
# rounding leaves.
_EARNED_STEP = 2.0**-16


def finder_of_bytes(tokens: Sequence[bytes]) -> Finder:
    """Return the finder of a response whose text is the bytes of its tokens.

    Args:
        tokens: the bytes of each token, none of one that the text lacks.  They may be parts of a
            code point, and bytes that are no UTF-8 count as the U+FFFD that they decode to.
    """
    byte_ends = np.cumsum([len(token) for token in tokens], dtype=np.int64)
    written = b"".join(tokens)
    complete = byte_ends
    if not written.isascii():
        complete = np.searchsorted(_code_point_ends(written), byte_ends, side="right")

    def find(end: int) -> int | None:
        token = int(np.searchsorted(complete, end))
        return token if token < len(tokens) else None

    return find


def _code_point_ends(text: bytes) -> NDArray[np.int64]:
    """Return behind which byte each code point ends, as ``decode(errors="replace")`` reads it."""
    decoded = text.decode(errors=_COUNTED).encode("utf-32-le", "surrogatepass")
    points = np.frombuffer(decoded, dtype="<u4").astype(np.int64)
    sizes = 1 + (points >= 0x80) + (points >= 0x800) + (points >= 0x10000)
    bad = points - _BAD_BYTES
    return np.cumsum(np.where((bad > 0) & (bad < 4), bad, sizes))


def finder_of_decoding(ids: Sequence[int], decode: Callable[[Any], str]) -> Finder:
    """Return the finder of a response of any tokenizer whose text only grows with its tokens.

    It decodes beginnings of the response, about twelve for a node of a long one, where
    :func:`finder_of_bytes` looks into a table.  A U+FFFD in the text itself is taken for complete
    with the first token that shows one.

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
        # A code point of which bytes are missing is U+FFFD meanwhile, so that texts are compared.
        wanted = text[:end]
        counts = range(1, len(ids) + 1)
        token = bisect_left(counts, True, key=lambda n: beginning(n).startswith(wanted))
        return token if token < len(ids) else None

    return find


def finder_of_turns(turns: Sequence[tuple[int, int, Finder]], between: int) -> Finder:
    """Return the finder of the turns of a policy, between which others spoke.

    Args:
        turns: the first token of each among all, the code points of its text, and its finder.
        between: code points between two turns in the text that is scored; they are nobody's.
    """

    def find(end: int) -> int | None:
        for first, size, find_in_turn in turns:
            if end <= size:
                token = find_in_turn(end) if end > 0 else None
                return None if token is None else first + token
            end -= size + between
        return None

    return find


def node_tokens(
    spans: Iterable[Span], find: Finder, policy: Sequence[Any] | NDArray[Any] | None = None
) -> list[int | None]:
    """Return the token that reached each node.

    Args:
        spans: of the nodes in the text, in node order.
        find: of that text.
        policy: of each token, whether the policy wrote it; None: it wrote all.

    Returns:
        A token for each node, None where it was not reached, or by a token that a tool or a
        template wrote, which earns nothing.
    """
    tokens = [None if span is None else find(span[1]) for span in spans]
    if policy is None:
        return tokens
    return [None if token is None or not policy[token] else token for token in tokens]


def place_reward(
    reward: float,
    score: Score,
    ncr_weight: float,
    find: Finder,
    policy: Sequence[Any] | NDArray[Any],
) -> dict[int, float]:
    """Return what each token of a response earns, by token; those that are missing earn 0.

    Args:
        reward: what the sample is trained on, penalties and a user's own number included.
        score: of the response, asked for with spans.
        ncr_weight: of the reward (:meth:`~consensuspr.scoring.rewards.RewardSpec.ncr_weight`).
        find: of the text that was scored.
        policy: of each token, whether the policy wrote it; where it wrote none, the last token
            earns everything.

    Raises:
        InputError: the response has no tokens, or the server does not say what nodes are worth.
    """
    if not len(policy):
        raise InputError("a response without tokens has none that could earn its reward")
    written = np.flatnonzero(policy)
    last = int(written[-1]) if written.size else len(policy) - 1
    # A user's own number is no sum of nodes.
    spans = score.spans if score.reward is not None and ncr_weight and score.spans else ()
    shares = score.shares or ()
    # Nodes of weight 0 add nothing; an NCR that nothing adds to is of a server that does not say.
    if (score.ncr_raw or score.ncr) and spans and not any(shares):
        raise InputError(
            "the server says where nodes were reached and not what each is worth, which step"
            " credit needs; it is older than this client"
        )
    tokens = node_tokens(spans, find, policy)
    parts = [
        (token, ncr_weight * share)
        for token, share in zip(tokens, shares, strict=bool(spans))
        if token is not None
    ]
    step = _step(abs(reward) + 2 * sum(part for _, part in parts))
    placed: dict[int, float] = {}
    for token, part in parts:
        placed[token] = placed.get(token, 0.0) + round(part / step) * step
    rest = round(reward / step) * step - sum(placed.values())
    placed[last] = placed.get(last, 0.0) + rest
    return {token: amount for token, amount in placed.items() if amount}


def _step(bound: float) -> float:
    """Return of what amounts are multiples, where no sum of some of them is above a bound."""
    # A little more room, because amounts are rounded.
    _, digits = math.frexp(bound * 1.001)
    return math.ldexp(1.0, max(digits, _WHOLE_DIGITS) - _DIGITS)


def compare_group(
    rewards: NDArray[np.float64], policy: NDArray[np.bool_], by_std: bool = True
) -> NDArray[np.float64]:
    """Return the advantage of each token: what its response still earns, against its group's.

    Responses are compared where they had earned as much; the formula stands at
    ``consensuspr.client.verl.step_credit.step_advantage``.

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
            others = reached[earned]
            if len(others) > 1:
                baseline = sum(total[other] for other in others) / len(others)
            advantages[row, start:end] = (total[row] - baseline) / scale
    return advantages * policy


def _steps(
    rewards: NDArray[np.float64], policy: NDArray[np.bool_]
) -> Iterator[tuple[int, int, int]]:
    """Yield what was earned before each stretch of a response, as a whole number, and the stretch.

    A stretch goes from behind a token that earned something up to the next one, and has a token of
    the policy.
    """
    start, earned = 0, 0.0
    for token in [*np.flatnonzero(rewards).tolist(), len(rewards) - 1]:
        if policy[start : token + 1].any():
            yield round(earned / _EARNED_STEP), start, token + 1
        start, earned = token + 1, earned + rewards[token]
