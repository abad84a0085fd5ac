"""What the policy wrote of a response, where tools and environments wrote parts of it.

A response of several turns holds what tools returned between what the policy wrote, and only the
policy's own text may earn anything: a search result that states a node, or the answer, would be
paid for otherwise.  Two ways lead to it:

*   By the mask of the agent loop, 1 for a token of the policy.  verl keeps it from the reward;
    :mod:`consensuspr.client.verl.agent_loop`, or a loop of a user's own, hands it over as
    ``extra_fields["response_mask"]``.  It is exact, whatever anybody writes.
*   By the chat template, where no mask came: the marks that open another's turn and the
    policy's next one.  The agent loop writes each of them once a turn and says how many turns
    there were; where there are more marks than that, somebody else has written some, and nothing
    tells whose are which.  Then only what precedes the first mark is scored, for that is the
    policy's: so neither a tool that writes the template nor a policy that does gains by it, and
    what a policy hides behind a mark of its own is lost to it.  How much that is, is told
    (:attr:`PolicyText.unscored`).  A response of several turns without any mark comes of a loop
    that writes none, and is refused: a tool's words would be scored as the policy's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from consensuspr.client.training.credit import BETWEEN
from consensuspr.errors import InputError

# A rollout of one turn: the user's message and the policy's.
ONE_TURN = 2

# Roles that may speak between two turns of the policy.
_OTHERS = ("tool", "user")


def policy_spans(mask: NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Yield the half-open spans of tokens that a mask says the policy wrote."""
    edges = np.flatnonzero(np.diff(mask.astype(bool), prepend=False, append=False))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


class PolicyText(NamedTuple):
    """What the policy wrote of a response.

    Attributes:
        text: of its turns, without special tokens.
        unscored: characters that are left out because the marks do not tell whose they are.
    """

    text: str
    unscored: int


@dataclass(frozen=True, slots=True)
class TurnMarks:
    """The marks of a chat template between two turns of the policy.

    Attributes:
        opening: of another's turn.
        closing: of the policy's next turn.
        special: texts of special tokens, which are no part of what is scored.
    """

    opening: re.Pattern[str]
    closing: str
    special: re.Pattern[str]

    @classmethod
    def of(cls, tokenizer: Any) -> Self:
        """Read them off a tokenizer's chat template.

        Raises:
            InputError: it has none, or none that tells turns apart.
        """
        question: list[dict[str, str]] = [{"role": "user", "content": "Q"}]
        said, other = "<said>", "<other>"
        answered = [*question, {"role": "assistant", "content": said}]
        openings = set()
        try:
            asked = _rendered(tokenizer, question, prompt=True)
            closing = asked.removeprefix(_rendered(tokenizer, question)).strip()
            end = _rendered(tokenizer, answered).rpartition(said)[2]
            for role in _OTHERS:
                text = _rendered(tokenizer, [*answered, {"role": role, "content": other}])
                between = text.rpartition(said)[2].partition(other)[0]
                openings.add(between.removeprefix(end).strip())
        except Exception as error:  # whatever a template of Jinja, and the tokenizer, may raise
            raise _unknown(f"{type(error).__name__}: {error}") from error
        if not closing or not all(openings):
            raise _unknown("it has no mark where a turn begins")
        longest = sorted(openings, key=len, reverse=True)
        special = [re.escape(token) for token in tokenizer.all_special_tokens if token]
        return cls(
            re.compile("|".join(map(re.escape, longest))),
            closing,
            re.compile("|".join(special) or r"(?!)"),
        )

    def policy_text(self, text: str, turns: int) -> PolicyText:
        """Return what the policy wrote of a response.

        Args:
            text: of the whole response, special tokens included.
            turns: messages of the conversation, the user's first one included; 3 or more.

        Raises:
            InputError: no mark is in it.
        """
        opens = [(match.start(), match.end(), True) for match in self.opening.finditer(text)]
        closes = [
            (match.start(), match.end(), False)
            for match in re.finditer(re.escape(self.closing), text)
        ]
        marks = sorted([*opens, *closes])
        others = (turns - 1) // 2
        in_turn = all(mark[2] == (at % 2 == 0) for at, mark in enumerate(marks))
        unscored = 0
        if not marks:
            raise _unknown(f"there were {turns} messages, and none of its marks is in the response")
        if len(opens) != others or len(closes) != others or not in_turn:
            parts = [text[: marks[0][0]]]
            unscored = len(text) - len(parts[0])
        else:
            begins = [0, *(end for _, end, opening in marks if not opening)]
            ends = [*(start for start, _, opening in marks if opening), len(text)]
            parts = [text[start:end] for start, end in zip(begins, ends, strict=True)]
        whole = BETWEEN.join(self.special.sub("", part).strip() for part in parts)
        return PolicyText(whole, unscored)


def _rendered(tokenizer: Any, messages: Sequence[dict[str, str]], prompt: bool = False) -> str:
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt)
    return str(text)


def _unknown(why: str) -> InputError:
    return InputError(
        "a response of several turns came without its response_mask, and the tokenizer's chat"
        f" template does not tell turns apart ({why}); set"
        " actor_rollout_ref.rollout.agent.agent_loop_manager_class="
        "consensuspr.client.verl.agent_loop.MaskingAgentLoopManager, so that the mask comes along"
    )
