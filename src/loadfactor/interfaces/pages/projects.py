"""The page of `loadfactor project`: each project planned, so far, and at its end."""

from decimal import Decimal
from typing import TYPE_CHECKING

from loadfactor.interfaces.document import Assumption, Cell, DataTable, Document, Section, TableColumn
from loadfactor.interfaces.formats import money, number, percent

if TYPE_CHECKING:
    from loadfactor.books.projects import ProjectReview
    from loadfactor.money.project_cost import ProjectCost


def build_projects(review: "ProjectReview") -> Document:
    """Every project, the one that goes furthest over its plan in the sentence on top."""
    worst = max(
        review.projects, key=lambda p: (p.over_plan_cost / p.planned_cost if p.planned_cost else 0, p.plan.name)
    )
    whole = _summarize(review)
    return Document(
        headline=_write_headline(worst, review),
        subtitle=f"{review.basis.capitalize()} cost of the ledger in {review.currency}, beside [[project]] of loadfactor.toml.",
        sections=(
            *((Section("Projects", tables=(whole,)),) if len(review.projects) > 1 else ()),
            *(_describe(project, review.currency) for project in review.projects),
        ),
        assumptions=(
            Assumption("runs that are done", "training jobs that ended completed", "the scheduler's accounting"),
            Assumption("evaluation", "jobs whose purpose is evaluation", "tagging"),
            Assumption("staff", "as planned", "loadfactor.toml; it is in no books"),
        ),
        data=review,
    )


def _write_headline(project: "ProjectCost", review: "ProjectReview") -> str:
    total, planned = (_money(amount, review.currency) for amount in (project.expected_cost, project.planned_cost))
    spent = _money(project.spent_cost, review.currency)
    runs = f"{project.spending.runs_done} of {project.plan.runs} runs are done"
    if not project.spending.training.gpu_hours:
        return f"{project.plan.name} is planned at {planned}; the books have nothing of it yet."
    share = abs(project.over_plan_cost / project.planned_cost) if project.planned_cost else Decimal(0)
    beside = f"{percent(float(share))} {'over' if project.over_plan_cost > 0 else 'under'} its plan of {planned}"
    return f"{project.plan.name} comes to {total}, {beside}: {runs}, {spent} is spent."


def _summarize(review: "ProjectReview") -> DataTable:
    currency = review.currency
    columns = (
        TableColumn("project"),
        TableColumn("runs"),
        TableColumn("planned", "money", currency),
        TableColumn("so far", "money", currency),
        TableColumn("at its end", "money", currency),
        TableColumn("over plan", "money", currency),
    )
    rows = [
        (
            p.plan.name,
            f"{p.spending.runs_done} of {p.plan.runs}",
            float(p.planned_cost),
            float(p.spent_cost),
            float(p.expected_cost),
            float(p.over_plan_cost),
        )
        for p in review.projects
    ]
    return DataTable(columns, rows)


def _describe(project: "ProjectCost", currency: str) -> Section:
    columns = (
        TableColumn("cost of"),
        TableColumn("GPU-h planned", "number"),
        TableColumn("planned", "money", currency),
        TableColumn("GPU-h so far", "number"),
        TableColumn("so far", "money", currency),
        TableColumn("GPU-h at end", "number"),
        TableColumn("at its end", "money", currency),
    )
    rows: list[tuple[Cell, ...]] = [
        (
            part.name,
            _hours(part.planned_gpu_hours),
            float(part.planned_cost),
            _hours(part.spent_gpu_hours),
            None if part.spent_cost is None else float(part.spent_cost),
            _hours(part.expected_gpu_hours),
            float(part.expected_cost),
        )
        for part in project.parts
    ]
    whole = (project.planned_cost, project.spent_cost, project.expected_cost)
    rows.append(("all", "", float(whole[0]), "", float(whole[1]), "", float(whole[2])))
    price = f"{_money(project.price_per_gpu_hour, currency)} a held GPU-hour"
    each = number(float(project.gpu_hours_per_run))
    lead = f"{project.runs_left} runs to come, {project.method}: {each} GPU-hours each at {price}."
    if unpriced := project.spending.training.gpu_hours - project.spending.training.priced_gpu_hours:
        lead += f" {number(float(unpriced))} GPU-hours so far have no price; at its end they have this one."
    if project.spending.lost_gpu_hours:
        lead += f" {number(float(project.spending.lost_gpu_hours))} GPU-hours were in runs that did not complete."
    tables = [DataTable(columns, rows)]
    if project.capital:
        shares = [(name, float(cost)) for name, cost in project.capital.items()]
        owned = (TableColumn("of owned GPU-hours"), TableColumn("at its end", "money", currency))
        tables.append(DataTable(owned, shares, note="the price of an owned GPU-hour, by what it consists of"))
    return Section(project.plan.name, lead, tables=tables)


def _money(amount: Decimal, currency: str) -> str:
    return money(float(amount), currency)


def _hours(hours: Decimal | None) -> float | str:
    return "" if hours is None else float(hours)
