"""ConsensusBench: making and using datasets whose problems carry consensus nodes.

The offline half of the project.  It reads and writes the rows of :mod:`consensuspr.data`,
and nothing of the online half imports it.  One folder a topic: :mod:`consensusbench.export`
turns a dataset into what a trainer reads; :mod:`consensusbench.cli` is the command.
"""
