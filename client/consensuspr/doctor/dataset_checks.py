"""What a person is told of the rows of verl's files, which :class:`RowScan` has read."""

from __future__ import annotations

from collections.abc import Iterator

from consensuspr.client.training import RewardSettings
from consensuspr.client.verl.files import RowScan, Split, SplitRows
from consensuspr.console import count_of, share
from consensuspr.doctor.findings import Finding, Level
from consensuspr.doctor.verl_config import VerlRun, consequence


def check_rows(scan: RowScan) -> Iterator[Finding]:
    """Say whether every row can be read and names its problem."""
    for split, rows in scan.rows.items():
        check = f"{split} rows"
        for reason in rows.bad_files:
            yield Finding(check, Level.FAIL, reason, "correct the path or the file")
        if rows.bad_rows.count:
            yield Finding(
                check,
                Level.FAIL,
                f"{share(rows.bad_rows.count, rows.rows)} of {rows.rows:,} cannot be rewarded, the"
                f" first: {rows.bad_rows.first}",
                "correct these rows",
            )
        elif rows.files and (rows.rows or not rows.bad_files):
            level = Level.OK if rows.rows else Level.WARN
            files, problems = count_of(rows.files, "file"), count_of(rows.problems, "problem")
            yield Finding(check, level, f"{rows.rows:,} in {files}, {problems}")


def check_ids(scan: RowScan) -> Iterator[Finding]:
    """Say which ids stand for two things."""
    seen, check = scan.seen, "problem ids"
    if not any(rows.rows for rows in scan.rows.values()):
        return
    for found, two, advice in (
        (seen.two_prompts, "two prompts", ", unless the prompts ask for the same"),
        (seen.two_truths, "two ground truths", "; a row's own ground truth decides over its Acc"),
    ):
        if found.count:
            yield Finding(
                check,
                Level.WARN,
                f"{found.count:,} with {two}, the first: {found.first}",
                f"give each problem an id of its own{advice}",
            )
    if not seen.two_prompts.count and not seen.two_truths.count:
        yield Finding(check, Level.OK, "each stands for one prompt and one ground truth")
    if not all(rows.rows for rows in scan.rows.values()):
        return
    if seen.leaked.count:
        yield Finding(
            "leakage",
            Level.WARN,
            f"{share(seen.leaked.count, scan.rows[Split.VALIDATION].problems)} of the validation"
            f" problems are training problems, the first: {seen.leaked.first}",
            "validate on other problems",
        )
    else:
        yield Finding("leakage", Level.OK, "no validation problem is a training problem")


def check_problems(scan: RowScan, run: VerlRun, settings: RewardSettings) -> Iterator[Finding]:
    """Say which problems the server knows, and which will have no reward."""
    for split, rows in scan.rows.items():
        check = f"{split} problems"
        if not rows.files:
            continue
        if not scan.asked:
            yield Finding(check, Level.SKIP, "not asked for: there is no server or dataset to ask")
        elif scan.server_error is not None:
            yield Finding(
                check,
                Level.FAIL,
                f"the server failed while they were asked for: {scan.server_error}",
                "look at its log",
            )
        elif rows.asked:
            yield _with_reward(split, rows, run, settings)
            if rows.other_truth.count:
                yield Finding(
                    f"{split} truths",
                    Level.WARN,
                    f"{share(rows.other_truth.count, rows.asked)} of {rows.asked:,} problems have"
                    " another ground truth in the row than at the server, the first:"
                    f" {rows.other_truth.first}",
                    "the row's decides in training; export the rows from the dataset that is"
                    " served",
                )


def _with_reward(split: Split, rows: SplitRows, run: VerlRun, settings: RewardSettings) -> Finding:
    """Say how many problems will have a reward."""
    check, asked = f"{split} problems", rows.asked
    if not rows.unscorable:
        bare = asked - rows.inline
        known = f"{share(rows.known, bare)} of {bare:,} known to the server"
        if rows.inline:
            known = f"{rows.inline:,} with nodes in the row" + (f", {known}" if bare else "")
        return Finding(check, Level.OK, f"{known}, {share(rows.with_nodes, asked)} have nodes")
    unrewarded = sum(found.count for found in rows.unscorable.values())
    reasons = "; ".join(
        f"{found.count:,} {reason} (the first: {found.first})"
        for reason, found in rows.unscorable.items()
    )
    found = (
        f"{share(unrewarded, asked)} of {asked:,} have no reward under reward={settings.reward}:"
        f" {reasons}"
    )
    advice = "serve the dataset of these rows, or drop them"
    if rows.exceeds(settings):
        limit = f"more than max_unscorable={settings.max_unscorable:g} allows"
        return Finding(check, Level.FAIL, f"{found}; {limit}", advice)
    if settings.on_unscorable == "raise":
        then = consequence(run, training=split is Split.TRAIN)
        return Finding(check, Level.FAIL, f"{found}; {then}", advice)
    return Finding(
        check, Level.WARN, f"{found}; they get on_unscorable={settings.on_unscorable:g}", advice
    )
