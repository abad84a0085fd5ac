"""Datasets turned into the files that a trainer reads, or into a folder for the hub.

::

    from consensusbench.export import Export, export_verl

    report = export_verl(Export("dataset.jsonl", "data/"))

Which problems go to training, which to validation and which to neither is decided in
:mod:`~consensusbench.export.files`, whatever the format.
"""

from consensusbench.export.files import Export, ExportReport, ExportSplit, LeftOut
from consensusbench.export.hub import CardText, export_hub
from consensusbench.export.trainers import export_trl, export_verl
from consensusbench.problems.texts import with_prompt, without_prompt

__all__ = [
    "CardText",
    "Export",
    "ExportReport",
    "ExportSplit",
    "LeftOut",
    "export_hub",
    "export_trl",
    "export_verl",
    "with_prompt",
    "without_prompt",
]
