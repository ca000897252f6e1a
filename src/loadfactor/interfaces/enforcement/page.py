"""The page of `loadfactor enforce`: what policies would do to idle holders, what they did, and the log of all of it."""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from loadfactor.base.errors import InputError
from loadfactor.interfaces.document import Assumption, Document, Section
from loadfactor.interfaces.enforcement.enforcement_log import read_log
from loadfactor.interfaces.enforcement.enforcer import ACT, RELEASE, WARN, Enforcer, Planned
from loadfactor.interfaces.formats import counted, instant
from loadfactor.interfaces.requests import EnforceRequest
from loadfactor.interfaces.tables import col, table
from loadfactor.metrics.query.calendar import instant as moment
from loadfactor.settings.config import settings

VERBS = {WARN: "warn", ACT: "end", RELEASE: "let go"}


@dataclass(frozen=True)
class PlannedStep:
    """A holder, what its policy makes of it, what follows, and in a run what became of that."""

    policy: str
    team: str
    holder: str
    user: str | None
    held_since: datetime
    gpus: float | None
    metric: str
    value: float | None
    coverage: float | None
    verdict: str
    step: str
    act: str
    why: str
    addresses: tuple[str, ...]
    done: str
    error: str


def build_page(request: EnforceRequest) -> Document:
    """Do what policies say, or with --dry-run only list it. Raises InputError where there is no policy."""
    books = request.books
    if request.log:
        if request.dry_run:
            raise InputError("--log lists what was done, --dry-run what would be; give one of them")
        return _list_log(read_log(books.store.folder))
    enforcer = Enforcer(books, settings())
    found = enforcer.plan() if request.dry_run else enforcer.run()
    return build_plan(found, request.dry_run)


def build_plan(found: list[Planned], is_dry: bool) -> Document:
    """A row a holder, those first to whom something is done."""
    ranks = (ACT, WARN, RELEASE)
    found = sorted(found, key=lambda of: (ranks.index(of.step) if of.step in ranks else len(ranks), of.key))
    rows = [_describe(of) for of in found]
    listed = table(
        rows,
        col("policy", "policy"),
        col("holder", "holder"),
        col("user", "user"),
        col("team", "team"),
        col("GPUs", "gpus", "number"),
        col("metric", "value", "percent"),
        col("observed", "coverage", "percent"),
        col("is", "verdict"),
        col("would" if is_dry else "step", lambda of: f"{of.step}: {of.act}" if of.step == ACT else of.step),
        col("because", lambda of: of.error or of.done or of.why),
    )
    counts = Counter(of.step for of in found)
    words = ", ".join(f"{verb} {counts[step]}" for step, verb in VERBS.items() if counts[step]) or "do nothing"
    failed = sum(1 for of in found if of.error)
    if is_dry:
        headline = f"Of {counted(float(len(found)), 'holder')} of the teams that policies name, would {words}; nothing was done."
    else:
        headline = f"Of {counted(float(len(found)), 'holder')} of the teams that policies name: {words}."
        headline += f" {counted(float(failed), 'step')} failed." if failed else ""
    policies = {of.judged.policy.name: of.judged.policy for of in found}
    return Document(
        headline,
        (Section(tables=(listed,) if rows else ()),),
        f"Judged at the end of the books, {instant(found[0].books_end)}." if found else "",
        assumptions=tuple(
            Assumption(name, f"{of.says}, then {of.act} after {of.grace}", "[[enforce]]")
            for name, of in policies.items()
        ),
        data=rows,
        is_no=bool(failed),
    )


def _describe(of: Planned) -> PlannedStep:
    judged = of.judged
    return PlannedStep(
        judged.policy.name,
        judged.team,
        judged.holder.name,
        judged.holder.user,
        moment(judged.holder.began_ms),
        judged.gpus,
        judged.policy.metric,
        judged.value,
        judged.coverage,
        judged.verdict,
        of.step,
        judged.policy.act,
        of.why,
        of.addresses,
        of.done,
        of.error,
    )


def _list_log(found: list[Any]) -> Document:
    """Every step that was logged."""
    listed = table(
        found,
        col("at", lambda of: instant(of.at)),
        col("policy", "policy"),
        col("holder", "holder"),
        col("user", lambda of: of.facts.get("user")),
        col("step", "step"),
        col("metric", lambda of: of.facts.get("value"), "percent"),
        col("what", lambda of: of.facts.get("did") or ", ".join(of.facts.get("to", ())) or of.facts.get("why")),
        col("by", lambda of: of.facts.get("who")),
    )
    return Document(f"{counted(float(len(found)), 'step')} in the log.", (Section(tables=(listed,)),), data=found)
