"""Do rules of alerts tell of faults, and of nothing else?

Healthy fleets of 32 GPUs for nine hours get known faults (`tests.faults`): each kind alone, in pairs, with samples missing for
minutes, with samples that come late, with signals that nobody measures, and five at once in fleets that differ (`VARIED`). Recall
of a rule: of the faults that it has to tell of, how many it did. Precision: of its alerts, how many told of something that was so.
`alerts_precision` and `alerts_recall` are the least of any rule; the table of all is printed, and kept in docs/alerts.md. A rule
that lacks a signal has to be silent: `alerts_blind_false` counts the alerts that should not have been told there.

`python -m benchmarks.alerts 9101 9102 --varied 9106` judges the cases of these seeds. What a minute of a large fleet costs to judge
is the question of `alert_load`.
"""

import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations
from multiprocessing import get_context
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from tests.faults.cases import MISSING, Case, make_case
from tests.faults.healthy import write_settings
from tests.faults.kinds import FAULTS, NoRoomError
from tests.faults.scene import Expectation

from loadfactor.base.units import MS_PER_MIN
from loadfactor.books.books import Books
from loadfactor.insight.alerts.alert import Alert
from loadfactor.insight.alerts.judge import replay
from loadfactor.insight.alerts.rules import RULES
from loadfactor.settings.config import choose_file
from loadfactor.simulator.table_rows import TableBatch
from loadfactor.sources.base import Rows, Source

NAME = "alerts"
Plan = tuple[str, tuple[str, ...], Mapping[str, Any]]
VARIED: tuple[Mapping[str, Any], ...] = (
    {"step_s": 10},
    {"step_s": 30},
    {"more_nodes": 5},
    {"plain_nodes": 2},
    {},
    {"more_nodes": 3, "step_s": 30, "plain_nodes": 3, "has_gaps": True},
)
"""Samples more often, more nodes, nodes of which GPUs have no profiling counters, and all of that with gaps."""


@dataclass
class Score:
    """What one rule told, and should have told."""

    right: int = 0
    false: int = 0
    found: int = 0
    missed: int = 0
    delays_min: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def precision(self) -> float:
        """Of its alerts, those that were right."""
        return self.right / (self.right + self.false) if self.right + self.false else 1.0

    @property
    def recall(self) -> float:
        """Of the faults, those that it told of."""
        return self.found / (self.found + self.missed) if self.found + self.missed else float("nan")


def run(quick: bool) -> dict[str, float]:
    """The least precision and recall of any rule, with the table of all printed."""
    cases = list(list_cases([0]))
    scores, blind = judge_and_print(cases[:22:4] if quick else [*cases, *list_varied(1, 18)])
    known = [score for score in scores.values() if score.found + score.missed]
    return {
        "alerts_precision": min(score.precision for score in known),
        "alerts_recall": min(score.recall for score in known),
        "alerts_blind_false": float(sum(score.false for score in blind.values())),
    }


def judge_and_print(named: Sequence[tuple[str, Case]]) -> tuple[dict[str, Score], dict[str, Score]]:
    """The scores as `judge_all`; prints their table, and what was false or missed."""
    scores, blind = judge_all(named)
    print(tabulate(scores))
    for score in (*scores.values(), *blind.values()):
        print(*score.notes, sep="\n", end="\n" if score.notes else "")
    return scores, blind


def judge_all(named: Sequence[tuple[str, Case]]) -> tuple[dict[str, Score], dict[str, Score]]:
    """The scores by rule of all cases but those with missing signals, and of these; judged on every core."""
    scores: dict[str, Score] = {}
    blind: dict[str, Score] = {}
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        for (what, case), alerts in zip(named, pool.map(judge_case, [case for _, case in named]), strict=True):
            count_alerts(case, alerts, blind if what == "missing" else scores)
    return scores, blind


def tabulate(scores: Mapping[str, Score]) -> str:
    """A table in Markdown: a row for each rule."""
    lines = [
        "| rule | faults | found | recall | alerts | right | precision | fires after |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for rule in RULES:
        score = scores.get(rule.name, Score())
        after = f"{median(score.delays_min):.0f} min" if score.delays_min else "—"
        faults, told = score.found + score.missed, score.right + score.false
        lines.append(
            f"| {rule.name} | {faults} | {score.found} | {score.recall:.3f} | {told} | {score.right} |"
            f" {score.precision:.3f} | {after} |"
        )
    return "\n".join(lines)


def list_cases(seeds: Sequence[int]) -> Iterator[tuple[str, Case]]:
    """Cases with what they are of: alone (each kind), healthy, and some drawn of pairs, gaps, late and missing.

    What has no room in the fleet of a seed is left out.
    """
    kinds = list(FAULTS)
    for seed in seeds:
        rng = Random(seed)
        plan: list[Plan] = [("alone", (kind,), {}) for kind in kinds]
        plan += [("healthy", (), {})]
        plan += [("pairs", pair, {}) for pair in rng.sample(list(combinations(kinds, 2)), 14)]
        plan += [("gaps", (kind,), {"has_gaps": True}) for kind in rng.sample(kinds, 6)]
        plan += [("late", (kind,), {"is_late": True}) for kind in rng.sample(kinds, 4)]
        for missing in MISSING:
            plan += [("missing", (kind,), {"missing": missing}) for kind in rng.sample(kinds, 2)]
        yield from _make_cases(seed, plan)


def list_varied(seed: int, count: int) -> Iterator[tuple[str, Case]]:
    """Cases of five faults in other fleets: see `VARIED`."""
    rng, kinds = Random(seed), list(FAULTS)
    drawn = [(tuple(rng.sample(kinds, 5)), VARIED[number % len(VARIED)]) for number in range(count)]
    yield from _make_cases(seed, [("varied", faults, options) for faults, options in drawn])


def _make_cases(seed: int, plan: Sequence[Plan]) -> Iterator[tuple[str, Case]]:
    for number, (what, faults, options) in enumerate(plan):
        with suppress(NoRoomError):
            yield what, make_case(1000 * seed + number, faults, **options)


def fill_books(folder: Path, case: Case) -> Books:
    """The books of a case, what is late included, and its settings."""
    settings = folder / "loadfactor.toml"
    settings.write_text(write_settings(case.scene), encoding="utf-8")
    choose_file(settings)
    books = Books.open(folder / "books", create=True)
    _add(books, case.rows(), "first")
    if case.late is not None:
        _add(books, case.late_rows(), "late")
    return books


def _add(books: Books, batches: Iterable[TableBatch], name: str) -> None:
    rows = [Rows(batch.table, batch.data, "simulated") for batch in batches]
    source = Source("simulated", lambda _paths: (), lambda _paths, _options: iter(rows))
    books.add_rows(source, iter(rows), name)


def judge_case(case: Case) -> list[Alert]:
    """What fires in a case, replayed."""
    with tempfile.TemporaryDirectory() as folder:
        books = fill_books(Path(folder), case)
        scene = case.scene
        return replay(books, RULES, (scene.at_ms(0), scene.at_ms(scene.minutes)))


def count_alerts(case: Case, alerts: Sequence[Alert], scores: dict[str, Score]) -> None:
    """Add to the scores what the alerts of a case told."""
    judged = {rule.name for rule in RULES}
    who = f"seed {case.seed} {'+'.join(case.kinds) or 'healthy'}"
    told: list[tuple[Alert, Expectation]] = []
    for alert in alerts:
        score = scores.setdefault(alert.rule, Score())
        explained = case.explain(alert.rule, alert.by, alert.start_ms, alert.end_ms)
        told += [(alert, expected) for expected in explained]
        if explained:
            score.right += 1
        else:
            score.false += 1
            minutes = [(at - case.scene.start_ms) // MS_PER_MIN for at in (alert.start_ms, alert.end_ms) if at]
            score.notes.append(f"false  {alert.rule}, {who}: {dict(alert.by)} {minutes} {alert.evidence}")
    for expected in case.expected:
        if expected.rule in judged and expected.is_certain:
            score = scores.setdefault(expected.rule, Score())
            fired = [alert.fired_ms or alert.start_ms for alert, of in told if of is expected]
            if fired:
                score.found += 1
                score.delays_min.append(max(min(fired) - case.scene.at_ms(expected.minutes[0]), 0) / MS_PER_MIN)
            else:
                score.missed += 1
                about = {name: sorted(of)[:3] for name, of in expected.about.items() if name in ("job", "team", "node")}
                score.notes.append(f"missed {expected.rule}, {who}: {about} {expected.minutes}")


def main(arguments: Sequence[str]) -> None:
    """Judge the cases of seeds, and after `--varied` those of other fleets."""
    where = arguments.index("--varied") if "--varied" in arguments else len(arguments)
    cases = list(list_cases([int(seed) for seed in arguments[:where]]))
    for seed in arguments[where + 1 :]:
        cases += list_varied(int(seed), 60)
    judge_and_print(cases)


if __name__ == "__main__":
    main(sys.argv[1:])
