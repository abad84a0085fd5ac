"""The extractor by rules: read, cluster, count, describe (paper section 3.2, Stage 2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from consensusbench.extraction.final import states_answer
from consensusbench.extraction.rules.clusters import Cluster, add_phrases, cluster
from consensusbench.extraction.rules.conclusions import read_conclusions
from consensusbench.extraction.rules.phrases import Phrase, numbers_of, read_phrases
from consensusbench.extraction.rules.settings import RulesSettings
from consensusbench.extraction.same import forms_beyond, normal_form
from consensusbench.extraction.support import find_mentions, reach_of
from consensusbench.extraction.types import (
    Candidate,
    CorrectRollout,
    Dropped,
    Extraction,
    NodeType,
)
from consensuspr.core import Matcher
from consensuspr.data import Problem, Row


@dataclass(frozen=True, slots=True)
class RulesExtractor:
    """Finds what correct rollouts state alike, by rules alone: offline and deterministic."""

    settings: RulesSettings = field(default_factory=RulesSettings)
    name: str = "rules"

    def provenance(self) -> Row:
        return self.settings.provenance()

    def extract(self, problem: Problem, rollouts: Sequence[CorrectRollout]) -> Extraction:
        """Return the conclusions that enough rollouts state, in order of their position.

        Args:
            problem: its text and ground truth are used.
            rollouts: correct ones.
        """
        clusters = cluster([read_conclusions(one, self.settings) for one in rollouts])
        clusters += self._phrased(clusters, problem, rollouts)
        counted, rare = self._promising(clusters)
        drafts = [_beyond(problem.problem, *self._expressions(one)) for one in counted]
        groups = [(*written, *derived) for written, derived in drafts]
        num_models = len({one.model for one in rollouts})
        candidates: list[Candidate] = []
        dropped = [self._unsupported(one, len(one.rollouts)) for one in rare]
        for known, (written, derived), mentions in zip(
            counted, drafts, find_mentions(groups, rollouts), strict=True
        ):
            reach = reach_of(mentions, rollouts)
            if reach.support < self.settings.min_support:
                dropped.append(self._unsupported(known, reach.support))
                continue
            if reach.num_models < min(self.settings.min_models, num_models):
                detail = f"stated by {reach.num_models} of the {num_models} models"
                dropped.append(
                    Dropped("extract", "few models", detail, written[0], written, reach.support)
                )
                continue
            candidates.append(
                Candidate(
                    label=written[0],
                    type=_type_of(known),
                    expressions=written,
                    derived=derived,
                    support=reach.support,
                    num_models=reach.num_models,
                    position=round(reach.position, 4),
                    is_final=_is_final(known, written, problem.ground_truth),
                )
            )
        candidates.sort(key=lambda one: (one.position, one.label))
        return Extraction(tuple(candidates), tuple(dropped))

    def _phrased(
        self, clusters: list[Cluster], problem: Problem, rollouts: Sequence[CorrectRollout]
    ) -> list[Cluster]:
        """Add phrases to the clusters and return what bare numbers conclude."""
        given = numbers_of(problem.problem)
        limit = self.settings.max_statements
        kept = [
            [phrase for phrase in read_phrases(one.response, limit) if self._counts(phrase, given)]
            for one in rollouts
        ]
        return add_phrases(clusters, kept)

    def _counts(self, phrase: Phrase, given: frozenset[object]) -> bool:
        wanted = self.settings.values if phrase.is_bare else self.settings.phrases
        return wanted and phrase.value not in given

    def _promising(self, clusters: Iterable[Cluster]) -> tuple[list[Cluster], list[Cluster]]:
        """Return the clusters whose support is worth counting, and those that come after.

        What one rollout alone wrote may still be found in others by an equal form.
        """
        ranked = sorted(clusters, key=lambda one: -len(one.rollouts))
        limit = self.settings.max_candidates
        return ranked[:limit], ranked[limit:]

    def _expressions(self, known: Cluster) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the wordings of a conclusion, and equal forms that were not seen."""
        written = _distinct(known.wordings.most_common(), self.settings.max_wordings)
        phrases = _distinct(known.phrases.most_common(), self.settings.max_phrases)
        written = (*written, *phrases)[: self.settings.max_forms]
        derived = forms_beyond(written, limit=self.settings.max_forms - len(written))
        return written, derived

    def _unsupported(self, known: Cluster, support: int) -> Dropped:
        written = _distinct(known.wordings.most_common(), self.settings.max_wordings)
        return Dropped(
            "extract",
            "unsupported",
            f"stated by {support} of the rollouts, {self.settings.min_support} are needed",
            written[0],
            written,
            support,
        )


def _beyond(
    text: str, written: tuple[str, ...], derived: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the forms that the problem's text does not hold, so that none counts as support.

    A conclusion whose label it holds is returned whole: refinement drops it and says why.
    """
    held = Matcher([[form] for form in (*written, *derived)]).match(text)
    if held[0]:
        return written, derived
    own = tuple(form for form, is_held in zip(written, held, strict=False) if not is_held)
    rest = zip(derived, held[len(written) :], strict=True)
    return own, tuple(form for form, is_held in rest if not is_held)


def _distinct(wordings: Iterable[tuple[str, int]], limit: int) -> tuple[str, ...]:
    """Return the first wordings whose normal forms differ."""
    kept: dict[str, str] = {}
    for wording, _ in wordings:
        if len(kept) == limit:
            break
        kept.setdefault(normal_form(wording), wording)
    return tuple(kept.values())


def _type_of(known: Cluster) -> NodeType:
    if known.value is None and not any("=" in wording for wording in known.wordings):
        return "proposition"  # an inequality, a congruence
    return "value" if normal_form(min(known.wordings)).replace(".", "").isdecimal() else "equation"


def _is_final(known: Cluster, written: Sequence[str], ground_truth: str | None) -> bool:
    return any(states_answer(text, ground_truth) for text in written[:4])
