"""Fill in the generated blocks of docs/reference from the code that they describe.

A block stands between ``<!-- begin NAME -->`` and ``<!-- end NAME -->``.  ``--check`` writes
nothing and exits with 1 if a page is not current.  ``make reference`` runs it with what it needs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer
from pydantic import ByteSize

import consensusbench.cli.app
import consensusbench.construction
import consensuspr.cli.app
import consensuspr.client
import consensuspr.core
import consensuspr.scoring
from consensusbench.cli.construction import BuildSettings
from consensusbench.cli.sample import SampleOptions
from consensuspr.client.training import RewardSettings
from consensuspr.http.settings import UrlSettings
from consensuspr.launch.request import Request
from consensuspr.server.config import MAX_UINT32, Address, ServerConfig
from consensuspr.server.endpoint import MetricsEndpoint
from consensuspr.server.metrics import Metrics
from consensuspr.server.security import Gate, Security
from consensuspr.settings import all_settings

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs/reference"
PROTO = ROOT / "proto/consensuspr/v1/scoring.proto"
# "the page "TITLE"" of help texts becomes a link; the titles are those of the site's navigation.
PAGE = re.compile(r'the page "([^"]+)"(?: \(https?://[^)]+\))?')
TITLES = dict(re.findall(r"^ +- (.+): (\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.M))
# Commands of whose options docs/reference/settings.md has the rare ones.
ON_SETTINGS_PAGE = {"serve", "launch", "build", "extract", "refine", "sample"}
API = (consensuspr.client, consensuspr.core, consensuspr.scoring, consensusbench.construction)


def table(heads: str, rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table; ``|`` separates the heads."""
    lines = [f"| {heads.replace('|', ' | ')} |", "|---" * (heads.count("|") + 1) + "|"]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def code(value: object) -> str:
    return f"`{value}`"


def sentence(text: str) -> str:
    """Return a text as one line that begins with a capital and ends with a full stop."""
    text = " ".join(text.split())
    start = text if text.startswith("http") else text[:1].upper() + text[1:]
    return start.rstrip(".") + "." if text else ""


def default_text(value: Any) -> str:
    """Return a default as users write it."""
    if isinstance(value, Enum):
        return code(value.value)
    if isinstance(value, bool):
        return code(str(value).lower())
    if isinstance(value, ByteSize):
        return code(value.human_readable().replace(".0", ""))
    if isinstance(value, float):
        return code(f"{value:g}")
    if isinstance(value, list | tuple) and value:
        return " ".join(map(default_text, value))
    return code(value) if value or value == 0 else "–"


def values_text(kind: Any, rules: Iterable[Any] = ()) -> str:
    """Return which values a type takes, with the limits that pydantic checks."""
    if hasattr(kind, "__metadata__"):
        return values_text(get_args(kind)[0], [*rules, *kind.__metadata__])
    parts = [part for part in get_args(kind) if part is not type(None)]
    origin = get_origin(kind)
    if origin is Literal:
        return " ".join(map(default_text, parts))
    if origin in (list, tuple):
        return f"list of {values_text(parts[0])}"
    if origin is not dict and parts:
        return " or ".join(dict.fromkeys(values_text(part, rules) for part in parts))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return " ".join(map(default_text, kind))
    names = {bool: "`true` `false`", int: "integer", float: "number", str: "text", Path: "path"}
    limits = {}
    for rule in rules:
        for inner in (rule, *getattr(rule, "metadata", ())):
            found = {name: getattr(inner, name, None) for name in ("gt", "ge", "le", "lt")}
            limits |= {name: limit for name, limit in found.items() if limit is not None}
    if "gt" in limits:
        limits.pop("ge", None)
    words = {"gt": "above", "ge": "from", "le": "to", "lt": "below"}
    text = "".join(
        f" {word} {limits[name]:,}"
        for name, word in words.items()
        if limits.get(name, MAX_UINT32) < MAX_UINT32 and kind in (int, float)
    )
    return ("size" if kind is ByteSize else names.get(kind, "table")) + text


def settings(model: Any) -> str:
    rows = []
    for name, setting in all_settings(model).items():
        field = setting.field
        default = "–" if field.default_factory else default_text(setting.default)
        meaning = sentence(field.description or "")
        rows.append((code(name), values_text(field.annotation, field.metadata), default, meaning))
    return table("setting|values|default|meaning", rows)


def metrics() -> str:
    address = Address("127.0.0.1", 0)
    security = Security(Gate(None), None)
    endpoint = MetricsEndpoint(address, security, workers=1, serving=lambda: 1)
    endpoint.close()
    rows = []
    for registry in (Metrics().registry, endpoint.registry):
        # prometheus_client has no public way to the labels of a metric without samples.
        for metric in registry._collector_to_names:
            if hasattr(metric, "_labelnames"):
                name = metric._name + ("_total" if metric._type == "counter" else "")
                labels = " ".join(map(code, metric._labelnames)) or "–"
                rows.append((code(name), metric._type, labels, metric._documentation))
    return table("metric|type|labels|meaning", sorted(rows))


def protocol() -> str:
    """Return each service, enum and message of the .proto under a heading, its comment as text."""
    block = re.compile(r"((?://[^\n]*\n)*)^(\w+ (\w+) \{\n.*?^\}\n)", re.M | re.S)
    parts = []
    for comment, source, name in block.findall(PROTO.read_text("utf-8")):
        text = " ".join(line.removeprefix("//").strip() for line in comment.splitlines())
        parts.append(f"## {name}\n\n{text}\n\n```proto\n{source}```")
    return "\n\n".join(parts)


def command(program: str, name: str, described: Any) -> str:
    context = typer.Context(described, info_name=name)
    usage = " ".join(piece.strip("{}") for piece in described.collect_usage_pieces(context))
    rows: dict[bool, list[tuple[str, str]]] = {False: [], True: []}
    for parameter in described.params:
        if parameter.param_type_name == "argument":
            label = parameter.metavar or parameter.name.upper()
            rows[False].append((code(label), sentence(parameter.help or "")))
            continue
        hidden, parameter.hidden = parameter.hidden, False  # the record of a hidden one is None
        flags, text = parameter.get_help_record(context)
        text, _, default = text.replace("[required]", "Required.").partition("[default: ")
        default = f" Default: `{default.rstrip(']').strip('()')}`." if default else ""
        rows[hidden].append((code(flags), sentence(text) + default))
    parts = [f"### {program} {name}", f"```text\n{program} {name} {usage}\n```"]
    parts += [described.help.strip(), table("argument or option|meaning", rows[False])]
    if name in ON_SETTINGS_PAGE:
        parts.append("Other [settings](settings.md) are options too, except tables.")
    elif rows[True]:
        parts += ["Rarely needed:", table("option|meaning", rows[True])]
    return "\n\n".join(parts)


def commands(module: Any) -> str:
    group: Any = typer.main.get_command(module.app)
    rows = [
        (
            f"[{name}](#{module.PROGRAM}-{name})",
            str(each.rich_help_panel),
            sentence(each.help.partition("\n\n")[0]),
        )
        for name, each in group.commands.items()
    ]
    parts = [command(module.PROGRAM, name, each) for name, each in group.commands.items()]
    return "\n\n".join([table("command|group|does", rows), *parts])


def home(module: Any, name: str) -> str:
    """Return the module that documents a name: the compiled engine for what both engines have."""
    origin = getattr(getattr(module, name), "__module__", "")
    engines = ("consensuspr.core.native", "consensuspr.core.pure")
    return engines[0] if origin.startswith(engines) else module.__name__


def api() -> str:
    """Return mkdocstrings' directives: of each module the names that no module before it lists."""
    names: dict[str, list[str]] = {}
    listed: set[str] = set()
    for module in API:
        for name in module.__all__:
            if name not in listed:
                names.setdefault(home(module, name), []).append(name)
        listed.update(module.__all__)
    options = "      heading_level: 2\n      show_root_full_path: true\n      members: "
    return "\n\n".join(
        f"::: {module}\n    options:\n{options}[{', '.join(members)}]"
        for module, members in names.items()
    )


BLOCKS: dict[str, Callable[[], str]] = {
    "server": lambda: settings(ServerConfig),
    "training": lambda: settings(RewardSettings),
    "launch": lambda: settings(Request),
    "url": lambda: settings(UrlSettings),
    "build": lambda: settings(BuildSettings),
    "sample": lambda: settings(SampleOptions),
    "metrics": metrics,
    "protocol": protocol,
    "consensuspr": lambda: commands(consensuspr.cli.app),
    "consensusbench": lambda: commands(consensusbench.cli.app),
    "api": api,
}


BLOCK = re.compile(rf"(<!-- begin ({'|'.join(BLOCKS)}) -->\n).*?(<!-- end \2 -->)", re.S)


def filled(block: re.Match[str]) -> str:
    text = PAGE.sub(lambda found: f"[{found[1]}](../{TITLES[found[1]]})", BLOCKS[block[2]]())
    return f"{block[1]}\n{text}\n\n{block[3]}"


def main() -> int:
    stale = []
    for page in sorted(PAGES.glob("*.md")):
        before = page.read_text("utf-8")
        after = BLOCK.sub(filled, before)
        if after != before:
            stale.append(page.name)
            if "--check" not in sys.argv:
                page.write_text(after, "utf-8")
    if stale and "--check" in sys.argv:
        print(f"not current in docs/reference: {', '.join(stale)}; run make reference")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
