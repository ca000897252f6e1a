"""The pages of `loadfactor untagged` and `loadfactor retag`: held time without an experiment, and what rules of today change."""

from shlex import quote

from loadfactor.base.paths import read_path
from loadfactor.books.untagged import Untagged
from loadfactor.interfaces.document import Cell, Document, Section, Suggestion
from loadfactor.interfaces.formats import money, number, percent
from loadfactor.interfaces.pages.books import name_rows
from loadfactor.interfaces.progress import ProgressBar
from loadfactor.interfaces.requests import RetagRequest, UntaggedRequest
from loadfactor.interfaces.tables import col, cols, table

MOST_ROWS = 25
NOTHING = "(none)"


def build_untagged_page(request: UntaggedRequest) -> Document:
    """Holders of GPUs without an experiment, the most expensive first, and what would help."""
    books = request.books
    start, end = request.window(books)
    with books.snapshot() as snapshot:
        found = snapshot.find_untagged(request.by, start, end, request.zone, request.basis, request.filters)
    store_words = f" --store {quote(books.store.name)}"
    lacking = found.without["experiment"]
    if not lacking.gpu_hours:
        headline = f"All {number(found.held.gpu_hours)} held GPU-hours have an experiment."
        return Document(headline, tuple(_list_rest(found)), data=found)
    cost = "" if lacking.cost is None else f", {money(lacking.cost, found.currency)},"
    of_cost = "" if found.tagged_cost_share is None else f" and {percent(found.tagged_cost_share)} of their cost"
    headline = (
        f"{number(lacking.gpu_hours)} of {number(found.held.gpu_hours)} held GPU-hours{cost} have no experiment;"
        f" {percent(found.tagged_share)} of the hours{of_cost} have one."
    )
    by = tuple(found.rows[0].by)
    groups = table(
        found.rows[:MOST_ROWS],
        *cols(by, lambda group, name: group.by[name] or NOTHING),
        col("GPU-hours", "gpu_hours", "number"),
        col("cost", "cost", "money"),
        col("jobs", "jobs", "number", digits=9),
        col("lacks also", lambda group: ", ".join(group.missing[1:])),
        currency=found.currency,
        note=_say_more(len(found.rows)),
    )
    section = Section("Without an experiment", tables=(groups,))
    return Document(headline, (section, *_list_rest(found), _say_what_helps(found, store_words)), data=found)


def _say_more(count: int) -> str:
    return f"and {count - MOST_ROWS:,} more; --json lists them all" if count > MOST_ROWS else ""


def _list_rest(found: Untagged) -> list[Section]:
    """Time without a team, a project or a purpose, and time of unknown holders."""
    whole = found.held.gpu_hours
    without = table(
        [(name, held) for name, held in found.without.items() if name != "experiment" and held.gpu_hours],
        col("without"),
        col("GPU-hours", lambda of: of[1].gpu_hours, "number"),
        col("cost", lambda of: of[1].cost, "money"),
        col("share of held", lambda of: of[1].gpu_hours / whole if whole else None, "percent"),
        currency=found.currency,
    )
    sections = [Section("Without team, project or purpose", tables=(without,))] if without.rows else []
    if found.unattributed.gpu_hours:
        cost = "" if found.unattributed.cost is None else f" ({money(found.unattributed.cost, found.currency)})"
        sections.append(
            Section(
                "Unknown holder",
                lead=f"{number(found.unattributed.gpu_hours)} GPU-hours{cost} were held by nobody knows whom, and no rule can"
                " tag them: import the scheduler's accounting, or use an exporter with job labels.",
            )
        )
    return sections


def _say_what_helps(found: Untagged, store_words: str) -> Section:
    """Tags that many of the jobs have, a rule for the most expensive group, and what applies them to history."""
    rows: list[tuple[Cell, ...]] = [
        (f"{hint.tag} is filled in on {number(hint.gpu_hours)} of these GPU-hours", "", hint.experiment)
        for hint in found.hints
    ]
    first = next((group for group in found.rows if group.rule), None)
    if first is not None:
        rows.append(("the first group, all of it", first.match, "NAME"))
    note = "each is a table [[tag]] of loadfactor.toml; --json has them as text to copy"
    rules = table(rows, col("because"), col("match"), col("experiment"), note=note)
    retag = Suggestion(f"loadfactor retag{store_words}", "applies rules and mapping to what is in the books already")
    return Section("Rules that would help", tables=(rules,) if rows else (), suggestions=(retag,))


def build_retag_page(request: RetagRequest) -> Document:
    """Tag history anew: rows, and hours by team and experiment, that changed or would."""
    with ProgressBar() as bar:
        found = request.books.retag(request.mapping and read_path(request.mapping), request.dry_run, bar)
    if not found.rows:
        return Document("Nothing to tag anew: everything in the books is as rules and mapping say.", data=found)
    moved = sum(c.gpu_hours - c.gpu_hours_before for c in found.hours if c.gpu_hours > c.gpu_hours_before)
    did = "Would tag" if found.is_dry_run else "Tagged"
    have = "would have" if found.is_dry_run else "have"
    headline = f"{did} {name_rows(found.rows)} anew; {number(moved)} GPU-hours {have} another team or experiment."
    hours = table(
        found.hours[:MOST_ROWS],
        col("team", lambda change: change.team or NOTHING),
        col("experiment", lambda change: change.experiment or NOTHING),
        col("GPU-hours before", "gpu_hours_before", "number"),
        col("GPU-hours after", "gpu_hours", "number"),
        note=_say_more(len(found.hours)),
    )
    sections = (Section("Allocated GPU-hours", tables=(hours,)),) if found.hours else ()
    notes = (
        ("Rows to come follow the mapping that loadfactor.toml names: mapping = … under [tagging].",)
        if request.mapping is not None
        else ()
    )
    return Document(headline, sections, notes=notes, data=found)
