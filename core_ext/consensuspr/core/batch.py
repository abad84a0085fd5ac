"""The result of a batch: which node of which rollout was matched."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


class BatchResult:
    """Matches of ``n`` texts against their matchers.

    Attributes:
        num_matched: (n,) int32, matched nodes of each text.
    """

    __slots__ = ("_flags", "_offsets", "num_matched")

    def __init__(self, flags: npt.NDArray[np.bool_], offsets: npt.NDArray[np.int64]) -> None:
        """Wrap (sum of k_i,) flags and the (n + 1,) offsets of each text's own."""
        self._flags = flags
        self._offsets = offsets
        totals = np.concatenate(([0], np.cumsum(flags, dtype=np.int64)))
        self.num_matched: npt.NDArray[np.int32] = (
            totals[offsets[1:]] - totals[offsets[:-1]]
        ).astype(np.int32)

    def __len__(self) -> int:
        return len(self.num_matched)

    def matched(self, index: int) -> npt.NDArray[np.bool_]:
        """Return the (k_i,) flags of text ``index``, one per node of its matcher."""
        if not 0 <= index < len(self):
            raise IndexError(f"text {index} of a batch of {len(self)}")
        return self._flags[self._offsets[index] : self._offsets[index + 1]]
