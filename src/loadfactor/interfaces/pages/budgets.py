"""The page of `loadfactor budget`: where each budget stands, what it comes to, when its thresholds are reached, unusual days."""

from datetime import date
from decimal import Decimal

from loadfactor.books.budgets import BudgetReview, ProjectReview
from loadfactor.interfaces.document import Assumption, DataTable, Document, Section
from loadfactor.interfaces.formats import money, number, percent
from loadfactor.interfaces.pages.bridge import link_bridge
from loadfactor.interfaces.requests import BudgetRequest, ProjectRequest
from loadfactor.interfaces.tables import col, table
from loadfactor.money.project_cost import ProjectCost
from loadfactor.money.spending import BudgetStatus


def build_project_page(request: ProjectRequest) -> Document:
    """All projects of the settings."""
    return build_projects(request.books.projects(request.basis))


def build_projects(review: ProjectReview) -> Document:
    """Every project, the one that goes furthest over its plan in the sentence on top."""
    worst = max(
        review.projects, key=lambda p: (p.over_plan_cost / p.planned_cost if p.planned_cost else 0, p.plan.name)
    )
    whole = _summarize_projects(review)
    return Document(
        headline=_say_worst(worst, review),
        subtitle=f"{review.basis.capitalize()} cost of the ledger in {review.currency}, beside [[project]] of loadfactor.toml.",
        sections=(
            *((Section("Projects", tables=(whole,)),) if len(review.projects) > 1 else ()),
            *(_describe_project(project, review.currency) for project in review.projects),
        ),
        assumptions=(
            Assumption("runs that are done", "training jobs that ended completed", "the scheduler's accounting"),
            Assumption("evaluation", "jobs whose purpose is evaluation", "tagging"),
            Assumption("staff", "as planned", "loadfactor.toml; it is in no books"),
        ),
        data=review,
    )


def _say_worst(project: ProjectCost, review: ProjectReview) -> str:
    total, planned = (_money(amount, review.currency) for amount in (project.expected_cost, project.planned_cost))
    spent = _money(project.spent_cost, review.currency)
    runs = f"{project.spending.runs_done} of {project.plan.runs} runs are done"
    if not project.spending.training.gpu_hours:
        return f"{project.plan.name} is planned at {planned}; the books have nothing of it yet."
    share = abs(project.over_plan_cost / project.planned_cost) if project.planned_cost else Decimal(0)
    beside = f"{percent(float(share))} {'over' if project.over_plan_cost > 0 else 'under'} its plan of {planned}"
    return f"{project.plan.name} comes to {total}, {beside}: {runs}, {spent} is spent."


def _summarize_projects(review: ProjectReview) -> DataTable:
    return table(
        review.projects,
        col("project", "plan.name"),
        col("runs", lambda project: f"{project.spending.runs_done} of {project.plan.runs}"),
        col("planned", lambda project: float(project.planned_cost), "money"),
        col("so far", lambda project: float(project.spent_cost), "money"),
        col("at its end", lambda project: float(project.expected_cost), "money"),
        col("over plan", lambda project: float(project.over_plan_cost), "money"),
        currency=review.currency,
    )


def _describe_project(project: ProjectCost, currency: str) -> Section:
    parts = [
        (part.name, part.planned_gpu_hours, part.planned_cost, part.spent_gpu_hours, part.spent_cost,
         part.expected_gpu_hours, part.expected_cost)
        for part in project.parts
    ]  # fmt: skip
    parts.append(("all", None, project.planned_cost, None, project.spent_cost, None, project.expected_cost))
    costs = table(
        parts,
        col("cost of"),
        col("GPU-h planned", lambda part: _hours(part[1]), "number"),
        col("planned", lambda part: float(part[2]), "money"),
        col("GPU-h so far", lambda part: _hours(part[3]), "number"),
        col("so far", lambda part: _number(part[4]), "money"),
        col("GPU-h at end", lambda part: _hours(part[5]), "number"),
        col("at its end", lambda part: float(part[6]), "money"),
        currency=currency,
    )
    price = f"{_money(project.price_per_gpu_hour, currency)} a held GPU-hour"
    each = number(float(project.gpu_hours_per_run))
    lead = f"{project.runs_left} runs to come, {project.method}: {each} GPU-hours each at {price}."
    if unpriced := project.spending.training.gpu_hours - project.spending.training.priced_gpu_hours:
        lead += f" {number(float(unpriced))} GPU-hours so far have no price; at its end they have this one."
    if project.spending.lost_gpu_hours:
        lead += f" {number(float(project.spending.lost_gpu_hours))} GPU-hours were in runs that did not complete."
    tables = [costs]
    if project.capital:
        shares = table(
            project.capital.items(),
            col("of owned GPU-hours"),
            col("at its end", lambda share: float(share[1]), "money"),
            currency=currency,
            note="the price of an owned GPU-hour, by what it consists of",
        )
        tables.append(shares)
    return Section(project.plan.name, lead, tables=tables)


def _money(amount: Decimal, currency: str) -> str:
    return money(float(amount), currency)


def _hours(hours: Decimal | None) -> float | str:
    return "" if hours is None else float(hours)


def build_budget_page(request: BudgetRequest) -> Document:
    """The budgets of the settings in a period."""
    review = request.books.budgets(request.month, request.basis, timezone=request.zone)
    return build_budgets(review, request.words)


def build_budgets(review: BudgetReview, store_words: str = "") -> Document:
    """Where all budgets stand, the one that is overspent most first in the sentence on top."""
    tables = (list_budgets(review), _list_thresholds(review))
    sections = [Section("Budgets", tables=tables[:1]), Section("Thresholds", tables=tables[1:])]
    unusual = _list_anomalies(review)
    if unusual is not None:
        sections.append(Section("Unusual days", tables=(unusual,)))
    teams = [status.budget.team for status in review.statuses if not status.budget.project]
    sections.append(Section(suggestions=tuple(link_bridge(store_words, team) for team in dict.fromkeys(teams))))
    return Document(
        headline=write_headline(review),
        subtitle=describe_source(review),
        sections=tuple(sections),
        notes=tuple(_list_notes(review, store_words)),
        data=review,
        is_no=any(status.left < 0 for status in review.statuses),
    )


def write_headline(review: BudgetReview) -> str:
    """How many budgets are overspent or will be, and the worst of them; what the report says, too."""
    over = [status for status in review.statuses if status.left < 0]
    coming = [s for s in review.statuses if s.left >= 0 and s.forecast and s.forecast.total > s.budget.amount]
    if over:
        worst = min(over, key=lambda s: (s.left / s.budget.amount, s.budget.label))
        spent, amount = _amount(worst.spent, review), _amount(worst.budget.amount, review)
        return f"{_count(over, review)} overspent: {_name(worst, review)} has spent {spent} of {amount}."
    if coming:
        worst = max(coming, key=lambda s: (_forecast(s) / s.budget.amount, s.budget.label))
        total, amount = _amount(_forecast(worst), review), _amount(worst.budget.amount, review)
        return f"{_count(coming, review)} not enough: {_name(worst, review)} comes to {total} of {amount}."
    if all(status.forecast is None for status in review.statuses):
        return "No budget is overspent; too little is known yet to forecast any."
    return "No budget is overspent, and by the forecast none will be."


def describe_source(review: BudgetReview) -> str:
    """The source of the amounts, and through which day they are complete."""
    costs = {status.budget.column for status in review.statuses}
    of = f"{' and '.join(sorted(costs))} of the bill" if review.source == "bill" else f"{review.basis} prices"
    last = f"days complete through {review.complete_through:%Y-%m-%d} ({review.timezone})"
    return f"Spent is what the statements of the period charge: {of}, {last}."


def list_budgets(review: BudgetReview) -> DataTable:
    """Each budget with what is spent, how fast, and what its period comes to."""
    return table(
        review.statuses,
        col("budget", lambda status: _name(status, review)),
        col("period", lambda status: name_period(status.period.first, status.budget.period)),
        col("amount", lambda status: float(status.budget.amount), "money"),
        col("spent", lambda status: float(status.spent), "money"),
        col("fixed", lambda status: float(status.fixed_spent), "money"),
        col("burn rate", lambda status: _number(status.burn_rate), "number"),
        col("forecast", lambda status: _number(status.forecast and status.forecast.total), "money"),
        col("left at end", lambda s: _number(s.forecast and s.budget.amount - s.forecast.total), "money"),
        currency=review.currency,
        note="burn rate: part of the amount spent ÷ part of the period that is complete",
    )


def name_period(first: date, kind: str) -> str:
    """A period as people call it.

    >>> name_period(date(2026, 10, 1), "month"), name_period(date(2026, 10, 1), "quarter"), name_period(date(2026, 1, 1), "year")
    ('2026-10', '2026 Q4', '2026')
    """
    if kind == "quarter":
        return f"{first.year} Q{(first.month + 2) // 3}"
    return f"{first:%Y-%m}" if kind == "month" else str(first.year)


def _list_thresholds(review: BudgetReview) -> DataTable:
    return table(
        [(status, threshold) for status in review.statuses for threshold in status.thresholds],
        col("budget", lambda of: _name(of[0], review)),
        col("threshold", lambda of: f"{number(float(of[1].percent))} %"),
        col("amount", lambda of: float(of[1].amount), "money"),
        col("reached", lambda of: _day(of[1].reached_on)),
        col("expected", lambda of: "" if of[1].reached_on else _day(of[1].expected_on)),
        currency=review.currency,
        note="expected: by the forecast, in this period",
    )


def _list_anomalies(review: BudgetReview) -> DataTable | None:
    """Days that cost far more than earlier ones like them; None where there is none."""
    anomalies = table(
        [(status, anomaly) for status in review.statuses for anomaly in status.anomalies],
        col("budget", lambda of: _name(of[0], review)),
        col("day", lambda of: f"{of[1].day:%a %Y-%m-%d}"),
        col("cost", lambda of: float(of[1].amount), "money"),
        col("usual", lambda of: float(of[1].usual), "money"),
        col("more", lambda of: float(of[1].impact), "money"),
        col("robust z", lambda of: _number(of[1].robust_z), "number"),
        col("beside", lambda of: of[1].basis),
        currency=review.currency,
        note="variable cost of complete days beside the median of earlier days; unusual from a robust z of 3.5",
    )
    return anomalies if anomalies.rows else None


def _list_notes(review: BudgetReview, store_words: str) -> list[str]:
    notes = []
    methods = sorted({status.forecast.method for status in review.statuses if status.forecast is not None})
    explained = {
        "by weekday": "by weekday: each day to come costs the median of the same weekday in the last 8 weeks",
        "run rate": "at the run rate: days to come cost the mean of the complete ones",
        "complete": "of a period that is over: what was spent",
    }
    if methods:
        notes.append(f"Forecast {'; '.join(explained[method] for method in methods)}. Fixed cost is not carried on.")
    notes += [f"{remark[0].upper()}{remark[1:]}." for remark in review.remarks]
    if review.tag_coverage_share is not None and review.tag_coverage_share < 1:
        names = " and ".join(review.tag_names)
        notes.append(
            f"{percent(float(review.tag_coverage_share))} of the cost has its {names}; what has none counts in no"
            f" budget of a {review.tag_names[0]}: `loadfactor untagged{store_words}`."
        )
    return notes


def _name(status: BudgetStatus, review: BudgetReview) -> str:
    """The owner of a budget, and its kind of cost where budgets are of several."""
    costs = {one.budget.column for one in review.statuses}
    return (
        f"{status.budget.label} ({status.budget.column})"
        if len(costs) > 1 and review.source == "bill"
        else status.budget.label
    )


def _count(some: list[BudgetStatus], review: BudgetReview) -> str:
    are = "is" if len(some) == 1 else "are"
    return f"{len(some)} of {len(review.statuses)} budget{'' if len(review.statuses) == 1 else 's'} {are}"


def _forecast(status: BudgetStatus) -> Decimal:
    return status.forecast.total if status.forecast else Decimal(0)


def _amount(amount: Decimal, review: BudgetReview) -> str:
    return money(float(amount), review.currency)


def _number(value: Decimal | None) -> float | None:
    return None if value is None else float(value)


def _day(day: date | None) -> str | None:
    return None if day is None else f"{day:%Y-%m-%d}"
