"""The HTTP endpoint's own work: reading a step's JSON piece by piece, and naming problems.

"Longest hold" is how long Python's lock is kept from everybody else at most: for ``json.loads``
all of it, for the endpoint the decoding of one rollout.
"""

from __future__ import annotations

import json
import random

from benchmarks.harness.measure import Context, interleaved
from benchmarks.harness.results import Figure
from benchmarks.suites.service.work import WrongAnswer
from consensuspr.http.json_body import Bounds, members, text
from consensuspr.http.problems import build

ROLLOUT = 'Let us see: \\frac{1}{2} of it is \\sqrt{16}, so\n\\[ x = 4 \\] "holds". 𝑥 ' * 180
WORDS = (
    "find the value of x such that a b c is let be real number sum over all prime 12 34 what how"
)


def figures(context: Context) -> list[Figure]:
    """Measure both parts."""
    return [
        *_read_a_step(4096 if context.full else 512, context.rounds),
        *_name_problems(100_000 if context.full else 5_000, context.seed, context.rounds),
    ]


def _read_a_step(count: int, rounds: int) -> list[Figure]:
    """Compare ways to read the queries of one request."""
    body = json.dumps({"query": [ROLLOUT] * count}, ensure_ascii=False).encode()

    def boundaries() -> list[Bounds]:
        return members(body, ["query"], count).lists["query"]

    found = boundaries()
    if [text(body, at, "query") for at in found] != json.loads(body)["query"]:
        raise WrongAnswer("the endpoint reads other texts than json.loads")
    timings = interleaved(
        {
            "whole": lambda: json.loads(body),
            "boundaries": boundaries,
            "one": lambda: text(body, found[0], "query"),
        },
        rounds,
    )
    whole, places, one = (timings[name].best for name in ("whole", "boundaries", "one"))
    of: dict[str, str | int | float] = {"rollouts": count, "MB": round(len(body) / 1e6, 1)}
    return [
        Figure(name="json.loads", value=whole * 1e3, unit="ms", parameters=of),
        Figure(
            name="boundaries, then one at a time",
            value=(places + one * count) * 1e3,
            unit="ms",
            parameters=of,
        ),
        Figure(name="longest hold of json.loads", value=whole * 1e3, unit="ms", parameters=of),
        Figure(name="longest hold of one rollout", value=one * 1e3, unit="ms", parameters=of),
    ]


def _name_problems(count: int, seed: int, rounds: int) -> list[Figure]:
    """Find one problem by its text among ``count``."""
    chance = random.Random(seed)
    texts = [
        f"{' '.join(chance.choices(WORDS.split(), k=chance.randint(20, 60)))} #{at}?"
        for at in range(count)
    ]
    index = build(enumerate(texts))
    wanted = chance.randrange(count)
    prompt = f"<|im_start|>user\n{texts[wanted]}\nThink step by step.<|im_end|>\n"
    found = index.find(prompt)
    if found is None or [one.position for one in found] != [wanted]:
        raise WrongAnswer("the endpoint finds another problem than the one that is asked for")
    spent = interleaved({"find": lambda: index.find(prompt)}, rounds)["find"].best
    of: dict[str, str | int | float] = {"problems": count, "characters": len(prompt)}
    return [Figure(name="naming a prompt's problem", value=spent * 1e3, unit="ms", parameters=of)]
