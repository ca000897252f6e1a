"""Tests of runs that track themselves: kills, restarts, ranks, micro-batches, forks, full disks."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from packages.track.tests.loops import read_lines, run_loop
from tests.sources.progress_records.tracked import read_rows, total

LOOP = """
start, stop, die = {}
with loadfactor.track(experiment="ft-42", job="ft-42") as run:
    for step in range(start, stop):
        time.sleep(0.01)
        if step == die:
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
    lost = total(progress, "step", kept=False)
    assert 15 <= lost <= 30
    assert total(progress, "train_sample", kept=False) == 32 * lost
    assert {row["cause"] for row in progress if not row["kept"]} == {"restart"}


def test_what_was_said_is_on_the_disk_within_a_tenth_of_a_second(tmp_path: Path) -> None:
    """A process that is killed a moment after a step has it in its file, as a whole line."""
    code = "run = loadfactor.track(job='j').__enter__()\nrun.step(step=1)\ntime.sleep(0.5)\nos.kill(os.getpid(), 9)"
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
