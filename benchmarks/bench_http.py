"""The HTTP endpoint's own work: reading a step's JSON piece by piece, and naming problems.

Each part checks its answer before it prints a time.  "Longest hold" is how long Python's
lock is kept from everybody else at most: for ``json.loads`` all of it, for the endpoint the
decoding of one rollout.

Not covered: scoring, and HTTP itself.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable
from typing import Any

from consensuspr.http.elements import members, text
from consensuspr.http.problem_texts import build

ROLLOUT = 'Let us see: \\frac{1}{2} of it is \\sqrt{16}, so\n\\[ x = 4 \\] "holds". 𝑥 ' * 180
WORDS = (
    "find the value of x such that a b c is let be real number sum over all prime 12 34 what how"
)


def seconds(run: Callable[[], Any], rounds: int = 5) -> float:
    """Return the shortest time of several rounds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def read_a_step(rollouts: int) -> None:
    """Compare ways to read the queries of one request."""
    body = json.dumps({"query": [ROLLOUT] * rollouts}, ensure_ascii=False).encode()

    def boundaries() -> Any:
        return members(body, ["query"], rollouts).lists["query"]

    found = boundaries()
    assert [text(body, at, "query") for at in found] == json.loads(body)["query"]
    whole = seconds(lambda: json.loads(body), 3)
    places = seconds(boundaries)
    one = seconds(lambda: text(body, found[0], "query"), 50)
    print(f"one request of {rollouts} rollouts, {len(body) / 1e6:.0f} MB")
    print(f"{'':34} {'time':>10} {'longest hold':>13}")
    print(f"{'json.loads':34} {whole * 1e3:8.1f} ms {whole * 1e3:10.2f} ms")
    print(
        f"{'boundaries, then one at a time':34} {(places + one * rollouts) * 1e3:8.1f} ms", end=""
    )
    print(f" {one * 1e3:10.2f} ms")
    print(f"{'  of which boundaries':34} {places * 1e3:8.1f} ms")


def name_problems(problems: int) -> None:
    """Find one problem by its text among so many."""
    chance = random.Random(7)
    texts = [
        f"{' '.join(chance.choices(WORDS.split(), k=chance.randint(20, 60)))} #{at}?"
        for at in range(problems)
    ]
    start = time.perf_counter()
    index = build(enumerate(texts))
    built = time.perf_counter() - start
    wanted = chance.randrange(problems)
    prompt = f"<|im_start|>user\n{texts[wanted]}\nThink step by step.<|im_end|>\n"
    found = index.find(prompt)
    assert found is not None
    assert [one.position for one in found] == [wanted]
    spent = seconds(lambda: index.find(prompt), 50)
    print(
        f"{problems:8} problems: {spent * 1e3:6.2f} ms a prompt of {len(prompt)} characters", end=""
    )
    print(f", indexed in {built:.1f} s")


def main() -> int:
    """Run both parts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rollouts", type=int, default=4096, help="of one request")
    parser.add_argument("--problems", type=int, nargs="+", default=[5_000, 100_000])
    arguments = parser.parse_args()
    read_a_step(arguments.rollouts)
    print()
    for problems in arguments.problems:
        name_problems(problems)
    return 0


if __name__ == "__main__":
    sys.exit(main())
