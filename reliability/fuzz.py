"""Looks for input that makes a part fail, hang, or disagree with the pure engine.

Each target runs in its own process under atheris (libFuzzer), from the committed corpus and the
findings of earlier runs.  Input that breaks a target is kept in ``build/fuzz``.  The pure engine is
instrumented for coverage instead of the compiled core: both follow the same rules.

    python -m reliability.fuzz [TARGET ...] [--seconds 30]
"""

from __future__ import annotations

import argparse
import functools
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

from benchmarks.measure import REPOSITORY

if TYPE_CHECKING:
    from consensuspr.server.service import ScoringService

SAMPLE = REPOSITORY / "examples/sample/dataset.jsonl"
CORPUS = Path(__file__).parent / "corpus"
FOUND = REPOSITORY / "build/fuzz"
MAX_BYTES = 4096
# One input; the slowest honest one of so many bytes takes a hundredth of it.
MAX_INPUT_S = 10
MAX_MEMORY_MB = 3072

Target = Callable[[], Callable[[bytes], None]]
TARGETS: dict[str, Target] = {}


def target(make: Target) -> Target:
    """Register a function that makes a target in the process that runs it."""
    TARGETS[make.__name__.replace("_", "-")] = make
    return make


@target
def core() -> Callable[[bytes], None]:
    """Nodes and a text (divided by a line of `---`): both engines agree and count every hit."""
    from consensuspr.core import BACKEND, Hit, Matcher, match_batch, normalize
    from consensuspr.core.patterns import Channel
    from consensuspr.core.pure import matcher as pure_matcher
    from consensuspr.core.pure import normal_form
    from consensuspr.core.pure.statements import expression_keys

    if BACKEND != "native":
        raise SystemExit("error: the target core needs the compiled core")

    def reached(hits: Sequence[Hit | None]) -> tuple[int, int]:
        """Count distinct values of the equations among hits, and operands of pattern hits."""
        values, operands = set(), set()
        for hit in filter(None, hits):
            keys = expression_keys(hit.expression)
            # A hit on a chain of several values need not state each of them.
            if len(keys) == 1:
                values.add(keys[0].value)
                operands |= {*keys[0].operands} if hit.channel is Channel.PATTERN else set()
        return len(values), len(operands)

    def run(data: bytes) -> None:
        head, _, text = data.partition(b"\n---\n")
        nodes = [
            line.decode("utf-8", "replace").split("\t")[:4]
            for line in head.split(b"\n")[:6]
            if line
        ]
        assert normalize(text) == normal_form.normalize(text)
        expand = len(data) % 2 == 0
        ours, theirs = Matcher(nodes, expand), pure_matcher.Matcher(nodes, expand)
        hits = ours.hits(text)
        assert hits == theirs.hits(text)
        found, expected = match_batch([ours], [text]), pure_matcher.match_batch([theirs], [text])
        assert found.rows() == expected.rows()
        assert (found.num_values, found.num_numbers) == (expected.num_values, expected.num_numbers)
        values, operands = reached(hits)
        assert found.num_values is not None and found.num_numbers is not None
        assert values <= found.num_values, "matched but not counted"
        assert operands <= found.num_numbers, "matched but not counted"

    return run


@target
def request() -> Callable[[bytes], None]:
    """Bytes of a request: scored, or refused with a code that is no defect."""
    import grpc

    from consensuspr.errors import ConsensusPRError
    from consensuspr.server.service import Abort, RunningCall
    from consensuspr.v1 import scoring_pb2 as pb

    service = _service()
    methods = (
        (service.score, pb.ScoreResponse.FromString),
        (service.explain, pb.ExplainResponse.FromString),
    )

    def run(data: bytes) -> None:
        for method, decode in methods:
            try:
                answer = decode(method(data, RunningCall()))
            except Abort as abort:
                assert abort.code is not grpc.StatusCode.INTERNAL
                assert len(abort.message) < 2000
            except ConsensusPRError as error:
                assert len(str(error)) < 2000
            else:
                assert pb.STATUS_INTERNAL not in getattr(answer, "statuses", ())

    return run


@target
def http_body() -> Callable[[bytes], None]:
    """A body for each HTTP shape: answered, or rejected in a sentence."""
    from consensuspr.errors import ConsensusPRError
    from consensuspr.http.requests import Unscorable, answer
    from consensuspr.http.settings import read_settings
    from consensuspr.server.service import Abort, RunningCall

    service = _service()

    def run(data: bytes) -> None:
        for shape in ("openrlhf", "slime"):
            try:
                answer(shape, data, RunningCall(), read_settings([], shape), service)
            except (Abort, ConsensusPRError, Unscorable) as error:
                assert len(str(error)) < 2000

    return run


@target
def dataset() -> Callable[[bytes], None]:
    """A dataset's file: loaded, or refused by line and reason."""
    from consensuspr.errors import ConsensusPRError
    from consensuspr.scoring import DatasetIndex

    FOUND.mkdir(parents=True, exist_ok=True)
    file = FOUND / f"problems-{os.getpid()}.jsonl"

    def run(data: bytes) -> None:
        file.write_bytes(data)
        try:
            DatasetIndex.load(file, derive="stored")
        except ConsensusPRError as error:
            assert len(str(error)) < 4000
        finally:
            file.unlink()

    return run


@target
def answers() -> Callable[[bytes], None]:
    """A ground truth and a response (divided by a line of `---`): found and compared."""
    from consensuspr.scoring.answers import extract, normalize
    from consensuspr.scoring.answers.compare import compare, form_of
    from consensuspr.scoring.answers.dapo import verify_dapo

    rules = (
        extract.extract_auto, extract.extract_boxed, extract.extract_gsm8k,
        extract.extract_boxed_run,
    )  # fmt: skip

    def run(data: bytes) -> None:
        truth, _, response = data.decode("utf-8", "replace").partition("\n---\n")
        for rule in rules:
            found = rule(response)
            if found is not None:
                assert normalize.canonical(found.answer) is not None
                compare(form_of(truth), form_of(found.answer))
        verify_dapo(truth, response)

    return run


@functools.cache
def _service() -> ScoringService:
    """Return a service of the sample without a network, all answers decided without algebra."""
    from consensuspr.scoring import DatasetIndex
    from consensuspr.scoring.answers.pool import PairOutcome
    from consensuspr.server.config import ServerConfig
    from consensuspr.server.metrics import Metrics
    from consensuspr.server.service import ScoringService

    config = ServerConfig(datasets={"default": SAMPLE})
    service = ScoringService(config, {"default": DatasetIndex.load(SAMPLE)}, Metrics())
    # No processes: answers that need computer algebra stay undecided.
    mock.patch.object(
        service.verifier._pool,
        "compare",
        lambda asked, _: dict.fromkeys(asked, PairOutcome(None, "budget")),
    ).start()
    return service


def _fuzz(name: str, options: Sequence[str]) -> None:
    """Run one target in this process, which ends with it."""
    import atheris

    with atheris.instrument_imports(include=["consensuspr"]):
        import consensuspr.core.pure.matcher  # noqa: F401 - the rules, instrumented

        run = TARGETS[name]()
    atheris.Setup([sys.argv[0], *options], run)
    atheris.Fuzz()


def _run(name: str, seconds: float) -> bool:
    """Run one target in its own process and print the verdict; return whether it broke."""
    found = FOUND / name
    (found / "corpus").mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable, "-m", "reliability.fuzz", "--child", name,
        f"-max_total_time={seconds:g}", f"-max_len={MAX_BYTES}", f"-timeout={MAX_INPUT_S}",
        f"-rss_limit_mb={MAX_MEMORY_MB}", f"-artifact_prefix={found}/",
        str(found / "corpus"), str(CORPUS / name),
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", cwd=REPOSITORY, check=False
    )
    if done.returncode:
        print(f"{name} broke:\n{done.stderr[-3000:]}", file=sys.stderr)
        for file in re.findall(r"Test unit written to (\S+)", done.stderr):
            print(f"again: python -m reliability.fuzz --child {name} {file}", file=sys.stderr)
    inputs = re.search(r"Done (\d+)", done.stderr)
    print(
        f"{name}: {'broke' if done.returncode else 'held'}, {inputs[1] if inputs else '?'} inputs"
    )
    return bool(done.returncode)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the targets one after the other; return 1 if one broke."""
    given = sys.argv[1:] if arguments is None else [*arguments]
    if given[:1] == ["--child"]:
        _fuzz(given[1], given[2:])
    parser = argparse.ArgumentParser(
        prog="python -m reliability.fuzz", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--seconds", type=float, default=30, help="for each (default: 30)")
    chosen = parser.parse_args(given)
    if unknown := [name for name in chosen.targets if name not in TARGETS]:
        parser.error(f"there is no target {unknown[0]!r}; there are {', '.join(TARGETS)}")
    if find_spec("atheris") is None:
        parser.error("fuzzing needs atheris: pip install 'consensuspr[fuzz]'")
    broken = [_run(name, chosen.seconds) for name in chosen.targets or TARGETS]
    return int(any(broken))


if __name__ == "__main__":
    sys.exit(main())
