"""Checks of a training set-up before GPUs burn: server, reward settings, verl run, data.

A :class:`TrainingSetup` says what is to be trained; :func:`examine` yields one :class:`Finding`
after the other.  The settings, the rows and the epoch are read by the very code that reads them in
training, and verl's configuration, its reward manager and the keys that it ignores by verl's
own code, in a process of its own (``probe.py``).

Not covered: anything that takes a GPU, a tokenizer or a Ray cluster, such as prompts longer
than ``data.max_prompt_length`` or memory; and trainers other than verl, for which server and
rows are checked all the same.
"""

from consensuspr.doctor.checks import examine
from consensuspr.doctor.findings import Finding, Level, TrainingSetup

__all__ = ["Finding", "Level", "TrainingSetup", "examine"]
