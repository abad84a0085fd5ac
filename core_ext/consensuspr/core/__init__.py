"""The normal form and the matcher: bytes and patterns, no problems and no rewards.

Also two counts: the phrases of a text, by which the guard measures length, and the fields of a
message.

Two engines with one behaviour: the compiled core, and the pure-Python engine where it could
not be built or where ``CONSENSUSPR_PURE_PYTHON=1`` asks for it.  ``BACKEND`` tells which one
is in use.
"""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING

from consensuspr.core.expressions import EXPANSION_VERSION, derive_forms
from consensuspr.core.patterns import BatchResult, Hit
from consensuspr.core.tables import NORMAL_FORM_VERSION

__all__ = [
    "BACKEND",
    "EXPANSION_VERSION",
    "NORMAL_FORM_VERSION",
    "BatchResult",
    "Hit",
    "Matcher",
    "count_fields",
    "count_phrases",
    "derive_forms",
    "expression_keys",
    "match_batch",
    "normalize",
    "read_expression_facts",
    "states_equation",
]

BACKEND: str

if TYPE_CHECKING:  # one engine stands for both: they have the same interface
    from consensuspr.core.native import (
        Matcher,
        count_fields,
        count_phrases,
        expression_keys,
        match_batch,
        normalize,
        read_expression_facts,
        states_equation,
    )
elif os.environ.get("CONSENSUSPR_PURE_PYTHON") == "1":
    from consensuspr.core.pure.fields import count_fields
    from consensuspr.core.pure.matcher import (
        Matcher,
        match_batch,
        read_expression_facts,
        states_equation,
    )
    from consensuspr.core.pure.normal_form import normalize
    from consensuspr.core.pure.phrases import count_phrases
    from consensuspr.core.pure.statements import expression_keys

    BACKEND = "python"
else:
    try:
        from consensuspr.core.native import (
            Matcher,
            count_fields,
            count_phrases,
            expression_keys,
            match_batch,
            normalize,
            read_expression_facts,
            states_equation,
        )

        BACKEND = "native"
    except ImportError:
        warnings.warn(
            "the compiled core of consensuspr is not built; scoring runs on the pure-Python engine "
            "with the same results, many times slower (install a C compiler and reinstall, "
            "or set CONSENSUSPR_PURE_PYTHON=1 to silence this)",
            RuntimeWarning,
            stacklevel=2,
        )
        from consensuspr.core.pure.fields import count_fields
        from consensuspr.core.pure.matcher import (
            Matcher,
            match_batch,
            read_expression_facts,
            states_equation,
        )
        from consensuspr.core.pure.normal_form import normalize
        from consensuspr.core.pure.phrases import count_phrases
        from consensuspr.core.pure.statements import expression_keys

        BACKEND = "python"
