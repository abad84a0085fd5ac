"""A load test from its settings to its result."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from consensuspr.loadtest.checking import check_samples
from consensuspr.loadtest.load import Load
from consensuspr.loadtest.machine import describe_machine
from consensuspr.loadtest.pool import Pool
from consensuspr.loadtest.result import LoadTest
from consensuspr.loadtest.saturation import Limits, Search, Step, find_saturation
from consensuspr.loadtest.settings import Settings
from consensuspr.loadtest.team import Progress, RunResult, Team
from consensuspr.wire.info import ServerInfo

# Where a search begins, in bytes a second of responses, and at most so many requests: low for
# any server, and a handful of doublings from what one core does.
START_BYTES_PER_S = 1e6
MAX_START_RATE = 100.0


def perform(
    settings: Settings,
    pool: Pool,
    server: ServerInfo,
    dataset: str,
    limits: Limits,
    *,
    search: bool,
    show: Callable[[Progress], None] = lambda progress: None,
    say: Callable[[Step], None] = lambda step: None,
) -> LoadTest:
    """Load a server and return what was found; Ctrl-C ends it early, with a result.

    Args:
        settings: how to load it.
        pool: what to send.
        server: what it said about itself.
        dataset: path of the dataset with the content that the server has.
        limits: on errors; in a search also on latency.
        search: look for the highest sustained rate, from the settings' rate on where they name
            one, instead of one load.
        show: told some times a second how a run goes.
        say: told of each step of a search.

    Raises:
        InputError: the settings do not fit the server.
        ConsensusPRError: the load could not be made.
    """
    settings.check_against(server, pool.largest_batch_bytes(settings.batch))
    began_at = datetime.now(UTC).isoformat(timespec="seconds")
    with Team(settings, pool, search=search) as team:

        def watched(progress: Progress) -> bool:
            show(progress)
            return False

        found: Search | None = None
        result: RunResult | Search
        if search:

            def step(load: Load, watch: Callable[[Progress], bool]) -> RunResult:
                def both(progress: Progress) -> bool:
                    show(progress)
                    return watch(progress)

                return team.run(load, both)

            start = settings.rate or max(_start_rate(settings, pool), limits.lowest_rate)
            result = found = find_saturation(step, start, settings.warmup_s, limits, say)
        else:
            result = team.run(settings.load(), watched)
    checked = None
    if settings.check:
        checked = check_samples(result.samples, pool.rollouts, dataset, server, settings.options)
    return LoadTest(
        settings=settings,
        pool=pool,
        server=server,
        digest=_digest(server, settings.options.dataset),
        machine=describe_machine(),
        began_at=began_at,
        tally=result.tally,
        elapsed_s=result.elapsed_s,
        cpu_shares=result.cpu_shares,
        interrupted=result.interrupted,
        checked=checked,
        max_error_rate=limits.max_error_rate,
        max_undecided=limits.max_undecided,
        search=found,
    )


def _start_rate(settings: Settings, pool: Pool) -> float:
    request_bytes = pool.mean_bytes * settings.rollouts_per_request
    return min(MAX_START_RATE, max(1.0, START_BYTES_PER_S / request_bytes))


def _digest(server: ServerInfo, name: str | None) -> str:
    return next(held.digest for held in server.datasets if name in (None, held.name))
