"""The core: normalise, scan, both and spans, against Python's ways and against memcpy.

What each part costs by length of text, by number of nodes, by kind of text and by threads, and
what the peers cost on the same bytes.  One thread is measured in CPU time, threads in wall time.

Not covered: answers, many problems, the service.
"""

from __future__ import annotations

from benchmarks.harness.measure import Context
from benchmarks.harness.results import SuiteResult
from benchmarks.suites.core import costs, parts, peers, threads
from benchmarks.suites.core.sizes import FULL, QUICK, Sizes
from benchmarks.suites.core.workloads import Corpus

NOTES = [
    "Texts are long real rollouts joined and cut at paragraph borders into texts of the size "
    "named, or generated ones of that shape where there is no folder of real ones. Groups of 8 "
    "texts share a problem, as rollouts of one prompt do; each problem has 7 nodes of 4 equal "
    "forms each.",
    "Each text has some of its problem's equations written into it, and every contender must "
    "find those and no others before it is timed. One node of each problem is in no text: a scan "
    "may stop when all nodes are found, and so has to read every byte.",
    "The scan alone is not a public function. It is given by difference: `match_batch` less "
    "`normalize` of the same bytes, which also makes a `str` of each normal form, so that the "
    "scan comes out too cheap, and where normalising is most of the work nothing may be left.",
    "The core gets `bytes`, the peers `str` decoded beforehand. The peers normalise with eight "
    "substitutions and look at one neighbouring character: far less than the normal form does.",
    "Hostile text: patterns that are pieces of each other are 64 nodes `1`, `11`, `111`, …, each "
    "found and refused at each place of a long row of ones. What such nodes can cost is why "
    "inline nodes are limited in number and length.",
    "memcpy copies a buffer far larger than the caches of a core, in the same rounds.",
]


def run(context: Context) -> SuiteResult:
    """Measure the core; quick or full sizes by ``context.full``."""
    return measure(context, FULL if context.full else QUICK)


def measure(context: Context, sizes: Sizes) -> SuiteResult:
    """Measure the core with the sizes given."""
    corpus = Corpus(context.data, context.seed, sizes.corpus_bytes)
    found = SuiteResult(suite="core", title="The core", notes=[*NOTES, corpus.description])
    context.say("normalise, scan, both, spans")
    parts.measure(context, sizes, corpus, found)
    context.say("peers")
    peers.measure(context, sizes, corpus, found)
    context.say("by length")
    costs.by_length(context, sizes, corpus, found)
    context.say("by nodes")
    costs.by_nodes(context, sizes, corpus, found)
    context.say("by kind of text")
    costs.by_kind(context, sizes, corpus, found)
    context.say("hostile text")
    costs.hostile(context, sizes, corpus, found)
    context.say("by threads")
    threads.measure(context, sizes, corpus, found)
    return found
