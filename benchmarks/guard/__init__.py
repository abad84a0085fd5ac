"""The guard of what a change may cost: ``python -m benchmarks.guard``.

Two kinds of checks.  Instruction counts under valgrind's callgrind are the same in every run on
however busy a machine; they are held against ``baseline.json``, which ``--update`` writes anew.
Ratios of times taken alternately in one run cover what counts do not see (caches, processes,
sockets); they have wide bounds, and up to three tries.

``docs/performance.md`` says what is counted and how far a baseline carries.
"""
