"""The pages of diagnoses and savings: what is asked for them, and their answers with whom to ask and where to look."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from loadfactor.base.errors import InputError
from loadfactor.base.request import make_request
from loadfactor.books.snapshot import Snapshot
from loadfactor.insight.diagnosis.finding import FleetDiagnosis, JobDiagnosis
from loadfactor.insight.savings import FleetSavings
from loadfactor.interfaces.document import Document, Section
from loadfactor.interfaces.pages.diagnosis import CAUSES, OVERLAP, STAKE, WORST_JOBS, say_stake
from loadfactor.interfaces.pages.savings import rank_levers
from loadfactor.interfaces.requests import DiagnoseRequest, SavingsRequest, ShowRequest
from loadfactor.interfaces.tables import col, table
from loadfactor.interfaces.web.ask import Ask
from loadfactor.interfaces.web.standing import show_standing

OF_DIAGNOSES = ("job", "team")
MOST_HELD = 12


def read_diagnosis(request: ShowRequest) -> DiagnoseRequest:
    """The diagnosis of a page's state. Raises InputError for a filter that it does not take."""
    filters = request.filters
    _refuse(
        [name for name in filters if name not in OF_DIAGNOSES], "a diagnosis is of a job, of a team or of the fleet"
    )
    window = {"start": request.start, "end": request.end, "last": request.last, "timezone": request.timezone}
    return make_request(DiagnoseRequest, window | filters)


def read_savings(request: ShowRequest) -> SavingsRequest:
    """The savings of a page's state. Raises InputError for a filter."""
    _refuse(list(request.filters), "savings are of the whole fleet")
    return SavingsRequest(start=request.start, end=request.end, last=request.last, timezone=request.timezone)


def _refuse(names: Sequence[str], what: str) -> None:
    if names:
        raise InputError(f"{what}; leave where={names[0]}=… out")


def name_teams(snapshot: Snapshot, found: FleetDiagnosis) -> dict[str, str]:
    """The team of each job of a diagnosis."""
    jobs = {job.job for job in found.jobs}
    keys = snapshot.show(["allocated_gpu_hours"], ["job", "team"]).keys
    return {job: team for job, team in keys if job in jobs and team is not None and job is not None}


def list_causes_of_jobs(page: Document, teams: Mapping[str, str]) -> Document:
    """A diagnosis whose jobs say whose they are, each a link, and whose causes say what to change."""
    found: FleetDiagnosis = page.data

    def say(job: JobDiagnosis) -> str | None:
        return say_stake(job.at_stake_gpu_hours, job.at_stake_cost, found.currency) if job.findings else None

    worst = table(
        found.jobs,
        col("job", "job"),
        col("team", lambda job: teams.get(job.job)),
        col("lost GPU-h", "lost_gpu_hours", "number"),
        col("lost to known causes", say, hint=STAKE),
        col("first cause", lambda job: job.findings[0].title if job.findings else "no cause found"),
        col("how sure", lambda job: job.findings[0].sureness if job.findings else None),
    )
    actions = {finding.cause: finding.action for job in found.jobs for finding in job.findings}
    causes = table(
        found.causes,
        col("cause", "title"),
        col("jobs", "jobs", "number"),
        col("lost to it", lambda cause: say_stake(cause.gpu_hours, cause.cost, found.currency)),
        col("what to change", lambda cause: actions.get(cause.cause)),
        note=OVERLAP,
    )
    tables = {WORST_JOBS: worst, CAUSES: causes}
    sections = [replace(s, tables=(tables[s.title],)) if s.title in tables else s for s in page.sections]
    return replace(page, sections=sections)


def list_holders(page: Document) -> Document:
    """Savings with whom to ask for each, a link to each team."""
    found: FleetSavings = page.data
    held = [(lever, holder) for lever in rank_levers(found) for holder in lever.ask if holder.team is not None]
    if not held:
        return page
    holders = table(
        held[:MOST_HELD],
        col("team", lambda row: row[1].team),
        col("user", lambda row: row[1].user),
        col("of what could be saved", lambda row: row[1].share, "percent"),
        col("by", lambda row: row[0].title),
        col("what to do", lambda row: row[0].action),
    )
    first, *rest = page.sections
    return replace(page, sections=[first, Section("Whom to ask for what", tables=(holders,)), *rest])


def build_standing(ask: Ask) -> Document:
    """The answer as far as it is made."""
    ask.inquire()  # first: it says where the books know nothing of what may be seen
    return show_standing(ask.standing[0])
