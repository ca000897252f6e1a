"""Days of the ledger as tasks, at the terminal: listed, booked, published, and written for engines of clusters."""

import json
import subprocess
from pathlib import Path

import pytest
from tests.commands import Run, worked_example

from loadfactor.interfaces.engines.cluster_jobs import make_kubernetes_job, write_slurm_script


@pytest.fixture
def store(run: Run, tmp_path: Path) -> Path:
    """The worked example."""
    run("import", "tables", worked_example(tmp_path / "in"), "--store", tmp_path / "s")
    return tmp_path / "s"


@pytest.mark.long
def test_days_are_listed_booked_and_published(run: Run, store: Path) -> None:
    """Nothing is stale after an import; every day can be booked again, and no answer changes."""
    before = run("show", "--store", store, "--json")[1]
    assert json.loads(run("ledger", "plan", "--store", store, "--json")[1]) == {"tasks": []}
    (task,) = json.loads(run("ledger", "plan", "--all", "--store", store, "--json")[1])["tasks"]
    assert task["task"].startswith(task["day"])
    assert (task["store"], task["is_booked"]) == (str(store), False)
    code, out, _ = run("ledger", "book", "--task", task["task"], "--store", store)
    assert (code, out.splitlines()[0]) == (0, "1 day is booked and waits to be published.")
    assert json.loads(run("ledger", "plan", "--all", "--store", store, "--json")[1])["tasks"][0]["is_booked"]
    assert json.loads(run("ledger", "publish", "--store", store, "--json")[1]) == {
        "tasks": 1,
        "dropped": 0,
        "stale_hours": 0,
    }
    assert run("rebuild", "--store", store)[1] == "1 day is booked anew.\n"
    assert run("show", "--store", store, "--json")[1] == before


def test_refusals_are_a_line(run: Run, store: Path) -> None:
    """Engines and tasks that there are not, and combinations that mean nothing."""
    name = json.loads(run("ledger", "plan", "--all", "--store", store, "--json")[1])["tasks"][0]["task"]
    for words, expected in {
        ("book", "--all", "--engine", "hadoop"): "take local:N, spark, ray, slurm or kubernetes",
        ("book", "--all", "--engine", "local:0"): "whole number of processes",
        ("book", "--all", "--engine", "local:x"): "local:N",
        ("book", "--task", "2026-10-05"): "`loadfactor ledger plan` lists",
        ("book", "--task", f"{name[:-4]}0000"): "has changed",
        ("book", "--task", name, "--all"): "leave --all",
    }.items():
        code, out, err = run("ledger", *words, "--store", store)
        assert (code, out, err.count("\n")) == (2, "", 1), err
        assert expected in err


@pytest.mark.long
def test_a_job_of_kubernetes_is_printed(run: Run, store: Path) -> None:
    """An indexed Job whose shell gives each index its tasks; each task is in one of them."""
    code, out, _ = run("ledger", "book", "--all", "--engine", "kubernetes", "--store", store, "--json")
    job = json.loads(out)
    assert (code, job["kind"], job["spec"]["completionMode"], job["spec"]["completions"]) == (0, "Job", "Indexed", 1)
    names = [f"2026-10-{day:02d}-0123456789abcdef" for day in range(1, 31)] * 50
    spec = make_kubernetes_job(names, None, "books")["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    script = container["command"][-1].replace("exec loadfactor", "exec echo")
    booked: list[str] = []
    for index in range(spec["completions"]):
        environment = {"JOB_COMPLETION_INDEX": str(index), "PATH": "/usr/bin:/bin"}
        done = subprocess.run(["/bin/sh", "-c", script], env=environment, capture_output=True, text=True, check=True)
        booked += done.stdout.split()[-1].split(",")
    assert booked == names
    assert "persistentVolumeClaim" in json.dumps(spec)
    of_bucket = json.dumps(make_kubernetes_job(names, None, "books", Path("s3://gpus/books"))["spec"])
    assert "--store s3://gpus/books" in of_bucket
    assert "persistentVolumeClaim" not in of_bucket


def test_a_script_of_slurm_tries_again(tmp_path: Path) -> None:
    """Each index runs its tasks; what fails is tried three times, and then the index fails."""
    script = write_slurm_script(tmp_path, ["a", "b"])
    assert "#SBATCH --array=0-1\n" in script
    runs = tmp_path / "runs"
    begin = script.index("until ") + len("until ")
    broken = script[:begin] + f"{{ echo $tasks >>{runs}; false; }}; do\n" + script[script.index("  tries=") :]
    done = subprocess.run(["/bin/sh"], input=broken, text=True, env={"SLURM_ARRAY_TASK_ID": "1"}, check=False)
    assert (done.returncode, runs.read_text().split()) == (1, ["b"] * 3)
