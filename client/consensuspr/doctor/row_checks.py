"""Findings about the rows of verl's files, which ``RowScan`` has read."""

from __future__ import annotations

from collections.abc import Iterator

from consensuspr.client.training import RewardSettings
from consensuspr.client.verl.files import RowScan, Split, SplitRows
from consensuspr.console import count_of, share
from consensuspr.doctor.findings import Finding, Level


def check_rows(scan: RowScan, settings: RewardSettings) -> Iterator[Finding]:
    """Check that rows can be read, name one problem each, and will get a reward."""
    for split, rows in scan.rows.items():
        name = f"{split} rows"
        for reason in rows.bad_files:
            yield Finding(name, Level.FAIL, reason, "correct the path or the file")
        if rows.bad_rows.count:
            yield Finding(
                name,
                Level.FAIL,
                f"{share(rows.bad_rows.count, rows.rows)} of {rows.rows:,} cannot be rewarded, the"
                f" first: {rows.bad_rows.first}",
                "correct these rows",
            )
        elif rows.files and (rows.rows or not rows.bad_files):
            level = Level.OK if rows.rows else Level.WARN
            files, problems = count_of(rows.files, "file"), count_of(rows.problems, "problem")
            yield Finding(name, level, f"{rows.rows:,} in {files}, {problems}")
    yield from _check_ids(scan)
    for split, rows in scan.rows.items():
        if rows.files:
            yield from _check_problems(scan, split, rows, settings)


def _check_ids(scan: RowScan) -> Iterator[Finding]:
    seen = scan.seen
    for what, found, advice in (
        ("have two prompts", seen.two_prompts, "give each problem an id of its own"),
        ("have two ground truths", seen.two_truths, "give each problem an id of its own"),
        ("are in training and validation", seen.leaked, "validate on other problems"),
    ):
        if found.count:
            text = f"{found.count:,} {what}, the first: {found.first}"
            yield Finding("problem ids", Level.WARN, text, advice)


def _check_problems(
    scan: RowScan, split: Split, rows: SplitRows, settings: RewardSettings
) -> Iterator[Finding]:
    """Check which problems the server knows, and which will have no reward."""
    name = f"{split} problems"
    if not scan.asked:
        yield Finding(name, Level.SKIP, "there is no server or dataset to ask")
    elif scan.server_error is not None:
        yield Finding(name, Level.FAIL, f"the server failed: {scan.server_error}", "see its log")
    elif rows.asked and not rows.unscorable:
        known = f"{share(rows.known, rows.asked)} of {rows.asked:,} known to the server"
        inline = f", {rows.inline:,} with nodes in the row" if rows.inline else ""
        nodes = f", {share(rows.with_nodes, rows.asked)} have nodes"
        yield Finding(name, Level.OK, known + inline + nodes)
    elif rows.asked:
        reasons = "; ".join(
            f"{found.count:,} {reason} (the first: {found.first})"
            for reason, found in rows.unscorable.items()
        )
        count = sum(found.count for found in rows.unscorable.values())
        trained = settings.on_unscorable != "raise" and not rows.exceeds(settings)
        then = f"; they get on_unscorable={settings.on_unscorable}" if trained else ""
        yield Finding(
            name,
            Level.WARN if trained else Level.FAIL,
            f"{share(count, rows.asked)} of {rows.asked:,} have no reward under"
            f" reward={settings.reward}: {reasons}{then}",
            "serve the dataset of these rows, or drop them",
        )
    if rows.other_truth.count:
        yield Finding(
            f"{split} truths",
            Level.WARN,
            f"{share(rows.other_truth.count, rows.asked)} of {rows.asked:,} problems have another"
            f" ground truth in the row than at the server, the first: {rows.other_truth.first}",
            "the row's counts in training; export the rows from the dataset that is served",
        )
