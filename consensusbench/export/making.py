"""How the problems of a dataset were made, summed up from what their rows say.

``consensusbench build`` writes into each row's ``metadata.construction`` what its nodes were
made from and with: versions, models, thresholds, prompts' digests.  Rows of several builds may
be in one dataset.  A dataset made in another way has no such record, and the card says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from consensuspr.data import Row
from consensuspr.data.json_text import dump_json

# Of builds, of ways to sample and of models; further ones are counted only.
MAX_DISTINCT = 64


class Making:
    """Counts builds and models over the problems of a dataset.

    Attributes:
        problems: problems looked at.
        recorded: those that say how they were made.
        models: rollouts by the model that wrote them.
        builds: settings of each distinct build as flat text, with its problems.
        sampling: settings of each distinct way to sample, with its rollouts.
    """

    def __init__(self) -> None:
        self.problems = 0
        self.recorded = 0
        self.models: Counter[str] = Counter()
        self.builds: Counter[tuple[tuple[str, str], ...]] = Counter()
        self.sampling: Counter[tuple[tuple[str, str], ...]] = Counter()

    def note(self, metadata: Row) -> None:
        """Take note of one problem."""
        self.problems += 1
        made = metadata.get("construction")
        if not isinstance(made, dict):
            return
        self.recorded += 1
        provenance = made.get("provenance", made)
        _count(self.builds, tuple(_flat("", provenance)))
        rollouts = made.get("rollouts")
        for rollout in rollouts if isinstance(rollouts, list) else ():
            if isinstance(rollout, dict):
                _count(self.models, str(rollout.get("model") or "unknown"))
                if rollout.get("sampling"):
                    _count(self.sampling, tuple(_flat("", rollout["sampling"])))


def _count(counter: Counter[Any], what: Any) -> None:
    """Count without growing beyond bounds."""
    if what in counter or len(counter) < MAX_DISTINCT:
        counter[what] += 1


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the leaves of an object as ``a.b`` and text."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _flat(f"{name}.{key}" if name else str(key), item)
    else:
        yield name or "value", value if isinstance(value, str) else dump_json(value)
