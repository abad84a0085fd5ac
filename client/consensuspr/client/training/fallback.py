"""The scorer in this process that stands in for a server that is away.

It is the server's own code on the same data, so that a sample's reward does not depend on
who scored it; data of another digest are refused.  It is loaded when it is first needed:
a run whose server stays up pays nothing for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from consensuspr.client.batcher import Batcher
from consensuspr.client.local import LocalClient
from consensuspr.client.retry import Deadline
from consensuspr.errors import DataError, InputError
from consensuspr.scoring.types import Rollout, Score
from consensuspr.wire.options import ScoreOptions

# Longer than any batch takes; what bounds an answer is its own budget.
_PATIENCE_S = 24 * 3600.0


class UnusableData(InputError):
    """The dataset of the stand-in cannot be read, or is not the server's."""


class LocalFallback:
    """Scores single samples in this process, many at a time as one batch.

    Args:
        path: of the dataset.
        name: of the dataset at the server; None where it has one.

    Attributes:
        expected_digest: of the server's dataset; None while no server was met.
        loaded_digest: of the data that samples were last scored with here; None: none was.

    Raises:
        InputError: there is no such file.
    """

    def __init__(self, path: Path, name: str | None) -> None:
        if not path.exists():
            raise InputError(f"dataset_path: there is no file {path}")
        self._path = path
        self._name = name
        self._client: LocalClient | None = None
        # One thread: batches form while one is in work, and matching has threads of its own.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="consensuspr-local")
        self._batcher = Batcher(self._score, max_in_flight=1)
        self.expected_digest: str | None = None
        self.loaded_digest: str | None = None

    async def score_one(self, rollout: Rollout, options: ScoreOptions) -> Score:
        """Score one rollout; calls that run at the same time share a batch.

        Raises:
            UnusableData: the dataset cannot be read, or is not the server's.
        """
        return await self._batcher.submit(rollout, options, Deadline.after(_PATIENCE_S))

    def close(self) -> None:
        """Fail whoever waits, and stop the answer processes.  May be called twice."""
        self._batcher.close()
        self._thread.shutdown(wait=True, cancel_futures=True)
        if self._client is not None:
            self._client.close()

    async def _score(
        self,
        rollouts: Sequence[Rollout],
        _encoded: Sequence[bytes],
        options: ScoreOptions,
        _deadline: Deadline,
    ) -> Sequence[Score]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._score_here, rollouts, options)

    def _score_here(self, rollouts: Sequence[Rollout], options: ScoreOptions) -> Sequence[Score]:
        client = self._loaded()
        return client.score(
            rollouts,
            options.reward,
            options.epoch,
            options.dataset,
            answer_rule=options.answer_rule,
            on_undecided=options.on_undecided,
        )

    def _loaded(self) -> LocalClient:
        """Return the scorer, on data that are the server's as far as anybody knows."""
        expected = self.expected_digest
        if self._client is not None and expected in (None, self.loaded_digest):
            return self._client
        if self._client is not None:  # the file may have been replaced since
            self._client.close()
            self._client = None
        try:
            client = LocalClient({self._name: self._path} if self._name else self._path)
        except (DataError, OSError) as error:
            raise UnusableData(f"dataset_path: {error}") from None
        digest = client.server_info().datasets[0].digest
        if expected not in (None, digest):
            client.close()
            raise UnusableData(
                f"dataset_path: {self._path} ({digest}) is not the server's dataset ({expected});"
                " a reward would depend on who scored it"
            )
        self._client, self.loaded_digest = client, digest
        return client
