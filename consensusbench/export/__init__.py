"""Datasets turned into the files that a trainer reads.

::

    from consensusbench.export import VerlExport, export_verl

    report = export_verl(VerlExport("problems.jsonl", "data/"))

Which problems go to training, which to validation and which to neither is decided in
:mod:`~consensusbench.export.selection`, whatever the format; :mod:`~consensusbench.export.verl`
is the one format so far.
"""

from consensusbench.export.prompt import with_prompt
from consensusbench.export.report import ExportReport
from consensusbench.export.selection import LeftOut, Side
from consensusbench.export.verl import VerlExport, export_verl

__all__ = [
    "ExportReport",
    "LeftOut",
    "Side",
    "VerlExport",
    "export_verl",
    "with_prompt",
]
