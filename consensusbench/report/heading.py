"""What was evaluated, and what a reader must know before any number."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from consensuspr.scoring.types import Status

if TYPE_CHECKING:
    from consensusbench.evaluation.evaluating import Evaluation
    from consensusbench.evaluation.scored import ScoredSet

# What each status other than OK means for the figures; docs/evaluation.md says more.
_MEANING = {
    Status.ANSWER_UNDECIDED: "the answer check came to no verdict; counted as wrong",
    Status.NO_NODES: "their problem has no nodes; no NCR",
    Status.NO_GROUND_TRUTH: "nothing says what is right; no Acc",
    Status.UNKNOWN_PROBLEM: "the dataset does not have their problem; neither Acc nor NCR",
    Status.INVALID_NODES: "their nodes were not usable; no NCR",
    Status.OVERSIZE: "too long to be scored; neither Acc nor NCR",
    Status.INTERNAL: "a defect while scoring; neither Acc nor NCR",
}


def facts_of(
    scored: ScoredSet, evaluation: Evaluation, dataset: str, digest: str
) -> tuple[tuple[str, str], ...]:
    """Return name and value of all that the figures depend on.

    Folders are left out of paths: a page travels, and they are nobody else's concern.
    """
    models = sorted({rollout.model or "(none named)" for rollout in scored.rollouts})
    sources = sorted({rollout.data_source or "(none)" for rollout in scored.rollouts})
    facts = [
        ("Dataset", f"{Path(dataset).name}, {digest}"),
        ("Problems of the dataset", f"{len(scored.problems):,}"),
        *_answered(scored),
        ("Rollouts", f"{len(scored.rollouts):,} of {_files(scored)}"),
        ("Models", _listed(models)),
        ("Sources", _listed(sources)),
        ("Statuses", _statuses(scored)),
    ]
    identity = scored.identity
    if identity is not None:
        facts.append(
            (
                "Scored by",
                f"consensuspr {identity.server_version}, normal form "
                f"{identity.normal_form_version}, answers {identity.answer_version}, "
                f"answer rule {identity.answer_rule.value}",
            )
        )
    if scored.num_stored:
        facts.append(("Scores from the files", f"{scored.num_stored:,} rollouts"))
    if evaluation.tokenizer is not None:
        tokenizer = _tokenizer_name(evaluation.tokenizer)
        facts.append(("Tokens", f"{evaluation.num_tokenized:,} rollouts counted by {tokenizer}"))
    return tuple(facts)


def warnings_of(scored: ScoredSet) -> tuple[str, ...]:
    """Return what makes figures mean less than they seem to, one sentence each."""
    warnings = []
    for status, rollouts in scored.statuses.items():
        if status is not Status.OK:
            first = scored.messages.get(status)
            example = f" The first: {first}." if first else ""
            warnings.append(
                f"{rollouts:,} rollouts have status {status.value}: {_MEANING[status]}.{example}"
            )
    by_load = sum(rollout.undecided_by_load for rollout in scored.rollouts)
    if by_load:
        warnings.append(
            f"{by_load:,} answers stayed undecided because the machine was busy: score them again."
        )
    if scored.skipped_rows:
        warnings.append(f"{scored.skipped_rows:,} bad rows of the files were passed over.")
    if not any(rollout.num_tokens for rollout in scored.rollouts):
        warnings.append("No rollout has a length in tokens: there is no TPN.")
    return tuple(warnings)


def _answered(scored: ScoredSet) -> list[tuple[str, str]]:
    """Return how many problems have rollouts, how many of them have no nodes, and the nodes."""
    nodes = {
        rollout.problem_id: (
            len(scored.problems[rollout.problem_id].node_ids)
            if rollout.problem_id in scored.problems
            else 0
        )
        for rollout in scored.rollouts
    }
    for rollout in scored.rollouts:  # which may have brought nodes of their own
        nodes[rollout.problem_id] = max(nodes[rollout.problem_id], len(rollout.matched))
    with_nodes = [count for count in nodes.values() if count]
    told = f"{len(nodes):,}"
    without = len(nodes) - len(with_nodes)
    if without:
        told += f", of them {without:,} without nodes"
    facts = [("Problems with rollouts", told)]
    if with_nodes:
        each = sum(with_nodes) / len(with_nodes)
        facts.append(
            (
                "Nodes",
                f"{sum(with_nodes):,} of {len(with_nodes):,} problems with rollouts "
                f"({each:.1f} a problem)",
            )
        )
    return facts


def _statuses(scored: ScoredSet) -> str:
    counts = scored.statuses
    told = sorted(counts, key=lambda status: (status is not Status.OK, status.value))
    return ", ".join(f"{status.value} {counts[status]:,}" for status in told)


def _files(scored: ScoredSet) -> str:
    return _listed([Path(path).name for path in scored.files])


def _tokenizer_name(tokenizer: str) -> str:
    """Return a tokenizer's name on the hub, or that of its file or folder."""
    path = Path(tokenizer)
    return path.resolve().name if path.exists() else tokenizer


def _listed(names: list[str], most: int = 12) -> str:
    shown = ", ".join(names[:most])
    more = len(names) - most
    return f"{shown} and {more:,} more" if more > 0 else shown
