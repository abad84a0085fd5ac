"""Check a verl training set-up before GPUs are taken: server, configuration, rows.

Settings and rows are read by the code that reads them in training. Nothing that needs a GPU, a
tokenizer or a Ray cluster is checked.
"""

from consensuspr.client.verl.files import Finding, Level
from consensuspr.doctor.checks import Case, examine

__all__ = ["Case", "Finding", "Level", "examine"]
