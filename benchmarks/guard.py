"""Fail where a change made scoring dearer: ``python -m benchmarks.guard``.

valgrind's callgrind counts the instructions of fixed pieces of work.  Counts do not depend on the
load of the machine, so they are compared with ``guard.json``, which ``--update`` writes.

A second process does the work.  It calls a C function that nothing else calls before and after each
probe, and callgrind writes a count at each call.  So start-up, imports and checks are not counted.

Exit codes: 0 nothing costs more (or nothing can be counted here), 1 something does, or nothing can
be counted and ``--require`` or ``--update`` is given, 2 bad usage.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import pickle
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from benchmarks import texts
from benchmarks.markdown import table
from benchmarks.measure import REPOSITORY
from consensuspr import core
from consensuspr.scoring import AnswerVerifier, DatasetIndex, RewardSpec, Scorer, rollout_from_row
from consensuspr.scoring.types import ScoreOptions
from consensuspr.v1 import scoring_pb2 as pb
from consensuspr.wire import codec

BASELINE = Path(__file__).with_suffix(".json")
UPDATE = "python -m benchmarks.guard --update"
# The share that a count may rise, or fall, before the guard fails.  Counts of one build repeat to
# 1.5 %; other compilers and interpreters change them by up to 20 %.
ROOM = {"core": 0.10, "python": 0.15}
ROOM_OF_ANOTHER_BUILD = 0.30
SEED = 5
HOSTILE_BYTES = 1 << 14
# A text repeats the second part; nodes begin with the first and contain one another.
HOSTILE = {
    "letters": ("", "a"),
    "an endless number": ("", "1"),
    "products": ("x", ",2x"),
    "equations": ("", "=1"),
    "grouped digits": ("1", ",1"),
    "nested fractions": ("", r"\frac{"),
    "closing brackets": ("x=", "1)"),
    "powers of powers": ("", "x^{"),
    "unknown commands": ("x", r"\qwertz "),
    "signs": ("1", "-+"),
    "mathematical letters": ("", "𝑥"),
}
# callgrind writes a count before this C function, which ``os.getpgrp`` calls.
MARK = "getpgrp"

Counts: TypeAlias = dict[str, Any]
Workload: TypeAlias = tuple[str, list[list[list[str]]], list[tuple[int, str]]]


class CountingError(Exception):
    """Nothing could be counted; the text says why."""


class Probe(NamedTuple):
    """Work to count: ``run(0)`` warms up and is checked, ``run(1)`` is counted.

    ``kind`` is "core" or "python"; a count is divided by ``units``.
    """

    name: str
    kind: str
    units: int
    run: Callable[[int], Any]
    check: Callable[[Any], bool]


def workloads() -> Iterator[Workload]:
    """Yield a name, the nodes of each problem, and texts with the place of their problem."""
    sample = REPOSITORY / "examples" / "sample"
    problems, rollouts = (
        [json.loads(line) for line in (sample / name).read_text(encoding="utf-8").splitlines()]
        for name in ("dataset.jsonl", "rollouts.jsonl")
    )
    place = {row["problem_id"]: index for index, row in enumerate(problems)}
    nodes = [texts.expressions(row) for row in problems]
    yield "sample", nodes, [(place[row["problem_id"]], row["response"]) for row in rollouts]
    responses = [row["response"] for row in rollouts]
    joined = ["\n\n".join(responses[at : at + 16]) for at in range(0, len(responses), 16)]
    yield "formulas, 10 kB", nodes, list(enumerate(joined))
    for name, count, per_problem, size, of_each in (
        ("prose, 10 kB", 8, 4, 10_000, 7),
        ("prose, 256 kB", 1, 1, 1 << 18, 7),
        ("prose, 500 nodes", 1, 6, 10_000, 500),
    ):
        made = texts.problems(count, SEED, of_each)
        rows = texts.rollouts_of(made, per_problem, size, SEED)
        items = [(at // per_problem, row["response"]) for at, row in enumerate(rows)]
        yield name, [texts.expressions(row) for row in made], items
    for name, (first, unit) in HOSTILE.items():
        nested = [*([first + unit * length] for length in range(1, 64)), ["never=0"]]
        text = unit * (HOSTILE_BYTES // len(unit.encode()))
        yield f"hostile, {name}", [nested], [(0, text)]


def probes(given: Sequence[Workload], folder: Path) -> Iterator[Probe]:
    """Yield the probes of the workloads given; files go into ``folder``."""
    for name, nodes, items in given:
        compiled = [core.Matcher(one) for one in nodes]
        yield _matching(name, [(compiled[at], text.encode()) for at, text in items])
    batch = texts.batch(64, 2_000, SEED, folder)
    yield Probe(
        "read a dataset and compile it (a problem)",
        "python",
        len(batch.problems),
        lambda _: (
            len(DatasetIndex.load(batch.dataset, derive="off")),
            [core.Matcher(texts.expressions(row)) for row in batch.problems],
        ),
        lambda found: found[0] == len(found[1]) == len(batch.problems),
    )
    verifier = AnswerVerifier(budget_s=600.0)  # valgrind is slow: an answer must not time out
    answers = [texts.answers(100, f"{SEED} {turn}") for turn in range(2)]
    yield Probe(
        "check an answer",
        "python",
        100,
        lambda turn: verifier.verify_batch(
            [one.ground_truth for one in answers[turn]], [one.response for one in answers[turn]]
        ),
        lambda found: [one.correct for one in found] == [one.correct for one in answers[0]],
    )
    index = DatasetIndex.load(batch.dataset, derive="off")
    yield from _serving(batch, Scorer({"default": index}, verifier=verifier, threads=1))


def _matching(name: str, pairs: Sequence[tuple[core.Matcher, bytes]]) -> Probe:
    matchers, responses = [one for one, _ in pairs], [text for _, text in pairs]
    # A pass over each whole text, which gives spans, must find the same nodes.
    flags = [[hit is not None for hit in one.spans(text)] for one, text in pairs]
    return Probe(
        f"match: {name} (a byte)",
        "core",
        sum(map(len, responses)),
        lambda _: core.match_batch(matchers, responses, threads=1),
        lambda found: [found.matched(at).tolist() for at in range(len(flags))] == flags,
    )


def _serving(batch: texts.Batch, scorer: Scorer) -> Iterator[Probe]:
    """Count a batch: scoring, and what client and server do with the messages."""
    rollouts = [rollout_from_row(row) for row in batch.rows]
    options = ScoreOptions(reward=RewardSpec.linear(0.5))
    columns, identity = scorer.score_columns(rollouts, options)
    request = codec.encode_score_request(rollouts, options)
    reply = codec.encode_score_response(columns, identity)
    yield Probe(
        "score a batch (a rollout)",
        "python",
        len(rollouts),
        lambda _: scorer.score_columns(rollouts, options)[0],
        lambda found: [list(one.matched) for one in found.scores()] == batch.expected,
    )
    yield Probe(
        "write and read the messages of a batch (a rollout)",
        "python",
        len(rollouts),
        lambda _: (
            codec.encode_score_request(rollouts, options),
            codec.decode_rollouts(pb.ScoreRequest.FromString(request)),
            codec.encode_score_response(columns, identity),
            codec.decode_score_response(reply)[0],
        ),
        lambda found: (
            [len(found[0]), len(found[1])] == [len(request), len(rollouts)]
            and [*found[2:]] == [reply, columns.scores()]
        ),
    )


def run_probes(folder: Path) -> None:
    """Run all probes between marks; this is what valgrind counts."""
    done: list[tuple[str, str, int]] = []
    os.getpgrp()
    for probe in probes(pickle.loads((folder / "workloads").read_bytes()), folder):
        if not probe.check(probe.run(0)):
            raise CountingError(f"{probe.name}: the result is wrong")
        gc.collect()
        gc.disable()
        os.getpgrp()
        probe.run(1)
        os.getpgrp()
        gc.enable()
        done.append((probe.name, probe.kind, probe.units))
    (folder / "done.json").write_text(json.dumps(done), encoding="utf-8")


def count() -> Counts:
    """Count every probe; takes about a minute.

    Raises:
        CountingError: the counted process failed, or callgrind wrote other counts.
    """
    with tempfile.TemporaryDirectory(prefix="guard-") as name:
        folder = Path(name)
        (folder / "workloads").write_bytes(pickle.dumps(list(workloads())))
        dumps = folder / "callgrind.out"
        command = ["valgrind", "-q", "--tool=callgrind", f"--dump-before={MARK}"]
        command += [f"--callgrind-out-file={dumps}", sys.executable, "-s", "-m", "benchmarks.guard"]
        own = ("CONSENSUSPR_", "PYTHONHASH")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
        fixed = {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1", "LC_ALL": "C.UTF-8"}
        done = subprocess.run(
            [*command, "--probes", str(folder)],
            cwd=REPOSITORY,
            env={**kept, **fixed, "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            last = (done.stderr.strip() or "no message").splitlines()[-1]
            raise CountingError(f"the counted process ended with code {done.returncode}: {last}")
        ran = json.loads((folder / "done.json").read_bytes())
        counts: Counts = {"build": build(), "core": {}, "python": {}}
        for at, (name, kind, units) in enumerate(ran):
            # The first dump ends at the mark before all probes; each probe adds two.
            dump = Path(f"{dumps}.{2 * at + 3}")
            text = dump.read_text(encoding="utf-8", errors="replace") if dump.exists() else ""
            total = re.search(r"^totals: (\d+)$", text, re.MULTILINE)
            if total is None:
                raise CountingError(f"callgrind wrote no total for {name}")
            counts[kind][name] = float(f"{int(total[1]) / units:.5g}")
        return counts


def build() -> dict[str, str]:
    """Return what counts depend on beside the code."""
    modules = sorted((Path(core.__file__).parent / "native").glob("*.so"))
    compiler = rb"GCC: \([^)\0]*\) [0-9.]+|clang version [0-9.]+"
    signed = {found for one in modules for found in re.findall(compiler, one.read_bytes())}
    return {
        "processor": platform.machine(),
        "core": ", ".join(sorted(text.decode() for text in signed)),
        "python": sys.version,
        "protobuf": version("protobuf"),
    }


def compare(
    baseline: Mapping[str, Any], found: Mapping[str, Any]
) -> tuple[list[list[str]], list[str]]:
    """Return one row of cells for each probe, and one sentence for each that fails.

    Another compiler or interpreter gets more room.
    """
    then, now = baseline["build"], found["build"]
    alike = {"core": then["core"] == now["core"], "python": then == now}
    rows, failures = [], []
    for kind, room in ROOM.items():
        allowed = room if alike[kind] else ROOM_OF_ANOTHER_BUILD
        for name in {**found[kind], **baseline[kind]}:
            value, before = found[kind].get(name), baseline[kind].get(name)
            if value is None or before is None:
                failures.append(f"{name} is not in both the run and the baseline; run `{UPDATE}`.")
                continue
            change = value / before - 1
            was, takes = f"{before:,.7g}", f"{value:,.7g}"
            rows.append([name, was, takes, f"{change:+.1%}", f"{allowed:.0%}"])
            sentence = f"{name} takes {takes} instructions, baseline {was}"
            if change > allowed:
                failures.append(
                    f"{sentence}: more than {allowed:.0%} more; accept it with `{UPDATE}`."
                )
            # A gain that the baseline does not have would hide a later loss.
            elif before > value * (1 + allowed) and alike[kind]:
                failures.append(f"{sentence}; keep the gain with `{UPDATE}`.")
    return rows, failures


def missing(processor: str) -> str | None:
    """Return why nothing can be counted, or compared with counts of ``processor``; else None."""
    if shutil.which("valgrind") is None:
        return "valgrind is not installed"
    if core.BACKEND != "native":
        return "the compiled core is not built"
    return None if processor == platform.machine() else f"the baseline was counted on {processor}"


def main(words: Sequence[str] | None = None) -> int:
    """Count, compare and print what fails."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.guard",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--update", action="store_true", help="count, and write the baseline")
    parser.add_argument("--require", action="store_true", help="fail if nothing can be counted")
    parser.add_argument("--probes", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(words)
    if given.probes:
        run_probes(given.probes)
        return 0
    baseline = {} if given.update else json.loads(BASELINE.read_bytes())
    if (why := missing(baseline.get("build", build())["processor"])) is not None:
        print(f"Instructions are not counted: {why}.")
        return int(given.require or given.update)
    try:
        found = count()
    except CountingError as error:
        print(f"Nothing was counted: {error}.")
        return 1
    if given.update:
        BASELINE.write_text(
            json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        print(f"The baseline has {len(found['core']) + len(found['python'])} counts.")
        return 0
    rows, failures = compare(baseline, found)
    print(table(["probe", "baseline", "now", "change", "room"], rows, 1))
    print(*(failures or ["Nothing costs more than its baseline allows."]), sep="\n")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
