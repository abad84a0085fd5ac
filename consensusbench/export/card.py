"""The card of a dataset on the hub: YAML for the machine, Markdown for a person.

The composition table has the columns of the paper's Table 1.  The digests are those that a
server names with each score, so that a reader can tell whether a score was made with this
data.  Values are written as JSON, which YAML contains, so that no text can break the header.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from consensusbench.export.making import Making
from consensusbench.export.report import ExportReport
from consensusbench.export.selection import Side
from consensusbench.export.trainer_rows import SPLIT_OF
from consensuspr.version import VERSION

if TYPE_CHECKING:
    import pyarrow as pa

MARK = "<!-- written by consensusbench export -->"

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


class Card:
    """Writes the card of files that are complete.

    Args:
        said: what the data do not say.
        report: of the export.
        making: how the problems were made.
        schema: columns of the files.
    """

    def __init__(
        self, said: CardText, report: ExportReport, making: Making, schema: pa.Schema
    ) -> None:
        self._said = said
        self._report = report
        self._making = making
        self._schema = schema
        # In the order in which the hub shows them.
        self._sides = [side for side in (Side.TRAIN, Side.VALIDATION) if side in report.files]

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
        rows = sum(report.rows(side) for side in self._sides)
        sizes = {side: report.files[side].stat().st_size for side in self._sides}
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
        for side in self._sides:
            split = SPLIT_OF[side]
            lines += [f"  - split: {split}", f"    path: data/{split}-*"]
        lines += ["dataset_info:", "  features:", *_features(self._schema, "  "), "  splits:"]
        for side in self._sides:
            lines += [
                f"  - name: {SPLIT_OF[side]}",
                f"    num_bytes: {report.nbytes[side]}",
                f"    num_examples: {report.rows(side)}",
            ]
        lines += [
            f"  download_size: {sum(sizes.values())}",
            f"  dataset_size: {sum(report.nbytes.values())}",
        ]
        return "\n".join(lines) + "\n"

    def _composition(self) -> str:
        lines = ["| Source | Split | #Problems | Avg. N(k) |", "|---|---|--:|--:|"]
        totals = []
        for side in self._sides:
            split = SPLIT_OF[side]
            for source, problems in self._report.written[side].items():
                nodes = self._report.nodes[side][source]
                lines.append(
                    f"| {_cell(source)} | {split} | {problems:,} | {nodes / problems:.2f} |"
                )
            rows, nodes = self._report.rows(side), self._report.nodes[side].total()
            totals.append(f"| **Total** | {split} | {rows:,} | {nodes / rows:.2f} |")
        return "\n".join(lines + totals) + "\n"

    def _use(self) -> str:
        path = self._report.files[self._sides[-1]]
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
        from consensuspr.scoring.index import DatasetIndex

        lines = ["| split | digest |", "|---|---|"]
        for side in self._sides:
            index = DatasetIndex.load(self._report.files[side])
            lines.append(f"| {SPLIT_OF[side]} | `{index.digest}` |")
            index.close()
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

    if not pa.types.is_list(kind):
        yield f"{indent}dtype: {_NAMES.get(str(kind), str(kind))}"
    elif pa.types.is_struct(kind.value_type):
        yield f"{indent}list:"
        yield from _features(kind.value_type, indent)
    else:
        yield f"{indent}list: {_NAMES.get(str(kind.value_type), str(kind.value_type))}"


# Where the hub's name of a type is not Arrow's.
_NAMES = {"double": "float64"}
