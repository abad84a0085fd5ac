"""Datasets turned into the files that a trainer reads, or into a folder for the hub.

::

    from consensusbench.export import Export, export_verl

    report = export_verl(Export("problems.jsonl", "data/"))

Which problems go to training, which to validation and which to neither is decided in
:mod:`~consensusbench.export.selection`, and files are written in
:mod:`~consensusbench.export.pipeline`, whatever the format.  A format is a module of its own:
:mod:`~consensusbench.export.verl`, :mod:`~consensusbench.export.trl`,
:mod:`~consensusbench.export.hub`.
"""

from consensusbench.export.card import CardText
from consensusbench.export.hub import export_hub
from consensusbench.export.pipeline import Export
from consensusbench.export.prompt import with_prompt, without_prompt
from consensusbench.export.report import ExportReport
from consensusbench.export.selection import LeftOut, Side
from consensusbench.export.trl import export_trl
from consensusbench.export.verl import export_verl

__all__ = [
    "CardText",
    "Export",
    "ExportReport",
    "LeftOut",
    "Side",
    "export_hub",
    "export_trl",
    "export_verl",
    "with_prompt",
    "without_prompt",
]
