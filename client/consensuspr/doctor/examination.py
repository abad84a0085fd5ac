"""All checks, in an order in which each can use what those before it found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from consensuspr.client.training import RewardSettings
from consensuspr.doctor import checks, dataset_checks
from consensuspr.doctor.checks import Reward
from consensuspr.doctor.dataset_checks import Questioner, Side, Survey
from consensuspr.doctor.findings import Finding, ProgressBar, Setup, fail, skip
from consensuspr.doctor.verl_config import ProbeFailed, TrainingCommand, VerlRun, describe


def examine(setup: Setup, progress: ProgressBar) -> Iterator[Finding]:
    """Yield one finding after the other, as soon as it is known.

    Args:
        setup: what is to be trained.
        progress: shows how far the reading of rows is.

    Raises:
        InputError: the setup names a run that cannot be looked at here.
    """
    run, reward = None, Reward(RewardSettings())
    if setup.command is not None or setup.config_file is not None:
        try:
            with progress("asking verl", 1, "run") as advance_to:
                run = describe(setup.command or TrainingCommand(), setup.config_file)
                advance_to(1)
        except ProbeFailed as error:
            yield fail("configuration", str(error), "correct it; verl would refuse it as well")
            if setup.address is None:
                yield skip("server", "its address is in the configuration", "or give --address")
                return
    if run is not None:
        yield from checks.check_verl(run)
        yield from checks.check_manager(run)
        reward, finding = checks.read_reward(run)
        yield finding
        yield from checks.check_ignored_keys(run)
        if reward.valid:
            yield from checks.check_filter(run, reward)
            yield from checks.check_overlong(run, reward.overlong)
            yield from checks.check_unscorable(run, reward)
        yield from checks.check_workers(run)
    yield from checks.check_paths(run, reward.settings)
    yield from _server_and_rows(setup, run, reward, progress)


def _server_and_rows(
    setup: Setup, run: VerlRun | None, reward: Reward, progress: ProgressBar
) -> Iterator[Finding]:
    """Check what takes a server, files, or both."""
    settings = reward.settings
    address = setup.address or settings.address
    with ExitStack() as stack:
        met, finding = checks.meet(address, setup.timeout_s)
        yield finding
        if run is not None and reward.valid:
            yield from checks.check_address(run, address, settings)
        dataset = None
        if met is not None:
            stack.callback(met.client.close)
            yield from checks.check_versions(met.info)
            name = setup.dataset or settings.dataset
            dataset, finding = checks.choose_dataset(met.info, name)
            yield finding
        for path, role in (
            (setup.dataset_file, "--dataset"),
            (settings.dataset_path, "dataset_path"),
        ):
            if path is not None:
                yield checks.check_file(path, role, dataset)
        questioner = None
        if met is not None and dataset is not None:
            questioner = Questioner(met.client, dataset.name, settings)
        yield from _rows(setup, run, reward, questioner, progress)


def _rows(
    setup: Setup,
    run: VerlRun | None,
    reward: Reward,
    questioner: Questioner | None,
    progress: ProgressBar,
) -> Iterator[Finding]:
    files = {
        Side.TRAIN: setup.train_files or _files(run, "data.train_files"),
        Side.VALIDATION: setup.val_files or _files(run, "data.val_files"),
    }
    train = None
    if any(files.values()):
        key = (run and run.get("data.prompt_key")) or "prompt"
        survey = Survey(reward.settings.problem_id_format, key, questioner)
        survey.run(files, progress)
        train = survey.sides[Side.TRAIN]
        yield from dataset_checks.check_rows(survey)
        yield from dataset_checks.check_ids(survey)
        answers = questioner.answers if questioner else None
        yield from dataset_checks.check_problems(survey, answers, run, reward.settings)
    if run is not None and reward.valid:
        rows = train.rows if train and train.files and not train.bad_files else None
        yield from checks.check_schedule(run, reward, rows)


def _files(run: VerlRun | None, key: str) -> tuple[str, ...]:
    """Return the files that a run's configuration names, one or a list."""
    named = run.get(key) if run else None
    if isinstance(named, str):
        return (named,)
    return tuple(str(path) for path in named or ())
