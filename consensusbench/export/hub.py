"""A dataset exported as a folder for the hub: ``data/*.parquet`` and a dataset card.

::

    README.md                            the card: YAML for the machine, Markdown for a person
    data/train-00000-of-00001.parquet    training problems
    data/test-00000-of-00001.parquet     test problems

``datasets.load_dataset(folder)`` reads it, and so does everything that reads a dataset of this
project: rows come back with all their keys.  ``metadata`` is JSON text, since its keys differ
from problem to problem.  The card appears last, when the data are complete.  Its composition table
has the columns of the paper's Table 1; its digests are those that a server names with each score,
so that a reader can tell whether a score was made with this data.

Not covered: several files a split, which the hub asks for above some gigabytes, and uploading.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consensusbench.export.files import Export, ExportReport, ExportSplit, write_export
from consensusbench.export.trainers import SPLIT_OF
from consensuspr.data import Node, Problem, Row, atomic_file, problem_to_row
from consensuspr.data.readers import JSON_MARK
from consensuspr.data.writers import dump_json
from consensuspr.errors import InputError
from consensuspr.version import VERSION

if TYPE_CHECKING:
    import pyarrow as pa

MARK = "<!-- written by consensusbench export -->"
# Of builds, of ways to sample and of models; further ones are counted only.
MAX_DISTINCT = 64

_FILES: Mapping[ExportSplit, str] = {
    split: f"data/{name}-00000-of-00001.parquet" for split, name in SPLIT_OF.items()
}
_BUDGET_COUNTS = ("statements", "numbers")
_EXACT_IN_A_DOUBLE = range(-(1 << 53), (1 << 53) + 1)
_INT64 = range(-(1 << 63), 1 << 63)
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
_BUILDS_SHOWN = 3
_SAMPLING_SHOWN = 8

_ABOUT = """\
Math problems with *consensus nodes*: intermediate conclusions that correct solutions by several
models share, in the order in which they are reached. The share of a problem's nodes that a
response states is its Node Coverage Rate (NCR), a measure of the reasoning beside the final
answer, found by matching text and without a judge.
"""

_COLUMNS = """\
| column | is |
|---|---|
| `problem_id` | key, unique over all splits |
| `data_source` | the set that the problem comes from |
| `problem`, `ground_truth` | its text and its answer |
| `nodes` | consensus nodes in order |
| `nodes[].expressions` | ways to write the node; it is matched by any of them |
| `nodes[].derived` | equal forms, made by computation; null where none were made |
| `nodes[].label`, `type` | what a person reads; equation, value, proposition or expression |
| `nodes[].support` | rollouts that reached the node, null where unknown |
| `nodes[].is_final` | the node states the final answer |
| `nodes[].weight` | what it adds to a weighted NCR, where a node has one |
| `budget` | what a response may state before the guard lowers its NCR, where a problem has one |
| `split` | `train` or `test` |
| `metadata` | JSON text: level, subject, how the nodes were made |
"""

_LIMITS = """\
- A node that a response does not match may still have been reached in other words: NCR is a
  lower bound, comparable between models on the same data and the same version of the normal form.
- Nodes are what the sampled solutions have in common. A right solution by another way may reach
  few of them.
- Problems whose nodes did not come about (too few right solutions, nothing in common) are not in
  here, so that hard problems are fewer than in the sets that they come from.
- Repetitions were found by text, apart from typesetting; a problem in other words stays.
- Problems keep the licences of the sets that they come from.
"""
# Where the hub's name of a type is not Arrow's.
_NAMES = {"double": "float64"}


@dataclass(frozen=True, slots=True)
class CardText:
    """What a card says that the data do not.

    Attributes:
        title: name of the dataset.
        license: identifier of its licence, for example ``cc-by-4.0``; None: the card names none.
        languages: two-letter codes of the problems' languages.
    """

    title: str = "ConsensusBench"
    license: str | None = None
    languages: tuple[str, ...] = ("en",)


def export_hub(
    export: Export, text: CardText, progress: Callable[[int], None] = lambda done: None
) -> ExportReport:
    """Write the folder of an export; see :func:`~consensusbench.export.files.write_export`.

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
    content = DatasetCard(text, report, layout.making, layout.schema()).text()
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
        self.making = ConstructionSummary()
        self._extra = ColumnTypes()
        self._node_extra = ColumnTypes()
        self._budget_extra = ColumnTypes()
        self._has_answer_rule = self._has_budget = self._has_weight = False

    def row(self, problem: Problem, split: ExportSplit) -> Row:
        self._extra.note(problem.extra)
        for node in problem.nodes:
            self._node_extra.note(node.extra)
            self._has_weight |= node.weight is not None
        self._has_answer_rule |= problem.answer_rule is not None
        plain = replace(problem, split=SPLIT_OF[split], nodes=(), extra={})
        row = problem_to_row(plain)
        row["nodes"] = [_node_row(node) for node in problem.nodes]
        if budget := row.get("budget"):
            self._has_budget = True
            self._budget_extra.note(
                {key: value for key, value in budget.items() if key not in _BUDGET_COUNTS}
            )
        # Apart until the types of all are known.
        return row | {"extra": problem.extra}

    def finished(self, row: Row, index: int) -> Row:
        self.making.note(row["metadata"])
        row["metadata"] = dump_json(row["metadata"]) if row["metadata"] else None
        row |= self._extra.settled(row.pop("extra"))
        if budget := row.get("budget"):
            counts = {key: budget.pop(key) for key in _BUDGET_COUNTS}
            row["budget"] = counts | self._budget_extra.settled(budget)
        for node in row["nodes"]:
            node |= self._node_extra.settled(node.pop("extra"))
            if not self._has_weight:
                del node["weight"]
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
            *([pa.field("weight", pa.float64())] if self._has_weight else []),
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
        if self._has_budget:
            counts = [pa.field(name, pa.int64()) for name in _BUDGET_COUNTS]
            columns.append(pa.field("budget", pa.struct([*counts, *self._budget_extra.fields()])))
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
        "weight": node.weight,
        "extra": node.extra,
    }


class ColumnTypes:
    """Columns of keys that nobody declared: takes note of all values, then gives each key a type.

    Text, truth values, whole numbers and numbers have a type of their own; whatever mixes
    them, and objects and lists, becomes JSON text.
    """

    def __init__(self) -> None:
        self._kinds: dict[str, set[str]] = {}

    def note(self, values: dict[str, Any]) -> None:
        """Take note of some keys and their values."""
        for key, value in values.items():
            kinds = self._kinds.setdefault(key, set())
            if value is not None:
                kinds.add(_kind(value))

    def fields(self) -> list[pa.Field]:
        """Return a field for each key, in order of first appearance."""
        import pyarrow as pa

        return [
            pa.field(key, pa.type_for_alias(kind))
            if (kind := self._settled(key)) != "json"
            else pa.field(key, pa.string(), metadata=JSON_MARK)
            for key in self._kinds
        ]

    def settled(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return the values as their types have them."""
        return {
            key: dump_json(value) if value is not None and self._settled(key) == "json" else value
            for key, value in values.items()
        }

    def _settled(self, key: str) -> str:
        kinds = self._kinds[key]
        if not kinds:
            return "string"
        if kinds <= {"int64", "long"}:
            return "int64"
        if len(kinds) == 1:
            return next(iter(kinds))
        return "double" if kinds == {"int64", "double"} else "json"


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        if value in _EXACT_IN_A_DOUBLE:
            return "int64"
        return "long" if value in _INT64 else "json"
    if isinstance(value, float):
        return "double"
    return "string" if isinstance(value, str) else "json"


class ConstructionSummary:
    """How the problems of a dataset were made, summed up from what their rows say.

    ``consensusbench build`` writes into each row's ``metadata.construction`` what its nodes were
    made from and with: versions, models, thresholds, prompts' digests.  Rows of several builds may
    be in one dataset.  A dataset made in another way has no such record, and the card says so.

    Attributes:
        problems: problems looked at.
        recorded: those that say how they were made.
        models: rollouts by the model that wrote them.
        builds: settings of each distinct build as flat text, with its problems.
        sampling: settings of each distinct way to sample, with its rollouts.
    """

    def __init__(self) -> None:
        self.problems = 0
        self.recorded = 0
        self.models: Counter[str] = Counter()
        self.builds: Counter[tuple[tuple[str, str], ...]] = Counter()
        self.sampling: Counter[tuple[tuple[str, str], ...]] = Counter()

    def note(self, metadata: Row) -> None:
        """Take note of one problem."""
        self.problems += 1
        made = metadata.get("construction")
        if not isinstance(made, dict):
            return
        self.recorded += 1
        provenance = made.get("provenance", made)
        _count(self.builds, tuple(_flat("", provenance)))
        rollouts = made.get("rollouts")
        for rollout in rollouts if isinstance(rollouts, list) else ():
            if isinstance(rollout, dict):
                _count(self.models, str(rollout.get("model") or "unknown"))
                if rollout.get("sampling"):
                    _count(self.sampling, tuple(_flat("", rollout["sampling"])))


def _count(counter: Counter[Any], what: Any) -> None:
    """Count without growing beyond bounds."""
    if what in counter or len(counter) < MAX_DISTINCT:
        counter[what] += 1


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the leaves of an object as ``a.b`` and text."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _flat(f"{name}.{key}" if name else str(key), item)
    else:
        yield name or "value", value if isinstance(value, str) else dump_json(value)


class DatasetCard:
    """The card of files that are complete.

    Values of its header are written as JSON, which YAML contains, so that no text can break it.
    """

    def __init__(
        self, said: CardText, report: ExportReport, making: ConstructionSummary, schema: pa.Schema
    ) -> None:
        self._said = said
        self._report = report
        self._making = making
        self._schema = schema
        # In the order in which the hub shows them.
        self._splits = [split for split in ExportSplit if split in report.files]

    def text(self) -> str:
        """Return the whole card."""
        parts = [
            f"---\n{self._header()}---\n{MARK}\n",
            f"# {self._said.title}\n",
            _ABOUT,
            "## Composition\n",
            self._composition(),
            "## Columns\n",
            _COLUMNS,
            "## Use\n",
            self._use(),
            "## How it was made\n",
            *self._made(),
            "## Limits\n",
            _LIMITS,
            "## Identity\n",
            self._identity(),
        ]
        return "\n".join(parts)

    def _header(self) -> str:
        said, report = self._said, self._report
        rows = sum(report.rows(split) for split in self._splits)
        sizes = {split: report.files[split].stat().st_size for split in self._splits}
        lines = [f"license: {json.dumps(said.license)}"] if said.license else []
        lines += [
            f"pretty_name: {json.dumps(said.title)}",
            f"language: {json.dumps(list(said.languages))}",
            'task_categories: ["question-answering", "text-generation"]',
            'tags: ["math", "reasoning", "process-reward", "consensus-nodes"]',
            f"size_categories: [{json.dumps(_size(rows))}]",
            "configs:",
            "- config_name: default",
            "  data_files:",
        ]
        for name in map(SPLIT_OF.__getitem__, self._splits):
            lines += [f"  - split: {name}", f"    path: data/{name}-*"]
        lines += ["dataset_info:", "  features:", *_features(self._schema, "  "), "  splits:"]
        for split in self._splits:
            lines += [
                f"  - name: {SPLIT_OF[split]}",
                f"    num_bytes: {report.nbytes[split]}",
                f"    num_examples: {report.rows(split)}",
            ]
        lines += [
            f"  download_size: {sum(sizes.values())}",
            f"  dataset_size: {sum(report.nbytes.values())}",
        ]
        return "\n".join(lines) + "\n"

    def _composition(self) -> str:
        lines = ["| Source | Split | #Problems | Avg. N(k) |", "|---|---|--:|--:|"]
        totals = []
        for split in self._splits:
            name = SPLIT_OF[split]
            for source, problems in self._report.written[split].items():
                nodes = self._report.nodes[split][source]
                lines.append(
                    f"| {_cell(source)} | {name} | {problems:,} | {nodes / problems:.2f} |"
                )
            rows, nodes = self._report.rows(split), self._report.nodes[split].total()
            totals.append(f"| **Total** | {name} | {rows:,} | {nodes / rows:.2f} |")
        return "\n".join(lines + totals) + "\n"

    def _use(self) -> str:
        path = self._report.files[self._splits[-1]]
        return (
            "```python\nfrom datasets import load_dataset\n\n"
            'dataset = load_dataset("OWNER/NAME")  # or the path of this folder\n```\n\n'
            "```bash\npip install consensuspr\n"
            f"consensuspr serve --dataset data/{path.name}     # rewards for a trainer\n"
            f"consensuspr score rollouts.jsonl --dataset data/{path.name} "
            "--output scored.jsonl\n```\n"
        )

    def _made(self) -> Iterator[str]:
        making = self._making
        if not making.recorded:
            yield "The rows do not say how their nodes were made.\n"
            return
        yield (
            "In three stages: right solutions are sampled from several models, what they have in "
            "common\nis extracted, and what says little is taken out. "
            f"{making.recorded:,} of {making.problems:,} problems say in\n"
            "`metadata.construction` how their nodes were made.\n"
        )
        if making.models:
            yield "| model | right solutions used |\n|---|--:|\n" + "".join(
                f"| {_cell(model)} | {count:,} |\n" for model, count in making.models.most_common()
            )
        for what, counter, shown in (
            ("Problems built", making.builds, _BUILDS_SHOWN),
            ("Solutions sampled", making.sampling, _SAMPLING_SHOWN),
        ):
            for settings, count in counter.most_common(shown):
                yield f"{what} with these settings: {count:,}\n"
                yield "| setting | value |\n|---|---|\n" + "".join(
                    f"| {_cell(name)} | {_cell(value)} |\n" for name, value in settings
                )
            if len(counter) > shown:
                yield f"… and {len(counter) - shown:,} more ways\n"

    def _identity(self) -> str:
        from consensuspr.core import NORMAL_FORM_VERSION
        from consensuspr.scoring.dataset_index import DatasetIndex

        lines = ["| split | digest |", "|---|---|"]
        for split in self._splits:
            index = DatasetIndex.load(self._report.files[split])
            lines.append(f"| {SPLIT_OF[split]} | `{index.digest}` |")
        return (
            "\n".join(lines)
            + "\n\nA server names the digest of its data with each score; equal digests mean equal "
            f"scores.\nWritten by consensuspr {VERSION}, normal form {NORMAL_FORM_VERSION}.\n"
        )


def _size(rows: int) -> str:
    return next((name for limit, name in _SIZES if rows < limit), "1M<n<10M")


def _cell(text: str) -> str:
    """Return a text as it can stand in a table."""
    flat = " ".join(text.split()).replace("|", "\\|")
    return flat if len(flat) <= 200 else flat[:199] + "…"


def _features(fields: pa.Schema | pa.StructType, indent: str) -> Iterator[str]:
    """Yield the columns as the hub's YAML has them."""
    for field in fields:
        yield f"{indent}- name: {json.dumps(field.name)}"
        yield from _type_lines(field.type, indent + "  ")


def _type_lines(kind: pa.DataType, indent: str) -> Iterator[str]:
    import pyarrow as pa

    if pa.types.is_struct(kind):
        yield f"{indent}struct:"
        yield from _features(kind, indent)
    elif not pa.types.is_list(kind):
        yield f"{indent}dtype: {_NAMES.get(str(kind), str(kind))}"
    elif pa.types.is_struct(kind.value_type):
        yield f"{indent}list:"
        yield from _features(kind.value_type, indent)
    else:
        yield f"{indent}list: {_NAMES.get(str(kind.value_type), str(kind.value_type))}"
