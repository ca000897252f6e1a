"""Waits of jobs by group, with those that have not ended counted, and what they tell of a job that waits now."""

import random
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ledger.fleets import Fleet, add, batches, full
from tests.ledger.oracle_answers import EVENTS, list_waits
from tests.ledger.test_books_balance import EXAMPLES, SETTINGS
from tests.long import rest_long
from tests.metrics.test_metrics import multiply

from loadfactor.base.errors import InputError
from loadfactor.books.books import Books
from loadfactor.books.waits import BY, WaitGroup
from loadfactor.metrics.survival import Interval

DAY = datetime(2026, 5, 1, tzinfo=UTC)
MINUTE = 60
Story = list[tuple[str, str, float]]
Tell = Callable[..., Books]


def at(minute: float) -> datetime:
    """A minute of the day of these stories."""
    return DAY + timedelta(minutes=minute)


def ms(minute: float) -> int:
    return round(at(minute).timestamp() * 1000)


@pytest.fixture
def tell(tmp_path: Path) -> Tell:
    """Makes books of one GPU, a day long, and of events (job, event, minute); `about` says more of a job."""

    number_of_books = count()

    def make(
        story: Story, about: dict[str, dict[str, Any]] | None = None, reasons: dict[int, str] | None = None
    ) -> Books:
        events = [
            {"job_id": job, "event": event, "at_utc": ms(minute), "gpus": 1.0}
            | (about or {}).get(job, {})
            | {"reason": (reasons or {}).get(number)}
            for number, (job, event, minute) in enumerate(story)
        ]
        device = {"device_id": "g", "from_utc": ms(0), "to_utc": ms(1440)}
        books = Books(tmp_path / f"books{next(number_of_books)}")
        add(books, batches(full({"devices": [device], "queue_events": events})), "all", tmp_path)
        return books

    return make


def wait(job: str, since: float, length: float | None, end: str = "started") -> Story:
    """A job that is submitted, and after some minutes started (or cancelled); None: it waits still."""
    begun = [(job, "submitted", since)]
    return begun if length is None else [*begun, (job, end, since + length)]


def test_waits_that_have_not_ended_are_counted(tell: Tell) -> None:
    """Five started after 1 to 5 minutes, one was cancelled after 2.5, one waits since 6: the estimate is the textbook's."""
    story = [e for n in range(1, 6) for e in wait(f"j{n}", 0, n)]
    found = (
        tell([*story, *wait("gave up", 0, 2.5, "cancelled"), *wait("here", 0, None)]).find_waits(by=(), end=at(6)).all
    )
    assert (found.waits, found.started, found.waiting, found.cancelled) == (7, 5, 1, 1)
    # shares after each: 6/7, 5/7, 5/7·3/4, 5/7·2/4, 5/7·1/4
    assert found.wait_s_p50.value == 4 * MINUTE
    assert found.wait_s_p90 == Interval(None, 4 * MINUTE, None)
    assert found.gpu_hours_waited == pytest.approx((15 + 2.5 + 6) / 60)


def test_a_median_that_is_not_reached_is_none(tell: Tell) -> None:
    """Where most wait still, nobody can say how long half of them will."""
    found = tell([*wait("a", 0, 5), *wait("b", 0, None), *wait("c", 0, None)]).find_waits().all
    assert found.wait_s_p50.value is None
    assert found.waiting == 2


@pytest.mark.long
def test_waits_are_split_by_size_queue_team_and_reason(tell: Tell) -> None:
    """Sizes stand in order of GPUs; of reasons the last one said counts, without what follows its colon."""
    about = {
        "a": {"gpus": 16.0, "queue": "large", "team": "nlp"},
        "b": {"gpus": 0.5, "queue": "small", "team": "nlp"},
        "c": {"gpus": 8.0, "queue": "large", "team": "vision"},
        "d": {"gpus": 3.0},
    }
    story = [*wait("a", 0, 50), *wait("b", 0, 1), *wait("c", 0, 20), *wait("d", 0, 2)]
    books = tell(story, about, {0: "Unschedulable: 0/3 nodes are available", 4: "Priority"})
    assert [(g.by["size"], g.waits) for g in books.find_waits().rows] == [
        ("under 1", 1),
        ("2-3", 1),
        ("8", 1),
        ("9-16", 1),
    ]
    both = books.find_waits(["queue", "team"]).rows
    assert [(g.by["queue"], g.by["team"], g.wait_s_p50.value) for g in both] == [
        ("large", "nlp", 50 * MINUTE),
        ("large", "vision", 20 * MINUTE),
        ("small", "nlp", MINUTE),
        (None, None, 2 * MINUTE),
    ]
    assert [g.by["reason"] for g in books.find_waits(["reason"]).rows] == ["Priority", "Unschedulable", None]
    assert books.find_waits(where={"queue": "large", "team": "nlp"}).all.gpu_hours_waited == pytest.approx(50 / 60 * 16)
    assert books.find_waits().all.wait_s_p50_gpu_weighted.value == 50 * MINUTE


def test_time_waited_is_told_by_reason(tell: Tell) -> None:
    """A job waits for one reason until another is said: two hours of a dependency are no wait, one for resources is."""
    story = [
        ("a", "submitted", 0),
        ("a", "eligible", 120),
        ("a", "held", 150),
        ("a", "started", 180),
        *wait("b", 0, 30),
    ]
    books = tell(story, {"a": {"gpus": 4.0}}, {0: "Dependency", 1: "Resources", 2: "Priority: low", 3: "why it ended"})
    assert [(r.reason, r.gpu_hours_waited, r.waits) for r in books.find_waits().reasons] == [
        ("Priority", pytest.approx(2), 1),
        ("Resources", pytest.approx(2), 1),
        (None, pytest.approx(0.5), None),
    ]


def test_what_held_a_job_back_is_no_reason_of_its_wait(tell: Tell) -> None:
    """A dependency that was met after an hour: for the half hour that it could have started no reason was said."""
    found = tell([("a", "submitted", 0), ("a", "eligible", 60), ("a", "started", 90)], reasons={0: "Dependency"})
    assert [(r.reason, r.gpu_hours_waited) for r in found.find_waits().reasons] == [(None, pytest.approx(0.5))]
    assert [g.by["reason"] for g in found.find_waits(["reason"]).rows] == [None]


def test_a_window_asks_for_waits_that_began_in_it(tell: Tell) -> None:
    """They are followed to its end; those that had begun before are counted apart."""
    books = tell([*wait("old", 0, 300), *wait("gone", 0, 5), *wait("in", 70, 10), *wait("late", 80, 100)])
    found = books.find_waits((), at(60), at(120))
    assert (found.all.waits, found.all.started, found.all.waiting) == (2, 1, 1)
    assert found.waiting_since_before == 1
    assert [(w.job, w.waited_s) for w in found.longest_waiting] == [("late", 40 * MINUTE)]
    assert found.window == {"from": "2026-05-01T01:00:00Z", "to": "2026-05-01T02:00:00Z"}


def test_jobs_that_were_queued_before_anything_was_held_count(tmp_path: Path) -> None:
    """Without a start the window begins with the first wait: a job's submission, an hour before its allocation."""
    job = {"job_id": "a", "device_id": "g", "submitted_utc": ms(-60), "from_utc": ms(0), "to_utc": ms(60)}
    tables = full({"devices": [{"device_id": "g", "from_utc": ms(0), "to_utc": ms(90)}], "allocations": [job]})
    books = Books(tmp_path / "books")
    add(books, batches(tables), "all", tmp_path)
    found = books.find_waits()
    assert (found.all.waits, found.all.wait_s_p50.value, found.waiting_since_before) == (1, 60 * MINUTE, 0)
    assert found.window["from"] == "2026-04-30T23:00:00Z"
    assert books.find_waits(start=at(0)).waiting_since_before == 1


def test_a_job_in_the_queue_is_compared_with_those_that_waited_as_long(tell: Tell) -> None:
    """Twelve like it took 10 to 120 minutes; after 60, those of 70 to 120 tell: half within another 30."""
    story = [e for n in range(1, 25) for e in wait(f"j{n}", 0, n * 10)]
    story += [e for n in range(30) for e in wait(f"quick{n}", 0, 1)]
    about = {f"j{n}": {"gpus": 8.0, "queue": "large", "team": "nlp"} for n in range(1, 25)}
    about["me"] = {"gpus": 8.0, "queue": "large", "team": "nlp"}
    found = tell([*story, *wait("me", 300, None)], about).estimate_wait("me", end=at(360))
    assert (found.waited_s, found.n, found.started) == (3600, 18, 18)
    assert found.alike == ("size", "queue", "team")
    assert found.rest_s_p50.value == 90 * MINUTE  # the ninth of 70, 80 … 240 is 150
    assert found.rest_s_p50.low is not None
    assert found.rest_s_p50.low < 90 * MINUTE < (found.rest_s_p50.high or 0)


@pytest.mark.long
def test_where_too_few_are_alike_more_are_asked(tell: Tell) -> None:
    """Another team's jobs tell where its own are too few, then other queues', then all; never the job's own waits."""
    story = [e for n in range(1, 25) for e in wait(f"j{n}", 0, 60 + n)]
    about = {f"j{n}": {"gpus": 8.0, "queue": "large", "team": f"t{n}"} for n in range(1, 25)}
    for own, alike in (
        ({"gpus": 8.0, "queue": "large", "team": "nlp"}, ("size", "queue")),
        ({"gpus": 8.0, "queue": "other", "team": "nlp"}, ("size",)),
        ({"gpus": 1.0}, ()),
    ):
        books = tell([*story, *wait("me", 300, None)], about | {"me": own})
        found = books.estimate_wait("me", end=at(330))
        assert (found.alike, found.n) == (alike, 24)


def test_mistakes_are_named(tell: Tell) -> None:
    """Jobs that do not wait, dimensions and filters that are none."""
    books = tell([*wait("a", 0, 5), *wait("b", 0, 5, "cancelled"), *wait("c", 900, None)])
    for job, said in (
        ("a", "job 'a' does not wait: it started at 2026-05-01T00:05:00Z"),
        ("b", "job 'b' does not wait: it was cancelled at 2026-05-01T00:05:00Z"),
        ("x", "the books know of no wait of a job 'x'"),
    ):
        with pytest.raises(InputError, match=said):
            books.estimate_wait(job)
    with pytest.raises(InputError, match="no dimension of waits called 'sise'; did you mean 'size'"):
        books.find_waits(["sise"])
    with pytest.raises(InputError, match=r"no team called 'nlp'; `loadfactor waits --by team` lists them"):
        books.find_waits(where={"team": "nlp"})
    assert books.estimate_wait("c").rest_s_p50 == Interval(None, None, None)


@pytest.mark.long
@pytest.mark.parametrize("examples", rest_long((2, EXAMPLES)))
def test_waits_are_those_of_a_slow_loop(examples: int) -> None:
    """Random events, asked in random windows by random dimensions: the same groups, counts and quantiles, by fractions."""

    @settings(SETTINGS, max_examples=examples)
    @given(st.randoms(use_true_random=False))
    def run(rnd: random.Random) -> None:
        check_one(rnd)

    run()


def check_one(rnd: random.Random) -> None:
    fleet = Fleet(rnd)
    for table in ("allocations", "queue_events"):
        for row in fleet.tables[table]:
            row["queue"] = rnd.choice((None, "q1", "q2"))
    for row in fleet.tables["queue_events"]:
        row["reason"] = rnd.choice((None, "Priority", "Resources", "Unschedulable: 0/3 nodes"))
    with TemporaryDirectory() as folder:
        books = Books(Path(folder) / "store")
        add(books, batches(fleet.tables), "all", Path(folder))
        first, last = books.store.span()
        if first == last:
            return
        a, b = sorted(rnd.randint(first, last) for _ in "ab")
        a, b = (first, last) if rnd.randint(0, 2) == 0 or a == b else (a, b)
        by = rnd.sample(list(BY), rnd.choice((0, 1, 2)))
        zero = datetime(1970, 1, 1, tzinfo=UTC)
        found = books.find_waits(by, zero + timedelta(milliseconds=a), zero + timedelta(milliseconds=b))
        groups: dict[Any, list[Any]] = defaultdict(list)
        for w in list_waits(fleet.tables):
            if a <= w["queued"] < b:
                w["size"] = size_of(1.0 if w["gpus"] is None else w["gpus"])
                groups[tuple(w[BY[name]] for name in by)].append(w)
        assert {tuple(g.by.values()) for g in found.rows} == set(groups) | (set() if by else {()})
        for group in found.rows:
            compare(group, groups[tuple(group.by.values())], b)
        waited = sum(r.gpu_hours_waited for r in found.reasons)
        assert waited == pytest.approx(found.all.gpu_hours_waited, abs=1e-6)


def size_of(gpus: float) -> str:
    """The class of a few numbers of GPUs."""
    return next(
        name
        for most, name in ((0.99, "under 1"), (1, "1"), (3, "2-3"), (7, "4-7"), (8, "8"), (16, "9-16"))
        if gpus <= most
    )


def compare(group: WaitGroup, waits: list[Any], end: int) -> None:
    """A group says what its waits do, looked at one by one."""
    over = [w["ended"] is not None and w["ended"] < end for w in waits]
    started = [is_over and w["started"] for is_over, w in zip(over, waits, strict=True)]
    lasted = [((w["ended"] if is_over else end) - w["queued"]) for is_over, w in zip(over, waits, strict=True)]
    gpus = [1.0 if w["gpus"] is None else w["gpus"] for w in waits]
    assert (group.waits, group.started) == (len(waits), sum(started))
    assert group.waiting == len(waits) - sum(over)
    assert group.gpu_hours_waited == pytest.approx(sum(t * g for t, g in zip(lasted, gpus, strict=True)) / 3_600_000)
    for suffix, weights in (("", [1] * len(waits)), ("_gpu_weighted", [round(g * 420) for g in gpus])):
        true = multiply(list(zip(lasted, started, weights, strict=True)))
        for name, q in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
            reached = [t for t, share in true.items() if share <= 1 - q + 1e-9]
            said = getattr(group, f"wait_s_{name}{suffix}").value
            assert said == (pytest.approx(reached[0] / 1000) if reached else None)


def test_the_events_of_the_oracle_are_those_of_the_tables() -> None:
    """In the same order, which decides between reasons of one instant."""
    from loadfactor.tables.schema import EVENTS as OURS

    assert EVENTS == OURS
