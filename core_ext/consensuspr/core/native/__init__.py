"""The compiled engine; imported only through :mod:`consensuspr.core`."""

from consensuspr.core.native.matcher import Matcher, match_batch
from consensuspr.core.native.normal_form import normalize

__all__ = ["Matcher", "match_batch", "normalize"]
