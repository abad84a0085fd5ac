"""Equal forms of node expressions, made when a dataset is built or loaded."""

from __future__ import annotations

from consensuspr.core.expansion.derive import derive_forms

__all__ = ["derive_forms"]
