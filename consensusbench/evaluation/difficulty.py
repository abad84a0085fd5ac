"""How hard a problem is, in the paper's three groups.

The paper (section 5, RQ2) divides MATH-500 into easy, medium and hard "according to its
difficulty labels" and does not say how.  Its accuracies are exact multiples of 1/43, 1/323 and
1/134, which are the sizes of level 1, levels 2 to 4 and level 5: that fixes the groups.
"""

from __future__ import annotations

import re
from typing import Final

from consensuspr.data import Row

DIFFICULTIES: Final = ("easy", "medium", "hard")

_GROUP_OF_LEVEL: Final = {1: "easy", 2: "medium", 3: "medium", 4: "medium", 5: "hard"}
_LEVEL: Final = re.compile(r"(?:level\s*)?([1-5])(?:\.0)?", re.IGNORECASE)


def difficulty_of(metadata: Row) -> str | None:
    """Return ``easy``, ``medium`` or ``hard``, None where the metadata do not say it.

    Args:
        metadata: of a problem; ``difficulty`` counts where it is one of the three, else
            ``level`` of the MATH dataset (``5`` and ``"Level 5"`` alike).
    """
    difficulty = metadata.get("difficulty")
    if isinstance(difficulty, str) and difficulty.strip().lower() in DIFFICULTIES:
        return difficulty.strip().lower()
    level = metadata.get("level")
    if isinstance(level, bool) or not isinstance(level, int | float | str):
        return None
    found = _LEVEL.fullmatch(str(level).strip())
    return _GROUP_OF_LEVEL[int(found[1])] if found else None
