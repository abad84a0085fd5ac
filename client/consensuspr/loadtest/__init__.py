"""Loading a reward server and measuring what it does: the work behind ``consensuspr loadtest``.

Load processes (:mod:`~consensuspr.loadtest.processes`) send what a pool of rollouts holds, by a
schedule (open loop) or one request after the other (closed loop), and count what comes back in
bounded memory.  A sample of the scores is compared with the in-process scorer.  For the
highest rate that a server sustains, runs follow each other
(:mod:`~consensuspr.loadtest.saturation`).
"""
