"""When a problem's time is up: known to the worker and to the side that sees how it ended."""

from __future__ import annotations

import signal

# Seconds of processor time for one problem; ordinary ones take hundredths of one.
DEFAULT_TIME_LIMIT_S = 60.0

# What a problem may take on the clock, in its limits of processor time: on a busy machine it
# waits, and one that sleeps uses no processor at all.
CLOCK_FACTOR = 20.0

# The signals that end a process whose time is up; nothing catches them.
TIME_IS_UP = (signal.SIGPROF, signal.SIGALRM)
