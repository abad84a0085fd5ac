"""All checks, in an order in which each can use what those before it found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, nullcontext

from consensuspr.client.training import RewardSettings
from consensuspr.client.verl.config import INSTALL_VERL, verl_is_installed
from consensuspr.doctor import checks, dataset_checks
from consensuspr.doctor.checks import PlannedReward
from consensuspr.doctor.dataset_checks import RowScan, Split
from consensuspr.doctor.findings import Finding, ProgressBar, TrainingSetup, fail, skip
from consensuspr.doctor.verl_config import ProbeFailed, TrainingCommand, VerlRun, describe


def examine(setup: TrainingSetup, progress: ProgressBar) -> Iterator[Finding]:
    """Yield one finding after the other, as soon as it is known.

    Args:
        setup: what is to be trained.
        progress: shows how far the reading of rows is.

    Raises:
        InputError: the setup names a run that cannot be looked at here.
    """
    run, reward = None, PlannedReward(RewardSettings())
    if setup.command is not None or setup.config_file is not None:
        fault = None
        if not verl_is_installed():
            advice = f"install it: {INSTALL_VERL}"
            fault = fail("verl", "is not installed in this environment", advice)
        else:
            try:
                with progress("asking verl", 1, "run") as advance_to:
                    run = describe(setup.command or TrainingCommand(), setup.config_file)
                    advance_to(1)
            except ProbeFailed as error:
                advice = "correct it; verl would refuse it as well"
                fault = fail("configuration", str(error), advice)
        if fault is not None:
            yield fault
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
    setup: TrainingSetup, run: VerlRun | None, reward: PlannedReward, progress: ProgressBar
) -> Iterator[Finding]:
    """Check what takes a server, files, or both."""
    settings = reward.settings
    address = setup.address or settings.address
    client, info, finding = checks.ask_server(address, setup.timeout_s)
    with closing(client) if client is not None else nullcontext():
        yield finding
        if run is not None and reward.valid:
            yield from checks.check_address(run, address, settings)
        dataset = None
        if info is not None:
            yield from checks.check_versions(info)
            dataset, finding = checks.choose_dataset(info, setup.dataset or settings.dataset)
            yield finding
        for path, role in (
            (setup.dataset_file, "--dataset"),
            (settings.dataset_path, "dataset_path"),
        ):
            if path is not None:
                yield checks.check_file(path, role, dataset)
        files = {
            Split.TRAIN: setup.train_files or _files(run, "data.train_files"),
            Split.VALIDATION: setup.val_files or _files(run, "data.val_files"),
        }
        key = (run and run.get("data.prompt_key")) or "prompt"
        server = (client, dataset.name) if client is not None and dataset is not None else None
        scan = RowScan(settings, key, server)
        if any(files.values()):
            scan.run(files, progress)
            yield from dataset_checks.check_rows(scan)
            yield from dataset_checks.check_ids(scan)
            yield from dataset_checks.check_problems(scan, run, settings)
    if run is not None and reward.valid:
        train = scan.rows[Split.TRAIN]
        rows = train.rows if train.files and not train.bad_files else None
        yield from checks.check_schedule(run, reward, rows)


def _files(run: VerlRun | None, key: str) -> tuple[str, ...]:
    """Return the files that a run's configuration names, one or a list."""
    named = run.get(key) if run else None
    if isinstance(named, str):
        return (named,)
    return tuple(str(path) for path in named or ())
