"""Equal forms of node expressions, made when a dataset is built or loaded."""

from __future__ import annotations

from typing import Final

from consensuspr.core.expressions.derive import derive_forms

__all__ = ["EXPANSION_VERSION", "derive_forms"]


# Raised whenever any expression can get other forms, or the same ones in another order; a
# dataset prepared with other forms is refused.
EXPANSION_VERSION: Final = "1"
