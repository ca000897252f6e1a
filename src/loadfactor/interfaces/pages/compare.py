"""The page of `loadfactor compare`: which of two runs is better by how much in money, why, and what differs first."""

from shlex import quote
from typing import Final

from loadfactor.base.request import make_request
from loadfactor.books.books import Books
from loadfactor.insight.comparison import COMPARED, UNIT_COSTS, ComparedRun, ComparedValue, RunComparison, compare_runs
from loadfactor.insight.diagnosis.diagnose import Progress
from loadfactor.interfaces.document import DataTable, Document, Section, Suggestion
from loadfactor.interfaces.formats import UNKNOWN, instant, percent
from loadfactor.interfaces.functions import Page
from loadfactor.interfaces.pages.readings import basis_text, write_row
from loadfactor.interfaces.requests import RunsRequest
from loadfactor.interfaces.tables import col, table
from loadfactor.metrics import metric

_GROUPS: Final = (
    ("Money", ("money",)),
    ("Speed", ("work",)),
    ("Fullness", ("fullness", "signals", "energy")),
)
"""Tables of the page, by the topics of their metrics."""
MOST_CAUSES, MOST_ROWS = 5, 5
HOURS: Final = "GPU-hours"
SHOWN: Final = 1.01
"""Smaller ratios are no difference."""


def build_page(request: RunsRequest) -> Document:
    """The comparison of a request."""
    from loadfactor.interfaces.progress import ProgressBar

    with ProgressBar() as bar:
        return compare_books(request, request.books, bar)


def compare_books(request: RunsRequest, books: Books, progress: Progress) -> Document:
    """The page of two runs by these books. Raises InputError where they do not know one of them."""
    names = (request.first, request.second)
    found = compare_runs(books, names, request.window(books), request.zone, request.basis, progress)
    return build_comparison(found)


def compare(first: str, second: str, **given: object) -> Page:
    """The answer of `loadfactor compare` as a page.

    Arguments:
        first, second: jobs, experiments, teams, or weeks as 2026-W41.
        start, end, last, timezone, basis, store: which books, when, and in which kind of money.
    """
    return Page(build_page(make_request(RunsRequest, {"first": first, "second": second, **given})))


def build_comparison(found: RunComparison) -> Document:
    """The sentence, what differs first, and every metric that one of the two has."""
    first, second = found.first, found.second
    sections = []
    ranked = _rank(found)
    if ranked:
        sections.append(Section("What differs first", tables=(_tabulate(found, ranked),)))
    for title, topics in _GROUPS:
        rows = [value for value in found.values if metric(value.metric).topic in topics]
        if rows:
            sections.append(Section(title, tables=(_tabulate(found, rows),)))
    sections.append(_list_causes(found))
    spans = "; ".join(f"{run.kind} {run.name}: {instant(run.start)} to {instant(run.end)}" for run in (first, second))
    readings = [run.reading(name) for run in (first, second) for name in COMPARED]
    return Document(
        say_better(found),
        tuple(section for section in sections if section.tables or section.lead),
        f"{spans}. {basis_text(readings)}".rstrip(),
        notes=_list_unknown(found),
        data=found,
    )


def say_better(found: RunComparison) -> str:
    """Which one is better by how much in money for a unit, and why, as far as anybody can say."""
    first, second = found.first, found.second
    if found.by is None:
        return f"Nobody can say which of {first.name} and {second.name} is better in money: {_say_lacking(found)}."
    both = [first.reading(found.by), second.reading(found.by)]
    title, (one, other, saves) = write_row([*both, both[0]._replace(value=found.saves)])
    unit = title.partition(" (")[0].lower()
    if found.better is None or found.saves is None:
        return f"{first.name} and {second.name} have the same {unit}: {one} and {other}."
    winner, loser, low, high = (
        (first, second, one, other) if found.better == first.name else (second, first, other, one)
    )
    less = percent(found.saves / (loser.value(found.by) or 1.0))
    return f"{winner.name} is better: {low} {unit[5:]} instead of {high}, {saves} ({less}) less{_say_why(found, winner, loser)}."


def _say_lacking(found: RunComparison) -> str:
    made = [value for value in found.values if value.metric in UNIT_COSTS]
    if not made:
        return "no unit of what they made has a cost"
    lacking = found.first if made[0].first is None else found.second
    return f"the {metric(made[0].metric).title.lower()} of {lacking.name} is not known"


def _say_why(found: RunComparison, winner: ComparedRun, loser: ComparedRun) -> str:
    if found.why is None:
        return ""
    why = f", above all by its {_say_both(winner, loser, found.why)}"
    shown = f" ({_say_both(winner, loser, found.shown_by)})" if found.shown_by else ""
    cause = f"; {loser.name} lost most to “{found.first_cause}”" if found.first_cause else ""
    return f"{why}{shown}{cause}"


def _say_both(winner: ComparedRun, loser: ComparedRun, name: str) -> str:
    title, (one, other) = write_row([winner.reading(name), loser.reading(name)])
    words, _, unit = title.removesuffix(")").partition(" (")
    words = words if words[1:2].isupper() else f"{words[0].lower()}{words[1:]}"
    unit = "" if winner.reading(name).currency else f" {unit}".rstrip()
    return f"{words}, {one} instead of {other}{unit}"


def _rank(found: RunComparison) -> list[ComparedValue]:
    """The metrics with a better direction that differ most, as ratios."""
    known = [v for v in found.values if metric(v.metric).better != "neither" and v.unit != HOURS and _differ(v) > SHOWN]
    apart = {(v.first, v.second): v for v in reversed(known)}  # activity by one signal alone is that signal
    in_order = [v for v in known if apart[v.first, v.second] is v]
    return sorted(in_order, key=_differ, reverse=True)[:MOST_ROWS]


def _differ(value: ComparedValue) -> float:
    return max(value.ratio, 1 / value.ratio) if value.ratio else 1.0


def _tabulate(found: RunComparison, values: list[ComparedValue]) -> DataTable:
    rows = []
    for value in values:
        title, cells = write_row([run.reading(value.metric) for run in (found.first, found.second)])
        rows.append((title, *cells, value.ratio))
    return table(rows, "metric", found.first.name, found.second.name, col("second ÷ first", style="number"))


def _list_causes(found: RunComparison) -> Section:
    """The causes of lost time of both, those with most GPU-hours first."""
    causes = {cause.cause: cause.title for run in (found.first, found.second) for cause in run.causes}

    def stake(run: ComparedRun, cause: str) -> str:
        of = next((c for c in run.causes if c.cause == cause), None)
        held = run.value("allocated_gpu_hours")
        return UNKNOWN if of is None or not held else f"up to {percent(of.gpu_hours.high / held)}"

    rows = [(title, *(stake(run, cause) for run in (found.first, found.second))) for cause, title in causes.items()]
    ranked = table(rows[:MOST_CAUSES], "cause", found.first.name, found.second.name) if rows else None
    lead = "Of the held time, what each cause may have taken; they overlap." if rows else ""
    suggestions = [
        Suggestion(f"loadfactor diagnose --job {quote(run.name)}", f"the evidence of {run.name}")
        for run in (found.first, found.second)
        if run.kind == "job" and run.causes
    ]
    return Section("Why GPUs were not fuller", lead, tables=(ranked,) if ranked else (), suggestions=suggestions)


def _list_unknown(found: RunComparison) -> tuple[str, ...]:
    """Why a token may not be a token, and what one of the two lacks."""
    other = found.better_by_flops
    apart = (
        [
            f"A token of {found.better} needs fewer FLOPs than one of {other}: by cost per model exaFLOP {other} is better"
        ]
        if found.better and other and other != found.better
        else []
    )
    lacking = [
        f"{metric(v.metric).title} of {(found.first if v.first is None else found.second).name} is not known"
        for v in found.values
        if v.first is None or v.second is None
    ]
    rest = [
        f"{run.not_looked_at:,} more jobs of {run.name} were not diagnosed"
        for run in (found.first, found.second)
        if run.not_looked_at
    ]
    return (*apart, *lacking, *rest)
