"""Normalise and match in process: the core against what a Python reward function does.

Everyone gets the same bytes in one run, single-threaded, and must find every planted
equation before a time is printed.  Times are CPU time, best of several rounds; on a shared
machine only the ratios mean anything.  The real long rollouts are used where a folder with
them is given (``--data``), otherwise the bundled sample's rollouts repeated.

Not covered: answers, the service, many cores and many problems.
"""

from __future__ import annotations

import argparse
import gzip
import json
import platform
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import ahocorasick
import numpy as np

from consensuspr.core import BACKEND, NORMAL_FORM_VERSION, Matcher, match_batch

REPOSITORY = Path(__file__).resolve().parent.parent
LONG_ROLLOUTS = (
    "olympiad_gptoss120b_very_long.jsonl.gz",
    "math_r1distill_long.jsonl.gz",
    "aime24_qwen3_32b.jsonl.gz",
)
# The shape of the paper's problems: 7 nodes, about 40 patterns with their equal forms.
NODES = 7
# Far larger than any cache, so that the floor is the memory's speed.
MEMCPY_BYTES = 1 << 28

# A usual plain-Python normaliser: one substitution after the other.
_RULES: Sequence[tuple[re.Pattern[str], str]] = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\left|\\right|\\displaystyle|\\boxed|\$|\\[()\[\],;!]", ""),
        (r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}", r"(\1)/(\2)"),
        (r"\\times|\\cdot|×|·", "*"),
        (r"\*\*|`", ""),
        (r"(\d),(?=\d{3}(?!\d))", r"\1"),
        (r"[−–]", "-"),
        (r"(\d\.\d*?)0+(?!\d)", r"\1"),
        (r"\s+", ""),
    )
]


@dataclass(frozen=True)
class Contender:
    """One way to match: a name, and a function of (nodes, texts) to matched flags."""

    name: str
    run: Callable[[], list[list[bool]]]
    rounds: int


def load_texts(data: Path | None) -> tuple[str, list[str]]:
    """Return a description and the texts to match."""
    if data is not None:
        texts = []
        for name in LONG_ROLLOUTS:
            with gzip.open(data / "rollouts" / name, "rt", encoding="utf-8") as lines:
                texts += [json.loads(line)["response"] for line in lines]
        return "real long rollouts", texts
    with open(REPOSITORY / "examples/sample/rollouts.jsonl", encoding="utf-8") as lines:
        rollouts = [json.loads(line)["response"] for line in lines]
    return "sample rollouts joined to 20 kB", [
        "\n\n".join(rollouts[start : start + 30]) for start in range(0, len(rollouts) - 30, 5)
    ] * 8


def plant(texts: list[str], seed: int) -> tuple[list[list[str]], list[str], list[set[int]]]:
    """Write some of the nodes into each text; return nodes, texts and who has which."""
    rng = random.Random(seed)
    pairs = [(rng.randrange(211, 997), rng.randrange(211, 997)) for _ in range(NODES)]
    nodes = [[f"{a}*{b}={a * b}"] for a, b in pairs]
    planted, truth = [], []
    for text in texts:
        chosen = {index for index in range(NODES) if rng.random() < 0.5}
        lines = [
            f"Now {pairs[i][0]} * {pairs[i][1]} = {pairs[i][0] * pairs[i][1]}." for i in chosen
        ]
        middle = text.rfind("\n", 0, len(text) // 2) + 1
        planted.append("\n".join([text[:middle], *lines, text[middle:]]))
        truth.append(chosen)
    return nodes, planted, truth


def plain_python(nodes: list[list[str]], texts: list[str]) -> Callable[[], list[list[bool]]]:
    """``re`` and pyahocorasick, with the simplest boundary check."""

    def normalise(text: str) -> str:
        for pattern, replacement in _RULES:
            text = pattern.sub(replacement, text)
        return text.lower()

    automaton = ahocorasick.Automaton()
    for index, expressions in enumerate(nodes):
        for expression in expressions:
            automaton.add_word(normalise(expression), (index, len(normalise(expression))))
    automaton.make_automaton()

    def run() -> list[list[bool]]:
        rows = []
        for text in texts:
            form = normalise(text)
            row = [False] * len(nodes)
            for last, (index, length) in automaton.iter(form):
                around = form[last - length : last - length + 1] if last >= length else ""
                after = form[last + 1 : last + 2]
                if not around.isdigit() and not after.isdigit():
                    row[index] = True
            rows.append(row)
        return rows

    return run


def core(nodes: list[list[str]], texts: list[str]) -> Callable[[], list[list[bool]]]:
    """The core of this installation, on one thread."""
    matcher = Matcher(nodes, expand=True)
    print(f"{NODES} nodes, {matcher.num_patterns} patterns, {matcher.nbytes:,} bytes", end="; ")
    raw = [text.encode() for text in texts]
    matchers = [matcher] * len(raw)

    def run() -> list[list[bool]]:
        result = match_batch(matchers, raw, threads=1)
        return [result.matched(index).tolist() for index in range(len(raw))]

    return run


def seconds(function: Callable[[], object], rounds: int) -> float:
    """Return the CPU time of the fastest of ``rounds`` calls."""
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        function()
        best = min(best, time.process_time() - start)
    return best


def memcpy_rate() -> float:
    """Return the bytes a second of copying a buffer far out of cache."""
    source = np.ones(MEMCPY_BYTES, dtype=np.uint8)
    target = np.zeros(MEMCPY_BYTES, dtype=np.uint8)
    return MEMCPY_BYTES / seconds(lambda: np.copyto(target, source), 4)


def commit() -> str:
    """Return the commit of this checkout, or ``unknown``."""
    done = subprocess.run(
        ["git", "-C", str(REPOSITORY), "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"


def main() -> int:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data", type=Path, help="folder that holds rollouts/*.jsonl.gz")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of the fast contenders")
    parser.add_argument("--seed", type=int, default=20, help="seed of the planted equations")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error(f"--rounds must be 1 or more, got {arguments.rounds}")
    description, texts = load_texts(arguments.data)
    nodes, texts, truth = plant(texts, arguments.seed)
    size = sum(len(text.encode()) for text in texts)
    print(f"{description}: {len(texts)} texts, {size / 1e6:.1f} MB", end="; ")
    contenders = [
        Contender(f"consensuspr core ({BACKEND})", core(nodes, texts), arguments.rounds),
        Contender("re + pyahocorasick", plain_python(nodes, texts), 2),
    ]
    print(f"normal form {NORMAL_FORM_VERSION}, commit {commit()}, {platform.machine()}")
    for contender in contenders:
        for index, row in enumerate(contender.run()):
            found = {node for node, matched in enumerate(row) if matched}
            if not truth[index] <= found:
                missed = sorted(truth[index] - found)
                print(f"{contender.name} missed nodes {missed} of text {index}", file=sys.stderr)
                return 1
    floor = memcpy_rate()
    times = {contender.name: seconds(contender.run, contender.rounds) for contender in contenders}
    slowest = max(times.values())
    print(f"{'':32} {'MB/s':>8} {'times as fast':>14} {'memcpy is':>10}")
    for name, spent in times.items():
        rate = size / spent
        print(f"{name:32} {rate / 1e6:8.0f} {slowest / spent:13.1f}x {floor / rate:9.0f}x")
    print(f"{'memcpy, 256 MiB':32} {floor / 1e6:8.0f}")
    if arguments.json:
        arguments.json.write_text(
            json.dumps(
                {
                    "texts": description,
                    "bytes": size,
                    "commit": commit(),
                    "machine": platform.platform(),
                    "backend": BACKEND,
                    "memcpy_bytes_per_s": floor,
                    "bytes_per_s": {name: size / spent for name, spent in times.items()},
                },
                indent=2,
            )
            + "\n",
            encoding="utf-8",
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
