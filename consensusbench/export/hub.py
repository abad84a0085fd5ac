"""A dataset exported as a folder for the hub: ``data/*.parquet`` and a dataset card.

``datasets.load_dataset(folder)`` reads it, and so does everything that reads a dataset of this
project: rows come back with all their keys, also from a Parquet file that ``datasets`` made of a
part of them.  ``metadata`` is JSON text, and so are keys of your own whose values are not all
strings, all whole numbers, all floats or all truth values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final

from consensusbench import require
from consensusbench.export.files import (
    Export,
    ExportReport,
    ExportSplit,
    Layout,
    write_export,
)
from consensusbench.export.trainers import SPLIT_OF
from consensuspr.data import Problem, Row, atomic_file, problem_to_row
from consensuspr.data.readers import JSON_MARK
from consensuspr.data.writers import dump_json
from consensuspr.errors import InputError
from consensuspr.version import VERSION

if TYPE_CHECKING:
    import pyarrow as pa

MARK: Final = "<!-- written by consensusbench export -->"

_FILES: Final[Mapping[ExportSplit, str]] = {
    split: f"data/{name}-00000-of-00001.parquet" for split, name in SPLIT_OF.items()
}
# Types of values that need no JSON text, and Arrow's names of them.
_PLAIN: Final[Mapping[type, str]] = {str: "string", bool: "bool", int: "int64", float: "double"}
# Columns whose types are fixed.
_KNOWN: Final = {
    "problem": "problem_id data_source problem ground_truth nodes split answer_rule budget".split(),
    "node": (
        "node_id label type expressions derived support is_final weight position rare".split()
    ),
    "budget": ["statements", "numbers", "equations", "length"],
}


@dataclass(frozen=True, slots=True)
class CardText:
    """Facts for the card that the data do not hold; ``citation``: BibTeX of the sources."""

    title: str = "ConsensusBench"
    license: str | None = None
    languages: tuple[str, ...] = ("en",)
    citation: str = ""


def export_hub(
    export: Export, text: CardText, progress: Callable[[int], None] = lambda done: None
) -> ExportReport:
    """Write the folder of an export; see :func:`~consensusbench.export.files.write_export`.

    A problem without a split is a training problem unless a ``val_fraction`` is given.

    Raises:
        InputError: the folder holds a ``README.md`` that this function did not write, or the
            citation is not BibTeX.
    """
    if text.citation and not text.citation.startswith("@"):
        first = text.citation.partition("\n")[0][:60]
        raise InputError(f"BibTeX begins with an entry such as @article{{…}}, got {first!r}")
    hub = require("huggingface_hub", "a dataset card")
    path = Path(export.output) / "README.md"
    if path.exists() and MARK not in path.read_text(encoding="utf-8", errors="replace"):
        raise InputError(f"{path} exists and was not written by an export; move it away")
    if export.val_fraction is None:
        export = replace(export, val_fraction=0.0)
    layout = _HubLayout()
    report = write_export(export, layout, progress)
    header = hub.DatasetCardData(
        license=text.license,
        pretty_name=text.title,
        language=list(text.languages),
        task_categories=["question-answering", "text-generation"],
        tags=["math", "reasoning", "process-reward", "consensus-nodes"],
        configs=[
            {
                "config_name": "default",
                "data_files": [
                    {"split": SPLIT_OF[split], "path": f"data/{SPLIT_OF[split]}-*"}
                    for split in report.files
                ],
            }
        ],
    )
    card = hub.DatasetCard(f"---\n{header}\n---\n{MARK}\n\n{_body(text, report, layout)}")
    with atomic_file(path) as stream:
        stream.write(str(card).encode())
    return report


class _HubLayout(Layout):
    """Columns of a dataset; keys of your own are JSON text."""

    files = _FILES
    needs_both = False

    def __init__(self) -> None:
        self.recorded = 0
        # Keys beside the known ones in order of appearance, and the types of their values.
        self._own: dict[str, dict[str, set[type]]] = {"problem": {}, "node": {}, "budget": {}}

    def note(self, problem: Problem) -> None:
        row = problem_to_row(problem)
        levels = (
            ("problem", row),
            ("budget", row.get("budget") or {}),
        )
        for level, found in (*levels, *(("node", node) for node in row["nodes"])):
            for key, value in found.items():
                if key not in _KNOWN[level]:
                    types = self._own[level].setdefault(key, set())
                    if value is not None:
                        fits = type(value) is not int or -(1 << 63) <= value < 1 << 63
                        types.add(type(value) if fits else object)

    def row(self, problem: Problem, split: ExportSplit, index: int) -> Row:
        self.recorded += "construction" in problem.metadata
        row = problem_to_row(replace(problem, split=SPLIT_OF[split]))
        nodes = [self._plain("node", node) for node in row["nodes"]]
        budget = row.get("budget")
        return self._plain("problem", row) | {
            "nodes": nodes,
            "budget": None if budget is None else self._plain("budget", budget),
        }

    def _plain(self, level: str, row: Row) -> Row:
        """Return a row whose values of no plain type are JSON text."""
        return {
            key: dump_json(value) if value is not None and self._is_json(level, key) else value
            for key, value in row.items()
        }

    def _is_json(self, level: str, key: str) -> bool:
        types = self._own[level].get(key)
        return types is not None and not (len(types) == 1 and types <= _PLAIN.keys())

    def schema(self) -> pa.Schema:
        import pyarrow as pa

        def fields(level: str, **types: pa.DataType) -> list[pa.Field]:
            known = [(name, types.get(name, pa.string())) for name in _KNOWN[level]]
            own = [
                pa.field(name, pa.string(), metadata=JSON_MARK)
                if self._is_json(level, name)
                else pa.field(name, pa.type_for_alias(_PLAIN[next(iter(types))]))
                for name, types in self._own[level].items()
            ]
            return [*(pa.field(*each) for each in known), *own]

        texts, whole = pa.list_(pa.string()), pa.int64()
        node = fields(
            "node",
            expressions=texts,
            derived=texts,
            support=whole,
            is_final=pa.bool_(),
            weight=pa.float64(),
            position=pa.float64(),
            rare=texts,
        )
        budget = fields("budget", **dict.fromkeys(_KNOWN["budget"], whole))
        nested = {"nodes": pa.list_(pa.struct(node)), "budget": pa.struct(budget)}
        return pa.schema(fields("problem", **nested))


def _body(text: CardText, report: ExportReport, layout: _HubLayout) -> str:
    """Return the card for readers, of files that are complete."""
    from consensuspr.core import NORMAL_FORM_VERSION
    from consensuspr.scoring.dataset_index import DatasetIndex

    composition = ["| Source | Split | #Problems | Avg. N(k) |", "|---|---|--:|--:|"]
    totals, identity = [], ["| split | digest |", "|---|---|"]
    for split, path in report.files.items():
        name, nodes = SPLIT_OF[split], report.nodes[split]
        composition += [
            f"| {_cell(source)} | {name} | {count:,} | {nodes[source] / count:.2f} |"
            for source, count in report.written[split].items()
        ]
        rows = report.rows(split)
        totals.append(f"| **Total** | {name} | {rows:,} | {nodes.total() / rows:.2f} |")
        index = DatasetIndex.load(path)
        identity.append(f"| {name} | `{index.digest}` |")
    card = files("consensusbench.export").joinpath("card.md").read_text(encoding="utf-8")
    return card.format(
        title=text.title,
        composition="\n".join(composition + totals),
        path=f"data/{[*report.files.values()][-1].name}",
        recorded=f"{layout.recorded:,} of {sum(map(report.rows, report.files)):,}",
        citation=text.citation and f"\n{text.citation}\n",
        identity="\n".join(identity),
        version=VERSION,
        normal_form=NORMAL_FORM_VERSION,
    )


def _cell(text: str) -> str:
    flat = " ".join(text.split()).replace("|", "\\|")
    return flat if len(flat) <= 200 else flat[:199] + "…"
