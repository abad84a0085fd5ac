"""The dataset index: problems by id, their matchers compiled when first needed.

Immutable once made, and safe to share between threads.  Its memory is that of one packed
record a problem (``index_image.py``) and of a bounded cache of matchers
(``index_cache.py``).  A process that serves a dataset with several workers loads it once,
saves a snapshot, and lets each worker open that: they share its pages.

What deriving costs, what the digest covers and what is refused is described in
``docs/datasets.md``.
"""

from __future__ import annotations

import logging
import os
import time

from consensuspr.core import EXPANSION_VERSION, NORMAL_FORM_VERSION, Matcher
from consensuspr.data import DataError, Node, OnError, ReadReport, read_problem_rows
from consensuspr.errors import InputError
from consensuspr.scoring.deriving import DeriveReport, derive_missing
from consensuspr.scoring.index_build import Derive, IndexInfo, build_index
from consensuspr.scoring.index_cache import MatcherCache
from consensuspr.scoring.index_image import IndexImage, is_image, map_image
from consensuspr.scoring.index_record import read_head, read_nodes, read_patterns
from consensuspr.scoring.types import AnswerRule

__all__ = ["DatasetIndex", "Derive", "Entry", "IndexInfo"]

_log = logging.getLogger(__name__)

# Entries kept ready, some 2 MB; a step of a large training run has fewer problems.
RECENT_ENTRIES = 8192


class Entry:
    """One problem of an index; cheap to make, reads its parts when they are asked for."""

    __slots__ = ("_index", "_position", "data_source", "ground_truth", "num_nodes", "problem_id")

    def __init__(self, index: DatasetIndex, problem_id: str, position: int) -> None:
        """Made by :meth:`DatasetIndex.entry`."""
        head = read_head(index.image.record(position))
        self.problem_id = problem_id
        self.ground_truth: str | None = head.ground_truth
        self.data_source: str = head.data_source
        self.num_nodes: int = head.num_nodes
        self._index = index
        self._position = position

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes in order, with the derived forms in use and without unknown keys."""
        return read_nodes(self._index.image.record(self._position))

    @property
    def matcher(self) -> Matcher:
        """The matcher of the nodes, from the cache or compiled now (up to a millisecond)."""
        key = (self._index.digest, self._position)
        return self._index.cache.get(key, self._compile)

    def _compile(self) -> Matcher:
        return Matcher(read_patterns(self._index.image.record(self._position)))


class DatasetIndex:
    """A dataset ready for scoring; made by :meth:`load` or :meth:`open`.

    Attributes:
        name: what requests call the dataset.
        digest: ``sha256:…`` over all that decides a score.
        info: counts.
        answer_rule: the rule that the dataset names, None where it names none.
        normal_form_version: version of the normal form that the digest covers.
        cache: the matchers, possibly shared with other indexes.
        image: the packed records.
    """

    def __init__(self, image: IndexImage, name: str, cache: MatcherCache | None = None) -> None:
        """Wrap an image; use :meth:`load` or :meth:`open` instead."""
        header = image.header
        rule = header["answer_rule"]
        self.name = name
        self.image = image
        self.digest: str = header["digest"]
        self.normal_form_version: str = header["normal_form_version"]
        self.answer_rule = None if rule is None else AnswerRule(rule)
        self.info = IndexInfo(**header["counts"])
        self.cache = MatcherCache() if cache is None else cache
        # Dict operations are atomic: two threads at worst make the same entry twice.
        self._recent: dict[str, Entry] = {}

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        name: str = "default",
        derive: Derive = "missing",
        on_error: OnError = "stop",
        cache: MatcherCache | None = None,
        processes: int | None = None,
    ) -> DatasetIndex:
        """Read a dataset file, or map one that is prepared.

        Args:
            path: JSONL, gzip'd JSONL or Parquet; or a snapshot, which has to be made with the
                same ``derive`` (:func:`prepare_dataset`).
            name: what requests call the dataset.
            derive: ``"missing"`` derives equal forms for nodes that have none stored,
                ``"stored"`` uses what the file has, ``"off"`` matches expressions as
                written only.  The digest tells them apart wherever they differ.
            on_error: ``"stop"`` raises at the first bad row, ``"skip"`` counts it.
            cache: matchers, where several indexes share one cache.
            processes: child processes for deriving at most; None for as many as cores.

        Raises:
            DataError: the file or a row of it is bad; a snapshot is damaged, or made for
                another normal form, for other derived forms or with another ``derive``.
            InputError: derive is none of the three, or the temporary directory has no room for
                a large dataset.
        """
        if derive not in ("missing", "stored", "off"):
            raise InputError(f"derive must be 'missing', 'stored' or 'off', got {derive!r}")
        start = time.monotonic()
        if is_image(path):
            return cls._open_prepared(path, name, derive, cache)
        read, derived = ReadReport(), DeriveReport()
        rows = read_problem_rows(path, on_error, read)
        if derive == "missing":
            rows = derive_missing(rows, derived, processes)
        problems = (problem for problem, _ in rows)
        index = cls(IndexImage(build_index(os.fspath(path), problems, read, derive)), name, cache)
        if derived.nodes:
            _log.info(
                "dataset %s: derived %d forms for %d nodes without stored ones in %.1f s",
                name, derived.forms, derived.nodes, derived.seconds,
            )  # fmt: skip
        _log.info(
            "dataset %s: %d problems, %d nodes, %d expressions and %d derived forms "
            "from %s in %.1f s, digest %s",
            name, index.info.num_problems, index.info.num_nodes, index.info.num_expressions,
            index.info.num_derived, os.fspath(path), time.monotonic() - start, index.digest,
        )  # fmt: skip
        return index

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        name: str = "default",
        cache: MatcherCache | None = None,
    ) -> DatasetIndex:
        """Map a snapshot that :meth:`save` wrote; processes that do so share its memory.

        Raises:
            DataError: no snapshot, damaged, or made for another normal form or for other
                derived forms.
        """
        image = map_image(path)
        for what, key, ours in (
            ("normal form", "normal_form_version", NORMAL_FORM_VERSION),
            ("derived forms", "expansion_version", EXPANSION_VERSION),
        ):
            made_for = image.header[key]
            if made_for != ours:
                image.close()
                reason = f"was made for {what} {made_for}, this is {ours}; make it anew"
                raise DataError(os.fspath(path), None, reason)
        return cls(image, name, cache)

    @classmethod
    def _open_prepared(
        cls,
        path: str | os.PathLike[str],
        name: str,
        derive: Derive,
        cache: MatcherCache | None,
    ) -> DatasetIndex:
        start = time.monotonic()
        index = cls.open(path, name=name, cache=cache)
        made_with = index.image.header["derive"]
        if made_with != derive:
            index.close()
            reason = f"was made with derive {made_with!r}, and {derive!r} is asked for"
            raise DataError(os.fspath(path), None, reason)
        _log.info(
            "dataset %s: %d problems mapped from %s in %.2f s, digest %s",
            name, len(index), os.fspath(path), time.monotonic() - start, index.digest,
        )  # fmt: skip
        return index

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a snapshot, complete or not at all; a mapped older one stays usable.

        Raises:
            InputError: the file cannot be written.
        """
        self.image.save(path)

    def entry(self, problem_id: str) -> Entry | None:
        """Return the problem with this id, None where the dataset has none."""
        entry = self._recent.get(problem_id)
        if entry is None:
            position = self.image.find(problem_id)
            if position is None:
                return None
            if len(self._recent) >= RECENT_ENTRIES:
                self._recent.clear()
            entry = self._recent[problem_id] = Entry(self, problem_id, position)
        return entry

    def data_source(self, problem_id: str) -> str | None:
        """Return the data source of a problem, None where the dataset has no such problem."""
        entry = self.entry(problem_id)
        return None if entry is None else entry.data_source

    def __contains__(self, problem_id: str) -> bool:
        """Say whether the dataset has a problem."""
        return self.image.find(problem_id) is not None

    def __len__(self) -> int:
        """Return the number of problems."""
        return self.image.num_problems

    def problem_ids(self) -> list[str]:
        """Return all ids, sorted by their UTF-8 bytes."""
        return [self.image.problem_id(position) for position in range(len(self))]

    @property
    def nbytes(self) -> int:
        """Bytes of the packed problems; matchers come on top, bounded by the cache."""
        return self.image.nbytes

    def close(self) -> None:
        """Release a mapped snapshot; the index must not be used afterwards."""
        self.image.close()
