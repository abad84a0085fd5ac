"""OpenRLHF's remote reward: ``{query[], prompts[], labels[]}`` to ``{rewards, …}``.

Read in its releases 0.6 to 0.11: a query is prompt and response decoded together; up to 0.9
one request holds a whole step, from 0.10 on one rollout, always in lists.  Of the reply,
``rewards`` trains, ``scores`` decides what dynamic filtering drops, and every key of
``extra_logs`` is a curve in the training log; all three are turned into tensors, so that
they hold numbers only, and the same keys always.  Other keys are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from consensuspr.errors import InputError
from consensuspr.http.batch import Batches, Item, Outcome, same_length
from consensuspr.http.elements import Bounds, members, text
from consensuspr.http.naming import read_label
from consensuspr.http.options import Settings
from consensuspr.http.texts import after_prompt
from consensuspr.server.call import Call

LISTS = ("query", "prompts", "labels")
CHOICES: Mapping[str, Sequence[str]] = {"scores": ("reward", "acc")}


def answer(body: bytes, call: Call, settings: Settings, batches: Batches) -> object:
    """Answer one request with what is to be sent as JSON.

    Raises:
        Abort: nobody waits any more.
        InputError: the body has another shape.
        Unscorable: some rollouts have no reward, and no number is given for them.
    """
    call.check()
    given = members(body, LISTS, batches.max_items).lists
    for name in LISTS[:2]:
        if name not in given:
            raise InputError(f"the body has no {name}; it must be OpenRLHF 0.6 or newer that asks")
    queries, prompts = given["query"], given["prompts"]
    same_length("prompts", len(prompts), "query", len(queries))
    labels: Sequence[Bounds | None] = given.get("labels", [None] * len(queries))
    same_length("labels", len(labels), "query", len(queries))

    def items() -> Iterator[Item]:
        for at, (query, prompt, label) in enumerate(zip(queries, prompts, labels, strict=True)):
            asked = text(body, prompt, f"prompts[{at}]")
            response = after_prompt(text(body, query, f"query[{at}]"), asked)
            said = read_label(body, label, f"labels[{at}]")
            yield batches.item(asked, response, said, settings.options)

    return _reply(batches.score(items(), len(queries), settings, call), settings)


def _reply(outcomes: Sequence[Outcome], settings: Settings) -> dict[str, object]:
    rewards = [outcome.reward for outcome in outcomes]
    scores = rewards
    if settings.choices["scores"] == "acc":
        unknown = settings.on_unscorable
        scores = [_acc(outcome, 0.0 if unknown is None else unknown) for outcome in outcomes]
    return {
        "rewards": rewards,
        "scores": scores,
        "extra_logs": {
            "acc": [_acc(outcome) for outcome in outcomes],
            "ncr": [_ncr(outcome) for outcome in outcomes],
            "num_nodes": [_count(outcome, "num_nodes") for outcome in outcomes],
            "num_matched": [_count(outcome, "num_matched") for outcome in outcomes],
            "unscorable": [float(outcome.unscorable) for outcome in outcomes],
        },
        "statuses": [outcome.status for outcome in outcomes],
        "messages": [outcome.message for outcome in outcomes],
    }


# A curve takes numbers only: what is unknown is 0 there, and known by num_nodes, unscorable
# and the status.


def _acc(outcome: Outcome, unknown: float = 0.0) -> float:
    acc = None if outcome.score is None else outcome.score.acc
    return unknown if acc is None else acc


def _ncr(outcome: Outcome) -> float:
    ncr = None if outcome.score is None else outcome.score.ncr
    return 0.0 if ncr is None else ncr


def _count(outcome: Outcome, name: str) -> float:
    return 0.0 if outcome.score is None else float(getattr(outcome.score, name))
