"""Flame graphs of what the benchmarks measure: where the time of a whole step goes.

:mod:`workload` does the work, py-spy looks at it with native frames, :mod:`stacks` cleans what
it saw, :mod:`flame` draws it.
"""
