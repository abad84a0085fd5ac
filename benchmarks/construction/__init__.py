"""How good are datasets that ``consensusbench build`` makes?

Each rollout is scored against nodes that were made without its model, or without itself
where a set has one model: ``python -m benchmarks.construction``.
"""
