"""The enforcer: judges holders by their policies, warns by mail, and after the grace ends those that are idle still."""

import getpass
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from email.message import EmailMessage
from email.utils import formatdate
from typing import Any, Final, TypeVar

from loadfactor.base.clock import now_ms
from loadfactor.base.errors import InputError, LoadfactorError, no_such
from loadfactor.books.books import Books
from loadfactor.books.snapshot import Snapshot
from loadfactor.collect.holders import cancel_job, scale_owner
from loadfactor.insight.alerts.delivery.outbox import Outbox
from loadfactor.insight.alerts.delivery.sending import send_email
from loadfactor.insight.enforcement import JudgedHolder, judge_holders, read_values
from loadfactor.interfaces.digests.letters import MAILBOX, POLICY, make_key
from loadfactor.interfaces.digests.post import open_alone
from loadfactor.interfaces.enforcement.enforcement_log import (
    ACTED,
    ACTING,
    FAILED,
    LET_GO,
    LOCK,
    TABLE,
    WARNED,
    WARNING,
    Key,
    LoggedStep,
    add_step,
    find_states,
    read_log,
    read_states,
)
from loadfactor.interfaces.formats import counted, percent
from loadfactor.interfaces.formats import instant as write_instant
from loadfactor.metrics.query.calendar import instant, milliseconds
from loadfactor.settings.config import Settings, smtp_password
from loadfactor.settings.digests import is_address
from loadfactor.settings.enforcement import NOTHING, SCALE, EnforceTable
from loadfactor.settings.sources import KubernetesCluster, SlurmCluster

WARN, ACT, LEAVE, RELEASE = "warn", "act", "nothing", "let go"
Cluster = TypeVar("Cluster", SlurmCluster, KubernetesCluster)
REPLY: Final = {SCALE: "scaled to zero", "scancel": "cancelled"}


@dataclass(frozen=True)
class Planned:
    """What comes next for a holder, and why, by books that end at `books_end`; `addresses` are those that are warned.

    `done` is what became of it, `error` why it failed.
    """

    judged: JudgedHolder
    books_end: datetime
    step: str
    why: str
    addresses: tuple[str, ...]
    last: LoggedStep | None
    done: str = ""
    error: str = ""

    @property
    def key(self) -> Key:
        """Its name in the log."""
        return self.judged.policy.name, self.judged.holder.name, self.judged.holder.began_ms


class Enforcer:
    """The policies of one store. One process at a time does anything."""

    def __init__(self, books: Books, settings: Settings, clock_ms: Callable[[], int] = now_ms) -> None:
        """Raises InputError where there is no policy, or mail has no server."""
        self._books, self._settings, self._clock_ms = books, settings, clock_ms
        if not settings.enforce:
            raise InputError(
                "no policy in loadfactor.toml: nothing is done without one that names its teams; write [[enforce]] with name, team"
                ' = ["vision"], below = 0.01, to = ["{user}@example.com"] and act = "scancel"'
            )
        if settings.mail is None:
            raise InputError("[[enforce]] warns by mail, and no [mail] says through which server")

    def plan(self, is_dry: bool = True) -> list[Planned]:
        """What would be done now; a dry run judges books that ended long ago, too. Changes nothing."""
        return self._plan(find_states(read_log(self._books.store.folder)), is_dry)

    def run(self) -> list[Planned]:
        """Do it, and log it: what became of each holder. Raises InputError where another process does."""
        with open_alone(self._books.store.folder, LOCK, TABLE) as outbox:
            if outbox is None:
                raise InputError("another process enforces the policies of these books; try again in a minute")
            with outbox.change() as connection:
                states = read_states(connection)
            planned = self._plan(states, is_dry=False)
            self._settle(outbox, states, planned)
            return [self._do(outbox, of) for of in planned]

    def _plan(self, states: Mapping[Key, LoggedStep], is_dry: bool) -> list[Planned]:
        with self._books.snapshot() as snapshot:
            end, jobs = snapshot.span[1], snapshot.open_jobs()
            planned: list[Planned] = []
            for policy in self._settings.enforce:
                late = instant(self._clock_ms()) - end
                judged = judge_holders(policy, jobs, snapshot.show, end)
                if late > timedelta(seconds=policy.stale_after.s) and not is_dry:
                    why = f"the books end at {write_instant(end)}"
                    judged = [replace(of, verdict="not known", why=why) for of in judged]
                own = [self._decide(of, states, snapshot, end) for of in judged]
                planned += limit_acts(own, policy.most)
            return planned

    def _decide(
        self, judged: JudgedHolder, states: Mapping[Key, LoggedStep], snapshot: Snapshot, end: datetime
    ) -> Planned:
        """The next step of a holder."""
        policy, holder = judged.policy, judged.holder
        last = states.get((policy.name, holder.name, holder.began_ms))
        stands = last.step if last else LET_GO
        addresses = write_addresses(policy.to, holder.user, judged.team)

        def plan(step: str, why: str) -> Planned:
            return Planned(judged, end, step, why, addresses, last)

        if judged.verdict in ("allowed", "at work"):
            is_open = stands in (WARNING, WARNED, ACTING, FAILED)
            return plan(RELEASE if is_open else LEAVE, judged.why or "it works")
        if judged.verdict == "not known" or stands == ACTED:
            return plan(LEAVE, judged.why or "it was done")
        if stands in (LET_GO, WARNING):
            return plan(WARN, "idle") if addresses else plan(LEAVE, "nobody to warn: no address of its user")
        if policy.act == NOTHING:
            return plan(LEAVE, "it was warned")
        assert last is not None
        if stands in (ACTING, FAILED):
            return plan(ACT, "idle, and begun before")
        until = last.at + timedelta(seconds=policy.grace.s)
        if instant(self._clock_ms()) < until:
            return plan(LEAVE, f"warned; its grace ends at {write_instant(until)}")
        since = instant(last.facts["books_end_ms"])
        if since >= end:
            return plan(LEAVE, "the books have not gone on since the warning")
        values = read_values(policy.metric, snapshot.show, judged.team, (since, end))
        for job in holder.jobs:
            found = values.get(job.job)
            if found is None or found.value is None or (found.coverage or 0.0) < policy.least_coverage:
                return plan(LEAVE, "not observed enough since the warning")
            if not policy.is_idle(found.value):
                return plan(RELEASE, "it worked since the warning")
        return plan(ACT, "idle since the warning")

    def _settle(self, outbox: Outbox, states: Mapping[Key, LoggedStep], planned: Sequence[Planned]) -> None:
        """Log that holders are gone whose end was under way when a process was killed."""
        there = {of.key for of in planned}
        for key, last in states.items():
            if last.step == ACTING and key not in there:
                add_step(outbox, self._clock_ms(), key, ACTED, {"did": "it is gone", "who": getpass.getuser()})

    def _do(self, outbox: Outbox, planned: Planned) -> Planned:
        key = planned.key
        facts = list_facts(planned) | {"who": getpass.getuser()}

        def log(step: str, **more: Any) -> LoggedStep:
            return add_step(outbox, self._clock_ms(), key, step, facts | more)

        if planned.step == RELEASE:
            log(LET_GO)
            return replace(planned, done=LET_GO)
        if planned.step == WARN:
            begun = planned.last if planned.last and planned.last.step == WARNING else log(WARNING)
            try:
                self._send(planned, begun, write_warning(planned))
            except LoadfactorError as error:
                return replace(planned, error=f"the warning was not taken: {error}")
            log(WARNED, to=planned.addresses)
            return replace(planned, done=f"warned {', '.join(planned.addresses)}")
        if planned.step != ACT:
            return planned
        begun = planned.last if planned.last and planned.last.step == ACTING else log(ACTING)
        try:
            did = self._act(planned)
        except LoadfactorError as error:
            log(FAILED, why=str(error))
            return replace(planned, error=str(error))
        untold = ""
        if not did.startswith("nothing"):
            try:
                self._send(planned, begun, write_act(planned, did))
            except LoadfactorError as error:
                untold = f"; its mail was not taken: {error}"
        log(ACTED, did=did + untold)
        return replace(planned, done=did + untold)

    def _act(self, planned: Planned) -> str:
        policy, holder = planned.judged.policy, planned.judged.holder
        if policy.act == SCALE:
            cluster = pick_cluster(self._settings.kubernetes, policy, "kubernetes", KubernetesCluster())
            return scale_owner(cluster, holder.jobs[0].namespace, holder.jobs[0].owner)
        return cancel_job(
            pick_cluster(self._settings.slurm, policy, "slurm", SlurmCluster()), holder.name, holder.began_ms
        )

    def _send(self, planned: Planned, begun: LoggedStep, text: tuple[str, str]) -> None:
        """Mail something to whom it concerns; sent again, it is the same mail."""
        server, (subject, body) = self._settings.mail, text
        assert server is not None
        copies = write_addresses(planned.judged.policy.copy_to, planned.judged.holder.user, planned.judged.team)
        mail = EmailMessage(policy=POLICY)
        mail["Subject"], mail["From"], mail["To"] = subject, server.sender, ", ".join(planned.addresses or copies)
        if planned.addresses and copies:
            mail["Cc"] = ", ".join(copies)
        mail["Date"] = formatdate(begun.at.timestamp())
        key = make_key(*map(str, planned.key), str(begun.number), subject)
        mail["Message-ID"] = f"<enforce-{key}@{server.sender.partition('@')[2]}>"
        mail["Auto-Submitted"] = "auto-generated"
        mail.set_content(body)
        send_email(mail, server, smtp_password())


def limit_acts(planned: Sequence[Planned], most: int) -> list[Planned]:
    """The same with so many acts at most, those of most GPUs; the others wait."""
    acts = sorted((of for of in planned if of.step == ACT), key=lambda of: (-(of.judged.gpus or 0.0), of.key))
    waits = {of.key for of in acts[most:]}
    why = f"idle; no more than {most} at once"
    return [replace(of, step=LEAVE, why=why) if of.key in waits else of for of in planned]


def write_addresses(patterns: Sequence[str], user: str | None, team: str) -> tuple[str, ...]:
    """The addresses that patterns make of a user and a team; none of a name that is no name of a mailbox."""
    found = []
    for pattern in patterns:
        names = {"{user}": user, "{team}": team}
        if any(mark in pattern and not (name and MAILBOX.fullmatch(name)) for mark, name in names.items()):
            continue
        address = pattern.replace("{user}", user or "").replace("{team}", team)
        if is_address(address):
            found.append(address)
    return tuple(dict.fromkeys(found))


def pick_cluster(clusters: Sequence[Cluster], policy: EnforceTable, kind: str, default: Cluster) -> Cluster:
    """The cluster that a policy acts in. Raises InputError where it is none, or not named among several."""
    if not policy.cluster:
        if len(clusters) > 1:
            raise InputError(f"[[enforce]] {policy.name}: name the cluster; there are several [[{kind}]]")
        return clusters[0] if clusters else default
    for cluster in clusters:
        if cluster.name == policy.cluster:
            return cluster
    raise no_such(f"[[{kind}]]", policy.cluster, [cluster.name for cluster in clusters])


def list_facts(planned: Planned) -> dict[str, Any]:
    """What a step rests on, for the log."""
    judged = planned.judged
    return {
        "team": judged.team,
        "user": judged.holder.user,
        "jobs": [job.job for job in judged.holder.jobs],
        "gpus": judged.gpus,
        "decides": judged.policy.says,
        "value": judged.value,
        "coverage": judged.coverage,
        "why": planned.why,
        "books_end_ms": milliseconds(planned.books_end),
    }


def write_warning(planned: Planned) -> tuple[str, str]:
    """Subject and text of a warning."""
    judged, policy = planned.judged, planned.judged.policy
    follows = (
        "Nothing else follows."
        if policy.act == NOTHING
        else f"Where it is idle for another {policy.grace} it is {REPLY[policy.act]}."
    )
    body = (
        f"{_describe(judged)}\n\n{follows} It is left alone when it works again.\n\n"
        "End it yourself where you do not need it, or tell whoever runs the cluster that you do.\n"
    )
    return f"{judged.holder.name} leaves {counted(judged.gpus or 0.0, 'GPU')} idle", body


def write_act(planned: Planned, did: str) -> tuple[str, str]:
    """Subject and text of the mail after it."""
    judged = planned.judged
    done = REPLY[judged.policy.act]
    body = f"{_describe(judged)}\n\nIt was warned, was idle still after its grace, and was {done} ({did}).\n"
    return f"{judged.holder.name} was {done}", body


def _describe(judged: JudgedHolder) -> str:
    policy, holder = judged.policy, judged.holder
    since, gpus = write_instant(instant(holder.began_ms)), counted(judged.gpus or 0.0, "GPU")
    return (
        f"{holder.name} of {holder.user or 'an unknown user'}, team {judged.team}, holds {gpus} since {since}.\n"
        f"Its {policy.metric} was {percent(judged.value)} over the last {policy.window}, {percent(judged.coverage)} of it observed;"
        f" the policy {policy.name} decides by {policy.says}."
    )
