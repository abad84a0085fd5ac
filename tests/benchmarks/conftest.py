"""The benchmarks are scripts of the repository, not part of what is installed."""

from __future__ import annotations

import sys
from pathlib import Path

REPOSITORY = str(Path(__file__).resolve().parents[2])
if REPOSITORY not in sys.path:
    sys.path.insert(0, REPOSITORY)
