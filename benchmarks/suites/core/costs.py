"""What a byte costs: by length of the text, by nodes, by kind of text, and on hostile text."""

from __future__ import annotations

import time
from collections.abc import Mapping

from benchmarks.harness import texts
from benchmarks.harness.measure import Context, interleaved, require
from benchmarks.harness.results import Check, Figure, Series, SuiteResult
from benchmarks.suites.core.peers import core, re_pyahocorasick
from benchmarks.suites.core.sizes import Sizes
from benchmarks.suites.core.workloads import SHORT, Corpus, Workload, plant

_RATE = "normalise + match"


def by_length(context: Context, sizes: Sizes, corpus: Corpus, found: SuiteResult) -> None:
    """Cut the same bytes into texts of each length; the target asks for 1 KB to 1 MB."""
    works = {length: corpus.lengths(length) for length in sizes.lengths}
    cost = _costs(context, {f"{length} bytes": work for length, work in works.items()})
    rates = [(length, 1e-6 / cost[f"{length} bytes"]) for length in works]
    for length, rate in rates:
        found.figures.append(_rate(rate, {"length in bytes": length}))
    # The peer, once: what it costs a byte hardly depends on the length.
    peers = {
        length: work.first(sizes.twin_bytes) for length, work in works.items() if length <= 100_000
    }
    slow = _peer_rates(context, peers)
    found.series.append(
        Series(
            name="Normalise + match by length of the text",
            x_label="bytes of a text",
            y_label="MB/s",
            log_x=True,
            log_y=True,
            lines={"consensuspr core": rates, "re + pyahocorasick": slow},
        )
    )
    _spread(
        found,
        "cost_by_length",
        "1 KB to 1 MB",
        cost,
        [f"{length} bytes" for length in works if 1_000 <= length <= 1_000_000],
    )


def by_nodes(context: Context, sizes: Sizes, corpus: Corpus, found: SuiteResult) -> None:
    """Look for more and more nodes, each with its equal forms, in the same texts of 10 KB."""
    pieces = corpus.cut(10_000)
    works = {
        nodes: plant(pieces, corpus.seed, count=nodes, group=len(pieces)) for nodes in sizes.nodes
    }
    cost = _costs(context, {f"{nodes} nodes": work for nodes, work in works.items()})
    rates = [(nodes, 1e-6 / cost[f"{nodes} nodes"]) for nodes in works]
    for nodes, rate in rates:
        matcher = works[nodes].matchers[0]
        parameters: dict[str, str | int | float] = {
            "nodes": nodes,
            "patterns": matcher.num_patterns,
        }
        found.figures.append(_rate(rate, parameters))
        found.figures.append(
            Figure(name="matcher", value=matcher.nbytes, unit="bytes", parameters=parameters)
        )
    peers = {nodes: work.first(sizes.twin_bytes) for nodes, work in works.items()}
    found.series.append(
        Series(
            name="Normalise + match by number of nodes",
            x_label="nodes of a problem, each with four equal forms",
            y_label="MB/s",
            log_x=True,
            log_y=True,
            lines={"consensuspr core": rates, "re + pyahocorasick": _peer_rates(context, peers)},
        )
    )
    _spread(
        found,
        "cost_by_nodes",
        "5 to 500 nodes",
        cost,
        [f"{nodes} nodes" for nodes in works if 5 <= nodes <= 500],
    )


def by_kind(context: Context, sizes: Sizes, corpus: Corpus, found: SuiteResult) -> None:
    """Match texts of other kinds: short ones, long ones as they are, and generated ones."""
    count = max(1, sizes.peer_bytes // 10_000)
    works = {
        "10 KB texts": corpus.planted(10_000).first(sizes.peer_bytes),
        "long texts as they are": plant(corpus.whole, corpus.seed).first(sizes.peer_bytes),
    }
    if corpus.data is not None:
        short = texts.real_rollouts(corpus.data, SHORT)
        works["short solutions, GSM8K"] = plant(short, corpus.seed).first(sizes.peer_bytes)
        works["generated, 10 KB"] = plant(texts.rollouts(count, 10_000, corpus.seed), corpus.seed)
    for name, cost in _costs(context, works).items():
        found.figures.append(_rate(1e-6 / cost, {"text": name, "texts": len(works[name].texts)}))


def hostile(context: Context, sizes: Sizes, corpus: Corpus, found: SuiteResult) -> None:
    """Match text that was made to be slow, against ordinary text with the same nodes."""
    size = sizes.hostile_bytes
    ordinary = corpus.planted(10_000).first(size)
    nodes = ordinary.problems[0]
    pieces_of_each_other = [["1" * length] for length in range(1, 65)]
    made = {
        r"deep \frac nesting": (r"\frac{" * (size // 6), nodes),
        "digits alone": ("1234567890" * (size // 10), nodes),
        "open brackets alone": ("(" * size, nodes),
        "products of letters": ("a*b*" * (size // 4), nodes),
        "patterns that are pieces of each other": ("1" * size, pieces_of_each_other),
        "the same, on their own": ("1 is 11, " * (size // 9), pieces_of_each_other),
    }
    works = {"ordinary text": ordinary}
    for name, (text, wanted) in made.items():
        # Of the pieces only those that stand alone in the text are reached.
        reached = ["1", "11"] if name == "the same, on their own" else []
        works[name] = Workload(
            [text.encode()], [wanted], 1, [[forms[0] in reached for forms in wanted]]
        )
    cost = _costs(context, works)
    base = cost.pop("ordinary text")
    for name, spent in cost.items():
        found.figures.append(
            Figure(
                name="cost per byte against ordinary text",
                value=spent / base,
                unit="x",
                parameters={"hostile text": name, "text bytes": size},
            )
        )


def _costs(context: Context, works: Mapping[str, Workload]) -> dict[str, float]:
    """Return the CPU seconds a byte of each workload, measured in turn."""
    contenders = {name: core(work) for name, work in works.items()}
    for name, contender in contenders.items():
        require(f"the core ({name})", contender.rows(), works[name].expected)
    timings = interleaved(
        {name: contender.run for name, contender in contenders.items()},
        2 * context.rounds,
        time.process_time,
    )
    return {name: timings[name].best / works[name].size for name in works}


def _peer_rates(context: Context, works: Mapping[int, Workload]) -> list[tuple[float, float]]:
    contenders = {str(key): re_pyahocorasick(work) for key, work in works.items()}
    for key, work in works.items():
        require(f"re + pyahocorasick ({key})", contenders[str(key)].rows(), work.expected)
    timings = interleaved(
        {key: contender.run for key, contender in contenders.items()},
        min(3, context.rounds),
        time.process_time,
    )
    return [(key, work.size / timings[str(key)].best / 1e6) for key, work in works.items()]


def _spread(
    found: SuiteResult, target: str, over: str, cost: Mapping[str, float], names: list[str]
) -> None:
    """Check the dearest byte against the cheapest one, among ``names``."""
    if len(names) < 2:
        return
    dearest, cheapest = max(names, key=cost.__getitem__), min(names, key=cost.__getitem__)
    ratio = cost[dearest] / cost[cheapest]
    found.figures.append(
        Figure(
            name="dearest byte against cheapest", value=ratio, unit="x", parameters={"over": over}
        )
    )
    found.checks.append(
        Check(target=target, value=ratio, note=f"dearest at {dearest}, cheapest at {cheapest}")
    )


def _rate(rate: float, parameters: dict[str, str | int | float]) -> Figure:
    return Figure(name=_RATE, value=rate, unit="MB/s", parameters=parameters)
