"""The one warning where the compiled core is missing.

A missing C compiler must not stop an install, and pip shows nothing of a build that succeeded;
so whoever is about to score slowly is told when the work starts, once for all processes of it.
"""

from __future__ import annotations

import os
import warnings

from consensuspr.cli.console import make_console


def load_core() -> str:
    """Import the core, say on standard error if it is the slow one, and return its backend.

    The core warns in every process that imports it.  Worker processes inherit the answer to
    that warning, so that it appears here and nowhere else.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        from consensuspr.core import BACKEND
    if caught:
        console = make_console(stderr=True)
        for warning in caught:
            console.print(
                f"warning: {warning.message}", style="yellow", markup=False, soft_wrap=True
            )
        os.environ["CONSENSUSPR_PURE_PYTHON"] = "1"
    return BACKEND
