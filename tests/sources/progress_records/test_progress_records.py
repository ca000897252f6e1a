"""Runs that track themselves: kills, restarts, ranks, forks, full disks, a thousand writers; what is lost and what nobody knows."""

import json
import os
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from packages.track.tests.loops import read_lines, run_loop

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import Gap, Input, ReadOptions, Rows
from loadfactor.sources.progress_records import SOURCE
from loadfactor.sources.progress_records.decoder import decode_progress
from loadfactor.sources.progress_records.live_decoder import LiveProgressDecoder
from loadfactor.sources.progress_records.records import check_lines
from loadfactor.tables.schema import table


def read_rows(folder: Path) -> tuple[dict[str, list[dict[str, Any]]], list[Gap]]:
    """Rows by table, and gaps, that an import of a folder makes."""
    rows: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    gaps = []
    for item in SOURCE.read(SOURCE.files((folder,)), ReadOptions()):
        if isinstance(item, Rows):
            rows[item.table] += item.data.to_pylist()
        else:
            gaps.append(item)
    return rows, gaps


def total(rows: list[dict[str, Any]], unit: str, kept: bool = True) -> float:
    """How much of a unit was kept, or lost."""
    return sum(row["amount"] for row in rows if row["unit"] == unit and row["kept"] is kept)


LOOP = """
start, stop, die = {}
with loadfactor.track(experiment="ft-42", job="ft-42") as run:
    for step in range(start, stop):
        time.sleep(0.01)
        if step == die:
            wait_until(lambda: count_written() == step - start)
            os.kill(os.getpid(), 9)
        run.step(step=step, samples=32, tokens=4096, padded_tokens=5000 + step)
"""


def test_a_killed_run_that_is_resumed_keeps_each_step_once(tmp_path: Path) -> None:
    """What the second process did again was lost in the first one; each number is kept once, with its own amounts."""
    assert run_loop(LOOP.format((0, 100, 80)), tmp_path).returncode == -9
    assert run_loop(LOOP.format((50, 100, -1)), tmp_path).stderr == ""
    rows, gaps = read_rows(tmp_path)
    progress = rows["progress"]
    assert not gaps
    assert total(progress, "step") == 100
    assert total(progress, "train_token") == 100 * 4096
    assert total(progress, "padded_token") == sum(5000 + step for step in range(100))
    assert total(progress, "step", kept=False) == 80 - 50
    assert total(progress, "train_sample", kept=False) == 32 * (80 - 50)
    assert {row["cause"] for row in progress if not row["kept"]} == {"restart"}


def test_what_was_said_is_on_the_disk_while_the_run_goes_on(tmp_path: Path) -> None:
    """A process that is killed a moment after a step has it in its file, as a whole line."""
    wait = "wait_until(lambda: count_written() == 1)"
    code = f"run = loadfactor.track(job='j').__enter__()\nrun.step(step=1)\n{wait}\nos.kill(os.getpid(), 9)"
    assert run_loop(code, tmp_path).returncode == -9
    assert [line["step"] for line in read_lines(tmp_path) if line["kind"] == "work"] == [1]


def test_global_counts_are_reported_by_rank_0_alone(tmp_path: Path) -> None:
    """Of two ranks that say what both did, one is counted; the other writes nothing."""
    for rank in "01":
        run_loop(LOOP.format((0, 3, -1)), tmp_path, RANK=rank, WORLD_SIZE="2")
    rows, _ = read_rows(tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    assert total(rows["progress"], "train_sample") == 3 * 32


def test_counts_of_ranks_add_up(tmp_path: Path) -> None:
    """Of two ranks that say what each did itself, amounts are the sum; a step of both is one step."""
    code = LOOP.format((0, 100, -1)).replace('job="ft-42"', 'job="ft-42", counts="rank"')
    with ThreadPoolExecutor() as both:
        for rank in "01":
            both.submit(run_loop, code, tmp_path, SLURM_PROCID=rank, SLURM_NTASKS="2")
    rows, _ = read_rows(tmp_path)
    assert total(rows["progress"], "train_sample") == 2 * 100 * 32
    assert total(rows["progress"], "step") == 100


@pytest.mark.parametrize("pause_s", [0, 0.03])
def test_micro_batches_are_parts_of_a_step(tmp_path: Path, pause_s: float) -> None:
    """Calls with one number, or all but the last not done, are one step with the sum of what they say."""
    code = """
with loadfactor.track(job="j") as run:
    for step in range(3):
        for _ in range(4):
            run.step(step=step, samples=2)
            time.sleep(PAUSE_S)
    for _ in range(2):
        run.step(samples=1, done=False)
        time.sleep(0.06)
        run.step(samples=1)
"""
    assert run_loop(code.replace("PAUSE_S", f"{pause_s}"), tmp_path).stderr == ""
    rows, _ = read_rows(tmp_path)
    assert (total(rows["progress"], "step"), total(rows["progress"], "train_sample")) == (5, 28)


def test_sections_epochs_and_flops_are_kept(tmp_path: Path) -> None:
    """Sections become rows of job_sections, epochs and FLOPs progress; tensors of one value are numbers."""
    code = """
class Tensor:
    def item(self): return 7.0
with loadfactor.track(job="j") as run:
    with run.section("checkpoint"):
        time.sleep(0.02)
    run.step(step=1, samples=Tensor())
    run.flops(3e15)
    run.epoch()
    run.step(step=2, samples=float("nan"), model_flops=1e15)
"""
    assert run_loop(code, tmp_path).stderr == ""
    rows, _ = read_rows(tmp_path)
    (section,) = rows["job_sections"]
    assert section["kind"] == "checkpoint"
    assert 15 <= section["to_utc"] - section["from_utc"] <= 2000
    units = {unit: total(rows["progress"], unit) for unit in ("train_sample", "epoch", "step", "model_flop")}
    assert units == {"train_sample": 7, "epoch": 1, "step": 2, "model_flop": 4e15}


def test_a_forked_process_is_not_the_run(tmp_path: Path) -> None:
    """What a fork says, or ends, is its parent's business alone; the parent's records are whole."""
    code = """
with loadfactor.track(job="j") as run:
    run.step(step=1)
    child = os.fork()
    if child == 0:
        run.step(step=2)
        sys.exit(0)
    os.waitpid(child, 0)
    run.step(step=2)
"""
    said = run_loop(code, tmp_path)
    assert said.returncode == 0
    assert "in the process that entered it" in said.stderr
    kinds = [line["kind"] for line in read_lines(tmp_path)]
    assert (kinds[0], kinds[-1], kinds.count("end")) == ("begin", "end", 1)
    assert total(read_rows(tmp_path)[0]["progress"], "step") == 2


def test_a_disk_that_takes_nothing_costs_records_and_no_step(tmp_path: Path) -> None:
    """Where nothing can be written the run goes on, says so once, and counts what it could not keep."""
    (tmp_path / "file").touch()
    code = """
with loadfactor.track(job="j") as run:
    for step in range(50):
        run.step(step=step)
        time.sleep(0.005)
print(run.dropped > 0)
"""
    said = run_loop(code, tmp_path / "file")
    assert (said.returncode, said.stdout, said.stderr.count("loadfactor:")) == (0, "True\n", 1)


def test_a_run_that_fails_says_so_and_raises_its_own_error(tmp_path: Path) -> None:
    """An error inside of `with` is raised as it is, and the last line says that the run failed."""
    said = run_loop("with loadfactor.track(job='j') as run:\n    raise KeyError('mine')", tmp_path)
    assert said.stderr.endswith("KeyError: 'mine'\n")
    assert read_lines(tmp_path)[-1]["state"] == "failed"


def test_a_job_is_called_as_its_scheduler_calls_it(tmp_path: Path) -> None:
    """Slurm's number, a pod's namespace and name, or what LOADFACTOR_JOB says, is the job."""
    code = "with loadfactor.track() as run: run.step()"
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "POD_NAMESPACE": "ml", "HOSTNAME": "train-0"}
    array = {"SLURM_JOB_ID": "73", "SLURM_ARRAY_JOB_ID": "71", "SLURM_ARRAY_TASK_ID": "2"}
    for name, variables in (("ml/train-0", pod), ("71_2", array), ("mine", {**pod, "LOADFACTOR_JOB": "mine"})):
        folder = tmp_path / name.replace("/", "-")
        run_loop(code, folder, LOADFACTOR_EXPERIMENT="e-1", **variables)
        begin = read_lines(folder)[0]
        assert (begin["job"], begin["experiment"]) == (name, "e-1")


def test_importing_it_loads_nothing_heavy(tmp_path: Path) -> None:
    """`loadfactor.track` needs none of the libraries that the books need."""
    code = "import loadfactor\nloadfactor.track\n"
    code += "print({'numpy', 'duckdb', 'pyarrow', 'http.client', 'ssl', 'torch'} & set(sys.modules))"
    assert run_loop(code, tmp_path, PATH=os.environ["PATH"]).stdout == "set()\n"


PROCESSES, STEPS = 1000, 5

THOUSAND = f"""
import signal
with loadfactor.track(job="warm"):
    pass
children = []
for place in range({PROCESSES}):
    child = os.fork()
    if child == 0:
        run = loadfactor.track(job="many").__enter__()
        for _ in range({STEPS}):
            run.step(samples=1)
        wait_until(lambda: run._recorder._file and run._recorder._file.size > 300)
        if place % 2:
            os.kill(os.getpid(), signal.SIGKILL)
        run.__exit__(None, None, None)
        os._exit(0)
    children.append(child)
for child in children:
    os.waitpid(child, 0)
"""


@pytest.mark.long
def test_a_thousand_processes_lose_nothing(tmp_path: Path) -> None:
    """Every step that any of them wrote is counted once, whoever was killed afterwards."""
    assert run_loop(THOUSAND, tmp_path).stderr == ""
    rows, gaps = read_rows(tmp_path)
    assert not gaps
    assert len(list(tmp_path.glob("many-*"))) == PROCESSES
    assert total(rows["progress"], "step") == PROCESSES * STEPS


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
    texts = [b"".join(json.dumps(record).encode() + b"\n" for record in process) for process in processes]
    items = list(decode_progress([Input(f"{n}.jsonl", [text]) for n, text in enumerate(texts)], ReadOptions()))
    tables = [item.data for item in items if isinstance(item, Rows) and item.table == "progress"]
    rows = [row for table in tables for row in table.to_pylist()]
    return rows, [item for item in items if isinstance(item, Gap)]


def lineage_total(rows: list[Record]) -> dict[tuple[str, bool], float]:
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
    found = lineage_total(rows)
    assert (found["train_sample", True], found["train_sample", False]) == (8 + 5 + 3 + 9, 8 + 8)
    assert (found["step", True], found["step", False]) == (3, 2)
    assert (found["model_flop", True], found["model_flop", False]) == (3, 3)


def test_steps_of_unlike_size_are_lost_one_by_one() -> None:
    """Where a restart goes back into the middle of a record, each step takes its own tokens with it."""
    first = make_process("a", 0, work(0, 10, 0, 4, tokens=[1, 2, 3, 4]))
    again = make_process("b", 20, work(20, 30, 2, 3, tokens=[30, 40, 50]))
    rows, _ = decode(first, again)
    assert lineage_total(rows) == {
        ("step", True): 5, ("step", False): 2, ("train_token", True): 123, ("train_token", False): 7
    }  # fmt: skip


@pytest.mark.parametrize(
    ("processes", "kept", "lost"),
    [
        # a run that loads an earlier checkpoint in the same process lost the steps that it makes again
        ([make_process("a", 0, work(0, 10, 0, 10), work(10, 20, 5, 10))], 15, 5),
        # two processes that give the same numbers while both work are two pieces of work
        ([make_process("a", 0, work(0, 30, 0, 10)), make_process("b", 10, work(10, 40, 0, 10))], 20, 0),
        # where no step has a number nobody knows what was lost: all of it is kept
        ([make_process("a", 0, work(0, 9, None, 10)), make_process("b", 10, work(10, 20, None, 10))], 20, 0),
    ],
)
def test_steps_are_lost_where_they_come_again_later(processes: list[list[Record]], kept: int, lost: int) -> None:
    """Going back loses what came before; work at the same time, or without numbers, replaces nothing."""
    rows, _ = decode(*processes)
    assert lineage_total(rows) == {("step", True): kept} | ({("step", False): lost} if lost else {})


def test_numbers_that_begin_anew_with_every_epoch_lose_nothing() -> None:
    """A loop that counts from 0 in every epoch is not taken for one that goes back, and the import says so."""
    epoch = {"kind": "epoch", "at": at(10), "step": 9}
    rows, gaps = decode(make_process("a", 0, work(0, 10, 0, 10), epoch, work(11, 20, 0, 10)))
    assert lineage_total(rows) == {("step", True): 20, ("epoch", True): 1}
    assert ["anew in every epoch" in gap.what for gap in gaps] == [True]


def test_an_epoch_is_lost_with_its_last_step() -> None:
    """An epoch whose last step comes again is counted where it ended the second time."""
    epoch = {"kind": "epoch", "step": 9, "epoch": 0}
    first = make_process("a", 0, work(0, 10, 0, 10), {**epoch, "at": at(10)}, work(11, 12, 10, 2))
    again = make_process("b", 20, work(20, 30, 5, 10), {**epoch, "at": at(26)})
    assert lineage_total(decode(first, again)[0])[("epoch", False)] == 1
    assert lineage_total(decode(first, again)[0])[("epoch", True)] == 1


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
    assert lineage_total(rows) == {("step", True): 15, ("step", False): 5}


@pytest.mark.parametrize("amount", [1e300, 1e30, -1.0, float("nan"), [1e24, 1e24]])
def test_work_that_nobody_makes_is_left_out(amount: Any) -> None:
    """An amount that cannot be costs its record, also where only the sum of the steps shows it, and no others."""
    rows, gaps = decode(make_process("p", 0, work(0, 1, 1, 2, tokens=amount), work(60, 61, 9, 1, tokens=7.0)))
    assert lineage_total(rows) == {("train_token", True): 7.0, ("step", True): 1.0}
    assert [gap.count for gap in gaps if "cannot be read" in gap.what] == [1]


def test_half_a_line_is_a_gap() -> None:
    """The half of a line at a file's end is counted; everything else is read."""
    lines = b"".join(json.dumps(r).encode() + b"\n" for r in make_process("a", 0, work(0, 10, 0, 10)))
    items = list(decode_progress([Input("a", [lines + b'{"kind":"wo'])], ReadOptions()))
    assert [item.what for item in items if isinstance(item, Gap)] == ["lines that cannot be read: one is not JSON"]
    assert [item.data.num_rows for item in items if isinstance(item, Rows)] == [1, 1]  # of progress, and whose it is


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
                if item.table != "progress":
                    continue
                told |= {tuple(row.get(c) for c in table(item.table).key): row for row in item.data.to_pylist()}
            decoder = LiveProgressDecoder("", decoder.state())
    assert lineage_total(list(told.values())) == lineage_total(decode(first, again)[0])
    assert lineage_total(list(told.values()))[("step", False)] == 50


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
