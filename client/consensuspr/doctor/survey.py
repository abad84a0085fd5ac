"""Going through all rows once: what is wrong with them, and which problems they name."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from consensuspr.client.training import ProblemIds, prompt_digest
from consensuspr.client.verl.sample import Sample
from consensuspr.doctor.census import Census, Side, Tally
from consensuspr.doctor.questions import Question, Questioner
from consensuspr.doctor.rows import RowFile, sample_of
from consensuspr.doctor.setup import ProgressBar
from consensuspr.errors import DataError, InputError, RewardServiceError

# Between two movements of the progress bar.
_BAR_ROWS = 64


@dataclass(slots=True)
class SideCount:
    """The rows of one side.

    Attributes:
        files: that were named.
        rows: in all files that could be read.
        bad_rows: that no reward can be given for, as they are.
        bad_files: that cannot be read, with the reason.
    """

    files: int = 0
    rows: int = 0
    bad_rows: Tally = field(default_factory=Tally)
    bad_files: list[str] = field(default_factory=list)


class Survey:
    """Reads the files of both sides.

    Args:
        id_format: ``problem_id_format`` of the reward.
        prompt_key: column of the prompts.
        questioner: who asks the server; None where it cannot be asked.
    """

    def __init__(self, id_format: str, prompt_key: str, questioner: Questioner | None) -> None:
        self.census = Census()
        self.sides = {side: SideCount() for side in Side}
        self.server_error: RewardServiceError | None = None
        self._prompt_key = prompt_key
        self._questioner = questioner
        # One for all files: a worker sees samples of training and validation.
        self._ids = ProblemIds(id_format)

    def run(self, files: Mapping[Side, Sequence[str]], progress: ProgressBar) -> None:
        """Read all rows of all files."""
        found = {
            side: [opened for path in files[side] if (opened := self._file(side, path))]
            for side in Side
        }
        total = sum(rows for some in found.values() for _, rows in some)
        with progress("reading", total, "rows") as advance_to:
            done = 0
            for side, some in found.items():
                for file, rows in some:
                    self._read(side, file, partial(_advance, advance_to, done))
                    done += rows
        self._finish()

    def _file(self, side: Side, path: str) -> tuple[RowFile, int] | None:
        count = self.sides[side]
        count.files += 1
        file = RowFile(Path(os.path.expanduser(path)), self._prompt_key)
        try:
            if "://" in path:
                raise DataError(path, None, "is not on this machine, and was not looked at")
            return file, file.num_rows()
        except DataError as error:
            count.bad_files.append(str(error))
            return None

    def _read(self, side: Side, file: RowFile, advance_to: Callable[[int], None]) -> None:
        count = self.sides[side]
        before = count.rows
        try:
            for number, row in enumerate(file.rows(), 1):
                count.rows += 1
                place = f"{file.path.name} row {number}"
                try:
                    self._note(side, sample_of(row, self._prompt_key), place)
                except InputError as error:
                    count.bad_rows.add(f"{place}: {error}")
                if number % _BAR_ROWS == 0:
                    advance_to(number)
            advance_to(count.rows - before)
        except DataError as error:
            count.bad_files.append(str(error))

    def _note(self, side: Side, sample: Sample, place: str) -> None:
        """Take a row in.

        Raises:
            InputError: it cannot be rewarded as it is.
        """
        prompt = _checked_prompt(sample.prompt)
        rollout = sample.rollout("", self._ids)
        new = self.census.note(
            side, rollout.problem_id, prompt_digest(prompt), rollout.ground_truth, place
        )
        if new and self._questioner is not None:
            try:
                self._questioner.ask(Question(side, rollout, place, sample.split))
            except RewardServiceError as error:
                self._give_up(error)

    def _finish(self) -> None:
        if self._questioner is not None:
            try:
                self._questioner.finish()
            except RewardServiceError as error:
                self._give_up(error)

    def _give_up(self, error: RewardServiceError) -> None:
        """Ask no more; one failure is enough, and the rows can still be read."""
        self.server_error = error
        self._questioner = None


def _advance(advance_to: Callable[[int], None], before: int, read: int) -> None:
    advance_to(before + read)


def _checked_prompt(prompt: object) -> str | Sequence[Mapping[str, object]]:
    if isinstance(prompt, str) and prompt:
        return prompt
    if isinstance(prompt, list) and prompt and all(isinstance(m, Mapping) for m in prompt):
        return prompt
    raise InputError(f"the prompt must be chat messages, got {str(prompt)[:80]!r}")
