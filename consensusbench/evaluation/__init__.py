"""Models measured on a dataset: scored rollouts, the paper's metrics and their intervals.

``scored`` turns files of rollouts into :class:`~consensusbench.evaluation.scored.ScoredSet`;
everything else computes on that, without a response in memory.  The definitions, with every
deviation from the paper, are in ``docs/guides/evaluate.md``.
"""
