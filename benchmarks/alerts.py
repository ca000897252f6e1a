"""Do rules of alerts tell of faults, and of nothing else? And what does a minute of a large fleet cost to judge?

Healthy fleets of 32 GPUs for nine hours get known faults (`simulator.faults`): each kind alone, in pairs, with samples missing for
minutes, with samples that come late, and with signals that nobody measures. Recall of a rule: of the faults that it has to tell of,
how many it did. Precision: of its alerts, how many told of something that was so. `alerts_precision` and `alerts_recall` are the
least of any rule; the table of all is printed, and kept in docs/alerts.md. A rule that lacks a signal has to be silent:
`alerts_blind_false` counts the alerts that should not have been told where signals are missing.

What a minute of a large fleet costs to judge is the question of `alert_load`.
"""

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import combinations
from multiprocessing import get_context
from pathlib import Path
from statistics import median

from loadfactor.books.books import Books
from loadfactor.config import choose_file
from loadfactor.insight.alerts.alert import Alert
from loadfactor.insight.alerts.replay import replay
from loadfactor.insight.alerts.rules import RULES
from loadfactor.simulator.faults.cases import Case, make_case
from loadfactor.simulator.faults.kinds import FAULTS
from loadfactor.simulator.faults.pick import NoRoomError
from loadfactor.simulator.faults.rows import write_settings
from loadfactor.simulator.faults.scene import Expectation
from loadfactor.simulator.faults.spoil import MISSING
from loadfactor.simulator.table_rows import TableBatch
from loadfactor.sources.base import Rows, Source
from loadfactor.units import MS_PER_MIN

NAME = "alerts"


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
    cases = list(list_cases(range(1 if quick else 2)))
    scores, blind = judge_all([named for named in cases if named[0] == "alone"][::4] if quick else cases)
    print(tabulate(scores))
    for score in (*scores.values(), *blind.values()):
        print(*score.notes, sep="\n", end="\n" if score.notes else "")
    known = [score for score in scores.values() if score.found + score.missed]
    return {
        "alerts_precision": min(score.precision for score in known),
        "alerts_recall": min(score.recall for score in known),
        "alerts_blind_false": float(sum(score.false for score in blind.values())),
    }


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
    """Every case with what it is of: alone, pairs, gaps, late or missing. What has no room in the fleet of a seed is left out."""
    kinds = list(FAULTS)
    pairs = list(combinations(kinds, 2))
    for seed in seeds:
        plan = [("healthy", (), {})]
        plan += [("alone", (kind,), {}) for kind in kinds]
        plan += [("pairs", pair, {}) for pair in pairs[seed % 7 :: 7]]
        plan += [("gaps", (kind,), {"has_gaps": True}) for kind in kinds[seed % 2 :: 2]]
        plan += [("late", (kind,), {"is_late": True}) for kind in kinds[seed % 3 :: 3]]
        for number, missing in enumerate(MISSING):
            plan += [("missing", (kind,), {"missing": missing}) for kind in kinds[(seed + number) % 4 :: 4]]
        for number, (what, faults, spoilt) in enumerate(plan):
            try:
                yield what, make_case(1000 * seed + number, faults, **spoilt)
            except NoRoomError:
                continue


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
