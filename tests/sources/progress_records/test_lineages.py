"""Tests of runs over their restarts: what is lost, what nobody knows, what comes live and twice."""

import json
from collections import defaultdict
from typing import Any

import pytest

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import Gap, Input, ReadOptions, Rows
from loadfactor.sources.progress_records.decoder import decode_progress
from loadfactor.sources.progress_records.live_decoder import LiveProgressDecoder
from loadfactor.sources.progress_records.records import check_lines
from loadfactor.tables.schema import table

T0 = 1_790_000_000_000
Record = dict[str, Any]


def make_process(name: str, at_s: float, *records: Record, **said: Any) -> list[Record]:
    """The lines of a process: its first one, and records numbered from 1 on."""
    begin = {"kind": "begin", "format": 1, "id": name, "at": at(at_s), "job": "j", "host": name, "pid": 1, "n": 0}
    return [begin | said, *({**record, "n": n} for n, record in enumerate(records, 1))]


def at(second: float) -> int:
    return T0 + round(second * 1000)


def work(from_s: float, to_s: float, first: int | None, steps: int, **amounts: Any) -> Record:
    number = {} if first is None else {"step": first}
    return {"kind": "work", "from": at(from_s), "to": at(to_s), **number, "steps": steps, **amounts}


def decode(*processes: list[Record]) -> tuple[list[Record], list[Gap]]:
    files = [
        Input(f"{n}.jsonl", [b"".join(json.dumps(r).encode() + b"\n" for r in p)]) for n, p in enumerate(processes)
    ]
    items = list(decode_progress(files, ReadOptions()))
    rows = [
        row for item in items if isinstance(item, Rows) and item.table == "progress" for row in item.data.to_pylist()
    ]
    return rows, [item for item in items if isinstance(item, Gap)]


def total(rows: list[Record]) -> dict[tuple[str, bool], float]:
    found: defaultdict[tuple[str, bool], float] = defaultdict(float)
    for row in rows:
        found[row["unit"], row["kept"]] += row["amount"]
    return {key: amount for key, amount in found.items() if amount}


def test_the_first_part_of_a_step_that_comes_again_is_kept() -> None:
    """A process goes back with the first micro-batch of a step: it is part of the step that is kept."""
    flops = {"kind": "flops", "at": at(3), "model_flops": 6, "step": 1, "last": 2}
    first_time = (work(0, 1, 1, 1, samples=8), work(1, 2, 2, 1, samples=8), flops, work(3, 4, 3, 1, samples=8))
    again = (work(5, 6, 2, 0, samples=5), work(6, 7, 2, 1, samples=3), work(7, 8, 3, 1, samples=9))
    rows, gaps = decode(make_process("a", 0, *first_time, *again))
    assert not gaps
    found = total(rows)
    assert (found["train_sample", True], found["train_sample", False]) == (8 + 5 + 3 + 9, 8 + 8)
    assert (found["step", True], found["step", False]) == (3, 2)
    assert (found["model_flop", True], found["model_flop", False]) == (3, 3)


def test_steps_of_unlike_size_are_lost_one_by_one() -> None:
    """Where a restart goes back into the middle of a record, each step takes its own tokens with it."""
    first = make_process("a", 0, work(0, 10, 0, 4, tokens=[1, 2, 3, 4]))
    again = make_process("b", 20, work(20, 30, 2, 3, tokens=[30, 40, 50]))
    rows, _ = decode(first, again)
    assert total(rows) == {
        ("step", True): 5, ("step", False): 2, ("train_token", True): 123, ("train_token", False): 7
    }  # fmt: skip


def test_going_back_inside_of_a_process_loses_what_came_before() -> None:
    """A run that loads an earlier checkpoint in the same process lost the steps that it makes again."""
    rows, _ = decode(make_process("a", 0, work(0, 10, 0, 10), work(10, 20, 5, 10)))
    assert total(rows) == {("step", True): 15, ("step", False): 5}


def test_processes_at_the_same_time_replace_nothing() -> None:
    """Two processes that say the same numbers while both work are two pieces of work."""
    rows, _ = decode(make_process("a", 0, work(0, 30, 0, 10)), make_process("b", 10, work(10, 40, 0, 10)))
    assert total(rows) == {("step", True): 20}


def test_steps_without_numbers_are_kept() -> None:
    """Where no step has a number nobody knows what was lost: all of it is kept."""
    rows, _ = decode(make_process("a", 0, work(0, 9, None, 10)), make_process("b", 10, work(10, 20, None, 10)))
    assert total(rows) == {("step", True): 20}


def test_numbers_that_begin_anew_with_every_epoch_lose_nothing() -> None:
    """A loop that counts from 0 in every epoch is not taken for one that goes back, and the import says so."""
    epoch = {"kind": "epoch", "at": at(10), "step": 9}
    rows, gaps = decode(make_process("a", 0, work(0, 10, 0, 10), epoch, work(11, 20, 0, 10)))
    assert total(rows) == {("step", True): 20, ("epoch", True): 1}
    assert ["anew in every epoch" in gap.what for gap in gaps] == [True]


def test_an_epoch_is_lost_with_its_last_step() -> None:
    """An epoch whose last step comes again is counted where it ended the second time."""
    epoch = {"kind": "epoch", "step": 9, "epoch": 0}
    first = make_process("a", 0, work(0, 10, 0, 10), {**epoch, "at": at(10)}, work(11, 12, 10, 2))
    again = make_process("b", 20, work(20, 30, 5, 10), {**epoch, "at": at(26)})
    assert total(decode(first, again)[0])[("epoch", False)] == 1
    assert total(decode(first, again)[0])[("epoch", True)] == 1


def test_epochs_of_one_instant_are_all_counted() -> None:
    """Epochs that end in the same millisecond are one row, with as many as there were."""
    epochs = [{"kind": "epoch", "at": at(10), "epoch": number, "step": 9} for number in range(3)]
    rows, _ = decode(make_process("a", 0, work(0, 10, 0, 10), *epochs))
    assert [row["amount"] for row in rows if row["unit"] == "epoch"] == [3.0]


def test_a_run_goes_on_under_another_job() -> None:
    """With one W&B run id the second job makes the first one's steps lost; each row stays with its own job."""
    first = make_process("a", 0, work(0, 10, 0, 10), job="71", run="w1")
    again = make_process("b", 20, work(20, 30, 5, 10), job="72", run="w1")
    rows, _ = decode(first, again)
    assert {row["job_id"] for row in rows if not row["kept"]} == {"71"}
    assert total(rows) == {("step", True): 15, ("step", False): 5}


def test_half_a_line_is_a_gap() -> None:
    """The half of a line at a file's end is counted; everything else is read."""
    lines = b"".join(json.dumps(r).encode() + b"\n" for r in make_process("a", 0, work(0, 10, 0, 10)))
    items = list(decode_progress([Input("a", [lines + b'{"kind":"wo'])], ReadOptions()))
    assert [item.what for item in items if isinstance(item, Gap)] == ["lines that cannot be read: one is not JSON"]
    assert sum(item.data.num_rows for item in items if isinstance(item, Rows)) == 1


def test_what_comes_live_makes_the_rows_of_the_files() -> None:
    """Records that come in pieces, twice and over a restart of the server make the rows that their files make."""
    first = make_process("a", 0, *(work(n, n + 1, n, 1, tokens=n) for n in range(150)))
    again = make_process("b", 200, *(work(n + 100, n + 101, n, 1, tokens=n) for n in range(100, 160)))
    told: dict[tuple[Any, ...], Record] = {}
    decoder = LiveProgressDecoder("")
    for process in (first, again):
        for start in range(1, len(process), 7):
            decoder.feed([process[0], *process[max(1, start - 3) : start + 7]])
            for item in decoder.drain():
                assert isinstance(item, Rows)
                told |= {tuple(row.get(c) for c in table(item.table).key): row for row in item.data.to_pylist()}
            decoder = LiveProgressDecoder("", decoder.state())
    assert total(list(told.values())) == total(decode(first, again)[0])
    assert total(list(told.values()))[("step", False)] == 50


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        ([b"{"], "line 1 is not JSON"),
        ([b'{"kind":"end","at":1790000000000,"n":1}'], "line 1 comes before"),
        ([b'{"kind":"begin","format":9}'], "line 1 has format 9"),
        ([json.dumps(make_process("a", 0)[0] | {"job": ""}).encode()], "line 1 job '' is no name"),
    ],
)
def test_a_body_that_is_none_is_refused_with_its_line(lines: list[bytes], wrong: str) -> None:
    """What a server is sent is checked before it is acknowledged; the refusal names the line."""
    with pytest.raises(SourceError, match=wrong):
        check_lines(lines)
