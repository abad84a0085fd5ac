"""A dataset exported as a folder for the hub: ``data/*.parquet`` and a dataset card.

::

    README.md                            the card, see :mod:`consensusbench.export.card`
    data/train-00000-of-00001.parquet    training problems
    data/test-00000-of-00001.parquet     test problems

``datasets.load_dataset(folder)`` reads it, and so does everything that reads a dataset of this
project: rows come back with all their keys.  ``metadata`` is JSON text, since its keys differ
from problem to problem.  The card appears last, when the data are complete.

Not covered: several files a split, which the hub asks for above some gigabytes, and uploading.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from consensusbench.export.card import MARK, Card, CardText
from consensusbench.export.kinds import Kinds
from consensusbench.export.making import Making
from consensusbench.export.pipeline import Export, write_export
from consensusbench.export.report import ExportReport
from consensusbench.export.selection import Side
from consensusbench.export.trainer_rows import SPLIT_OF
from consensuspr.data import Node, Problem, Row, atomic_file, problem_to_row
from consensuspr.data.json_text import dump_json
from consensuspr.data.parquet import JSON_MARK
from consensuspr.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa


_FILES: Mapping[Side, str] = {
    side: f"data/{split}-00000-of-00001.parquet" for side, split in SPLIT_OF.items()
}


def export_hub(
    export: Export, text: CardText, progress: Callable[[int], None] = lambda done: None
) -> ExportReport:
    """Write the folder of an export; see :func:`~consensusbench.export.pipeline.write_export`.

    A problem without a split is a training problem unless a ``val_fraction`` is given.

    Raises:
        InputError: the folder holds a ``README.md`` that this function did not write.
    """
    card = Path(export.output) / "README.md"
    _refuse_foreign(card)
    if export.val_fraction is None:
        export = replace(export, val_fraction=0.0)
    # Nodes are there anyway, whatever a server would take with a request.
    export = replace(export, inline_nodes=False)
    layout = _HubLayout()
    report = write_export(export, layout, progress)
    content = Card(text, report, layout.making, layout.schema()).text()
    with atomic_file(card) as stream:
        stream.write(content.encode())
    return report


def _refuse_foreign(card: Path) -> None:
    """Raise InputError where a card is there that a person may have written."""
    try:
        known = MARK in card.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(f"{card}: cannot be read: {error.strerror}") from None
    if not known:
        raise InputError(f"{card} is there and was not written by an export; move it away")


class _HubLayout:
    files = _FILES
    needs_both = False

    def __init__(self) -> None:
        self.making = Making()
        self._extra = Kinds()
        self._node_extra = Kinds()
        self._has_answer_rule = False

    def row(self, problem: Problem, side: Side) -> Row:
        self._extra.note(problem.extra)
        for node in problem.nodes:
            self._node_extra.note(node.extra)
        self._has_answer_rule |= problem.answer_rule is not None
        plain = replace(problem, split=SPLIT_OF[side], nodes=(), extra={})
        row = problem_to_row(plain)
        row["nodes"] = [_node_row(node) for node in problem.nodes]
        # Apart until the types of all are known.
        return row | {"extra": problem.extra}

    def finished(self, row: Row, index: int) -> Row:
        self.making.note(row["metadata"])
        row["metadata"] = dump_json(row["metadata"]) if row["metadata"] else None
        row |= self._extra.settled(row.pop("extra"))
        for node in row["nodes"]:
            node |= self._node_extra.settled(node.pop("extra"))
        return row

    def schema(self) -> pa.Schema:
        import pyarrow as pa

        text, texts = pa.string(), pa.list_(pa.string())
        node = [
            *[pa.field(name, text) for name in ("node_id", "label", "type")],
            pa.field("expressions", texts),
            pa.field("derived", texts),
            pa.field("support", pa.int64()),
            pa.field("is_final", pa.bool_()),
            *self._node_extra.fields(),
        ]
        columns = [
            *[pa.field(name, text) for name in ("problem_id", "data_source", "problem")],
            pa.field("ground_truth", text),
            pa.field("nodes", pa.list_(pa.struct(node))),
            pa.field("split", text),
            pa.field("metadata", text, metadata=JSON_MARK),
        ]
        if self._has_answer_rule:
            columns.append(pa.field("answer_rule", text))
        return pa.schema([*columns, *self._extra.fields()])


def _node_row(node: Node) -> Row:
    return {
        "node_id": node.node_id,
        "label": node.label,
        "type": node.type,
        "expressions": list(node.expressions),
        "derived": None if node.derived is None else list(node.derived),
        "support": node.support,
        "is_final": node.is_final,
        "extra": node.extra,
    }
