"""How well matching finds the steps that right solutions take, and nothing else.

Gold equations of GSM8K become a dataset, rollouts of several models are scored against it
by a real server, and the figures of ``docs/quality.md`` are made from the scores::

    python -m benchmarks.quality --shared ../shared --write docs/quality.md

Reads outside data and copies nothing of it into the repository but figures and, in the
analysis of misses, equations of a line.
"""
