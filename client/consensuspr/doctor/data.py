"""What the survey of the rows says about them."""

from __future__ import annotations

from collections.abc import Iterator

from consensuspr.client.training import RewardSettings
from consensuspr.doctor.census import Side
from consensuspr.doctor.findings import Finding, fail, ok, share, skip, warn
from consensuspr.doctor.questions import Answers
from consensuspr.doctor.reward_shape import consequence
from consensuspr.doctor.survey import SideCount, Survey
from consensuspr.doctor.verl_run import VerlRun


def check_rows(survey: Survey) -> Iterator[Finding]:
    """Say whether every row can be read and names its problem."""
    for side, count in survey.sides.items():
        if count.files:
            yield from _rows(side, count, survey)


def _rows(side: Side, count: SideCount, survey: Survey) -> Iterator[Finding]:
    check = f"{side} rows"
    for reason in count.bad_files:
        yield fail(check, reason, "correct the path or the file")
    problems = survey.census.num_problems(side)
    if count.bad_rows.count:
        yield fail(
            check,
            f"{share(count.bad_rows.count, count.rows)} of {count.rows:,} cannot be rewarded, the"
            f" first: {count.bad_rows.first}",
            "correct these rows",
        )
    elif count.rows or not count.bad_files:
        level = ok if count.rows else warn
        files = "1 file" if count.files == 1 else f"{count.files:,} files"
        yield level(check, f"{count.rows:,} in {files}, {problems:,} problems")


def check_ids(survey: Survey) -> Iterator[Finding]:
    """Say which ids stand for two things."""
    found = survey.census.ambiguous
    if not any(count.rows for count in survey.sides.values()):
        return
    if found.prompts.count:
        yield warn(
            "problem ids",
            f"{found.prompts.count:,} with two prompts, the first: {found.prompts.first}",
            "give each problem an id of its own, unless the prompts ask for the same",
        )
    if found.truths.count:
        yield warn(
            "problem ids",
            f"{found.truths.count:,} with two ground truths, the first: {found.truths.first}",
            "give each problem an id of its own; a row's own ground truth decides over its Acc",
        )
    if not found.prompts.count and not found.truths.count:
        yield ok("problem ids", "each stands for one prompt and one ground truth")
    if not all(count.rows for count in survey.sides.values()):
        return
    if found.leaked.count:
        problems = survey.census.num_problems(Side.VALIDATION)
        yield warn(
            "leakage",
            f"{share(found.leaked.count, problems)} of the validation problems are training"
            f" problems, the first: {found.leaked.first}",
            "validate on other problems",
        )
    else:
        yield ok("leakage", "no validation problem is a training problem")


def check_problems(
    survey: Survey, answers: dict[Side, Answers] | None, run: VerlRun | None, reward: RewardSettings
) -> Iterator[Finding]:
    """Say which problems the server knows, and which will have no reward."""
    for side, count in survey.sides.items():
        if not count.files:
            continue
        if answers is None:
            yield skip(f"{side} problems", "not asked for: there is no server or dataset to ask")
        elif survey.server_error is not None:
            yield fail(
                f"{side} problems",
                f"the server failed while they were asked for: {survey.server_error}",
                "look at its log",
            )
        elif answers[side].asked:
            yield _problems(side, answers[side], run, reward)
            yield from _truths(side, answers[side])


def _problems(side: Side, answers: Answers, run: VerlRun | None, reward: RewardSettings) -> Finding:
    check, asked = f"{side} problems", answers.asked
    bare = asked - answers.inline
    known = f"{share(answers.known, bare)} of {bare:,} known to the server"
    if answers.inline:
        known = f"{answers.inline:,} with nodes in the row" + (f", {known}" if bare else "")
    found = f"{known}, {share(answers.with_nodes, asked)} have nodes"
    if not answers.unscorable:
        return ok(check, found)
    reasons = "; ".join(
        f"{tally.count:,} {reason} (the first: {tally.first})"
        for reason, tally in answers.unscorable.items()
    )
    found = (
        f"{share(answers.never_rewarded, asked)} of {asked:,} have no reward under"
        f" reward={reward.reward}: {reasons}"
    )
    if reward.on_unscorable == "raise":
        return fail(
            check,
            f"{found}; {consequence(run, training=side is Side.TRAIN)}",
            "serve the dataset of these rows, or drop them",
        )
    return warn(
        check,
        f"{found}; they get on_unscorable={reward.on_unscorable:g}",
        "serve the dataset of these rows, or drop them",
    )


def _truths(side: Side, answers: Answers) -> Iterator[Finding]:
    other = answers.other_truth
    if other.count:
        yield warn(
            f"{side} truths",
            f"{share(other.count, answers.asked)} of {answers.asked:,} problems have another ground"
            f" truth in the row than at the server, the first: {other.first}",
            "the row's decides in training; export the rows from the dataset that is served",
        )
