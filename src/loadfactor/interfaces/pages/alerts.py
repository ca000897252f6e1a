"""Pages of alerts: what would have fired in an interval of history."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Any

from loadfactor.base.clock import now_ms
from loadfactor.base.errors import InputError, no_such
from loadfactor.base.quantities import parse_duration_s
from loadfactor.base.units import MS_PER_DAY, MS_PER_MIN, MS_PER_S
from loadfactor.books.books import Books
from loadfactor.insight.alerts.alert import Alert
from loadfactor.insight.alerts.configured import configure
from loadfactor.insight.alerts.delivery.board import (
    LIVING,
    STATES,
    AlertBoard,
    ListedAlert,
    belongs_to,
    describe_listed,
    describe_silence,
    read_board,
)
from loadfactor.insight.alerts.delivery.outbox import add_silence, lift_silence, name_silence
from loadfactor.insight.alerts.delivery.silence import Silence, check_silence
from loadfactor.insight.alerts.judge import replay
from loadfactor.insight.alerts.rule import Rule, describe_alert
from loadfactor.insight.alerts.rules import RULES
from loadfactor.interfaces.document import Document, Section, Suggestion
from loadfactor.interfaces.formats import counted, duration, instant
from loadfactor.interfaces.pages.places import find_books
from loadfactor.interfaces.progress import ProgressBar
from loadfactor.interfaces.requests import (
    AlertsRequest,
    LiftedRequest,
    ReplayRequest,
    SilencedRequest,
    StoreRequest,
    read_filters,
    read_moment,
)
from loadfactor.interfaces.tables import col, table
from loadfactor.metrics.query.calendar import instant as moment
from loadfactor.metrics.query.calendar import milliseconds
from loadfactor.metrics.query.reading import iso
from loadfactor.settings.config import settings
from loadfactor.store.disk import append_audit
from loadfactor.store.place import Place
from loadfactor.store.trusted_time import read_clock

LONGEST_MS = 366 * MS_PER_DAY


@dataclass(frozen=True)
class SilenceList:
    """Silences as their JSON has them."""

    silences: tuple[Mapping[str, Any], ...]


def build_silence_page(request: SilencedRequest) -> Document:
    """Make a silence."""
    by, how_long = read_filters(request.by, "--by"), (request.length, request.until)

    place = find_books(request.store)
    silence = make_silence(place, request.rule, by, how_long, request.reason)
    until = instant(moment(silence.until_ms))
    headline = f"No message of {say_silenced(silence)} is sent until {until}: silence {silence.id}."
    return Document(headline, data=describe_silence(silence, read_clock(place).expiry_ms))


def build_unsilence_page(request: LiftedRequest) -> Document:
    """End a silence."""

    place = find_books(request.store)
    silence = end_silence(place, request.id)
    return Document(
        f"Silence {silence.id} of {say_silenced(silence)} is over: what still fires is sent now.",
        data=describe_silence(silence, read_clock(place).expiry_ms),
    )


def make_silence(
    place: Place, rule: str, by: Mapping[str, str], how_long: tuple[str | None, str | None], reason: str, who: str = ""
) -> Silence:
    """Silence what matches; `how_long` is a length of time, or until when. Raises InputError, StoreError and DamageError."""
    if not place.has_books():
        raise InputError(f"no books in {place.name}; name them with --store")
    now = read_clock(place).latest_ms  # by a clock that is behind, it would be over before it begins
    until = _read_end(now, *how_long)
    check_silence(rule, by, reason, list(dict.fromkeys(r.name for r in (*RULES, *configure(RULES, settings().alert)))))
    silence = Silence(name_silence(), rule, dict(by), now, until, reason, who)
    add_silence(place.folder, silence)
    append_audit(
        place.folder, "silence", who, id=silence.id, rule=rule or "*", matching=dict(by), until_ms=until, reason=reason
    )
    return silence


def end_silence(place: Place, silence_id: str, who: str = "") -> Silence:
    """End a silence now. Raises InputError where there is none of this id, StoreError and DamageError."""
    if not place.has_books():
        raise InputError(f"no books in {place.name}; name them with --store")
    clock = read_clock(place)
    silence = lift_silence(place.folder, silence_id, clock.latest_ms, clock.expiry_ms)
    append_audit(place.folder, "unsilence", who, id=silence.id)
    return silence


def build_silences_page(request: StoreRequest) -> Document:
    """The silences that hold now."""
    store = request.books.store
    folder, now = store.folder, read_clock(store.place).expiry_ms
    found = [silence for silence in read_board(folder, now, ()).silences if silence.is_active(now)]
    listed = table(
        found,
        col("id", "id"),
        col("silences", say_silenced),
        col("until", lambda silence: instant(moment(silence.until_ms))),
        col("reason", "reason"),
        col("by whom", "who"),
    )
    sections = (Section(tables=(listed,)),) if found else ()
    headline = f"{counted(len(found), 'silence')}." if found else "Nothing is silenced."
    return Document(headline, sections, data=SilenceList(tuple(describe_silence(s, now) for s in found)))


def say_silenced(silence: Silence) -> str:
    """What a silence is of, in words."""
    groups = ", ".join(f"{name} {value}" for name, value in silence.by.items())
    rule = "all rules" if silence.rule in ("", "*") else silence.rule
    return f"{rule}, {groups}" if groups else rule


def _read_end(now: int, length: str | None, until: str | None) -> int:
    """When a silence ends. Raises InputError where it is given twice or not at all, is over, or more than a year away."""
    if (length is None) == (until is None):
        raise InputError("say for how long, --for 2h, or until when, --until 2026-10-05T18:00; one of the two")
    if length is not None:
        end = now + round(parse_duration_s(length) * MS_PER_S)
    else:
        at = read_moment(until, UTC)
        assert at is not None
        end = milliseconds(at)
    if not now < end <= now + LONGEST_MS:
        raise InputError("a silence ends later than now and within a year; choose another end")
    return end


MOST_LISTED = 12
LONG_AGO_MS = 10 * MS_PER_MIN
"""Where nothing was judged for so long, the page says so."""


@dataclass(frozen=True)
class FiringAlerts:
    """Alerts as their JSON has them, and up to when was judged."""

    judged: str | None
    alerts: Sequence[Mapping[str, Any]]


def build_board_page(request: AlertsRequest) -> Document:
    """The alerts that fire now, by rule. Raises InputError for a rule that is none, StoreError and DamageError."""
    return build_board(request.books.store.place, request)


def build_board(place: Place, request: AlertsRequest) -> Document:
    """The same of the books in this place, which may be none yet."""
    now, rules = now_ms(), configure(RULES, settings().alert)
    names = [rule.name for rule in rules]
    for name in request.rule:
        if name not in names:
            raise no_such("rule", name, names)
    board = read_board(place.folder, read_clock(place).expiry_ms, STATES if request.ended else LIVING)
    found = [
        listed
        for listed in board.alerts
        if belongs_to(listed.alert, request.team) and (not request.rule or listed.alert.rule in request.rule)
    ]
    judged = None if board.judged_ms is None else iso(moment(board.judged_ms))
    data = FiringAlerts(judged, [describe_listed(listed, rules) for listed in found])
    firing = [listed for listed in found if listed.alert.state == "firing"]
    in_order = list(dict.fromkeys(listed.alert.rule for listed in found if listed.alert.state != "pending"))
    by_name = {rule.name: rule for rule in rules}
    sections = [
        _list_rule([a for a in found if a.alert.rule == name and a.alert.state != "pending"], by_name.get(name), now)
        for name in in_order
    ]
    waiting = Counter(listed.alert.rule for listed in found if listed.alert.state == "pending")
    sections += [_list_pending(waiting, by_name)] if waiting else []
    sections += [_suggest(firing[0], place.folder)] if firing and firing[0].silence is None else []
    sections += [Section("Not sent yet", text)] if (text := _say_receivers(board)) else []
    return Document(_say_firing(firing, board), sections, _say_judged(board, now), data=data)


def _say_firing(firing: Sequence[ListedAlert], board: AlertBoard) -> str:
    if board.judged_ms is None:
        return "Nothing was judged yet: `loadfactor up` judges these books as data arrives."
    if not firing:
        return "Nothing fires."
    silenced = sum(listed.silence is not None for listed in firing)
    critical = sum(listed.alert.severity == "critical" for listed in firing)
    parts = [f"{critical} critical"] if critical else []
    parts += [f"{silenced} silenced"] if silenced else []
    one = "alert fires" if len(firing) == 1 else "alerts fire"
    return f"{len(firing):,} {one}{', ' if parts else ''}{', '.join(parts)}."


def _say_judged(board: AlertBoard, now: int) -> str:
    if board.judged_ms is None:
        return ""
    until = instant(moment(board.judged_ms))
    ago = now - board.judged_ms
    late = f", {duration(ago / MS_PER_S)} ago: is `loadfactor up` running?" if ago > LONG_AGO_MS else "."
    return f"Judged through {until}{late}"


def _list_rule(found: Sequence[ListedAlert], rule: Rule | None, now: int) -> Section:
    more = len(found) - MOST_LISTED
    listed = table(
        found[:MOST_LISTED],
        col("of", lambda a: name_group(a.alert)),
        col("since", lambda a: instant(moment(a.alert.start_ms))),
        col("lasts", lambda a: _say_age(a, now)),
        col("evidence", lambda a: "; ".join(a.alert.evidence)),
        note=f"and {more:,} more; --format json has all" if more > 0 else "",
    )
    lead = f"{rule.meaning} {rule.ask_first} {rule.look_next}" if rule else ""
    return Section(f"{found[0].alert.rule} ({found[0].alert.severity})", lead, tables=(listed,))


def _list_pending(waiting: Counter[str], rules: Mapping[str, Rule]) -> Section:
    pending = table(
        waiting.most_common(),
        col("rule"),
        col("alerts", style="number", digits=9),
        col("fires after", lambda row: rules[row[0]].for_s if row[0] in rules else None, "duration"),
    )
    return Section("Pending", tables=(pending,))


def _suggest(listed: ListedAlert, folder: Path) -> Section:
    alert = listed.alert
    by = f" --by {quote(','.join(f'{name}={value}' for name, value in alert.by.items()))}" if alert.by else ""
    command = f"loadfactor alerts silence {alert.rule}{by} --for 2h --reason WHY --store {quote(str(folder))}"
    return Section(suggestions=(Suggestion(command, "send nobody a message of the first for two hours"),))


def _say_age(listed: ListedAlert, now: int) -> str:
    alert = listed.alert
    length = duration(((now if alert.end_ms is None else alert.end_ms) - alert.start_ms) / MS_PER_S)
    if alert.end_ms is not None:
        return f"{length}, ended"
    return f"{length}, silenced" if listed.silence else length


def _say_receivers(board: AlertBoard) -> str:
    return "\n".join(
        f"{name} lacks {counted(a.pending + a.given_up, 'transition')}: {a.why}"
        for name, a in (board.receivers or {}).items()
        if (a.pending or a.given_up) and a.why
    )


FLEET = "the fleet"
MOST_ROWS = 8


@dataclass(frozen=True)
class ListedAlerts:
    """Alerts as their JSON has them."""

    alerts: Sequence[Mapping[str, Any]]


def build_replay_page(request: ReplayRequest) -> Document:
    """The alerts that would have fired in an interval of the books."""
    books = request.books
    first, last = books.span
    given = request.window(books)
    start, end = given[0] or first, given[1] or last
    if start >= end or end <= first or start >= last:
        raise InputError(
            f"nothing of the books lies in that time: they cover {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC;"
            " change --from and --to"
        )
    start, remarks = _begin_after_dropped(books, max(start, first), min(end, last))
    rules = {rule.name: rule for rule in configure(RULES, settings().alert)}
    for name in request.rule:
        if name not in rules:
            raise no_such("rule", name, rules)
    chosen = [rules[name] for name in request.rule] or list(rules.values())
    with ProgressBar() as bar:
        alerts = replay(books, chosen, (milliseconds(start), milliseconds(end)), bar)
    start, end = max(start, first), min(end, last)
    subtitle = f"{instant(start)} to {instant(end)}, judged minute by minute by {counted(len(chosen), 'rule')}."
    data = ListedAlerts([describe_alert(alert, chosen) for alert in alerts])
    if not alerts:
        return Document("Nothing would have fired.", subtitle=subtitle, notes=remarks, data=data)
    fired = Counter(alert.rule for alert in alerts)
    sections = [_count_rules(alerts, chosen, end)]
    sections += [
        _list_alerts([a for a in alerts if a.rule == rule.name], rule, end) for rule in chosen if fired[rule.name]
    ]
    return Document(f"{counted(len(alerts), 'alert')} would have fired.", sections, subtitle, notes=remarks, data=data)


def _begin_after_dropped(books: Books, start: datetime, end: datetime) -> tuple[datetime, tuple[str, ...]]:
    """Where minutes can be judged from: after the days whose samples were dropped, of which a sentence speaks.

    Raises InputError where there is nothing after them.
    """
    with books.snapshot() as snapshot:
        remarks = snapshot.list_remarks(start, end, "what is judged minute by minute")
        begins = snapshot.samples_begin
    if begins is None or start >= begins:
        return start, ()
    if end <= begins:
        raise InputError(f"{remarks[0]} Ask from {begins:%Y-%m-%d} on (--from)")
    return begins, remarks


def name_group(alert: Alert) -> str:
    """Whom an alert is of, in words: its group, and in whose name where that is somebody else."""
    group = ", ".join(f"{name} {value}" for name, value in alert.by.items()) or FLEET
    holder = alert.holder.get("user") or alert.holder.get("team")
    return f"{group} ({holder})" if holder and alert.by else group


def _count_rules(alerts: Sequence[Alert], rules: Sequence[Rule], end: datetime) -> Section:
    counts = Counter(alert.rule for alert in alerts)
    by_rule = table(
        [rule for rule in rules if counts[rule.name]],
        col("rule", "name"),
        col("alerts", lambda rule: counts[rule.name], "number"),
        col("longest", lambda rule: max(_lasted_s(a, end) for a in alerts if a.rule == rule.name), "duration"),
        col("severity", "severity"),
    )
    return Section("By rule", tables=(by_rule,))


def _list_alerts(alerts: Sequence[Alert], rule: Rule, end: datetime) -> Section:
    more = len(alerts) - MOST_ROWS
    longest = table(
        sorted(alerts, key=lambda alert: -_lasted_s(alert, end))[:MOST_ROWS],
        col("of", name_group),
        col("since", lambda alert: instant(moment(alert.start_ms))),
        col("lasted", lambda alert: duration(_lasted_s(alert, end)) + (" and on" if alert.end_ms is None else "")),
        col("evidence", lambda alert: alert.evidence[0] if alert.evidence else ""),
        note=f"and {counted(more, 'shorter one')}; --format json has all" if more > 0 else "",
    )
    return Section(rule.name, f"{rule.meaning} {rule.ask_first} {rule.look_next}", tables=(longest,))


def _lasted_s(alert: Alert, end: datetime) -> float:
    until = end.timestamp() if alert.end_ms is None else alert.end_ms / MS_PER_S
    return until - alert.start_ms / MS_PER_S
