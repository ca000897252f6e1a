"""Two lines in a loop reach the money: with a log of the GPU before or after, named by its run or by nobody, and live."""

import time
from collections.abc import Sequence
from datetime import UTC
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from packages.track.tests.loops import run_loop
from tests.live.up_process import UpProcess
from tests.sources.prometheus.sender import SentSeries, pack_request
from typer.testing import CliRunner

from loadfactor.base.errors import InputError
from loadfactor.books.books import Books
from loadfactor.interfaces.cli import app
from loadfactor.settings.config import settings
from loadfactor.sources.base import ReadOptions

GPU = "GPU-5d1e0aaa-0000-0000-0000-000000000001"
TOKENS = 3 * 4096
LOOP = """
class Weight:
    dtype = "torch.bfloat16"
    def numel(self): return 10**9
    def dim(self): return 2
class Model:
    def parameters(self): return iter([Weight()])
    def modules(self): return iter([self])
with loadfactor.track(experiment="ft-42", model=Model()) as run:
    for step in range(3):
        time.sleep({})
        run.step(step=step, samples=1, tokens=4096)
"""
METRICS = ("cost_per_token", "cost", "mfu", "allocated_gpu_hours")


def write_log(path: Path, gpu: str, from_s: int, to_s: int) -> Path:
    """A log of one GPU, a row a second."""
    rows = [
        time.strftime("%Y/%m/%d %H:%M:%S.000", time.gmtime(at)) + f", {gpu}, NVIDIA H100 80GB HBM3, 95 %"
        for at in range(from_s, to_s)
    ]
    path.write_text("\n".join(["timestamp, uuid, name, utilization.gpu [%]", *rows, ""]))
    return path


def read_experiment(books: Books, name: str = "ft-42") -> dict[str, Any]:
    """The metrics of an experiment."""
    found = books.show(METRICS, "experiment")
    place = found.keys.index((name,))
    return {metric: found.column(metric)[place] for metric in METRICS}


@pytest.fixture(scope="module")
def tracked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folder of a run that knew its GPU, and a log of that GPU from two seconds before it to two after."""
    folder = tmp_path_factory.mktemp("tracked")
    began_s = int(time.time())
    assert run_loop(LOOP.format(0.4), folder / "progress", CUDA_VISIBLE_DEVICES=GPU).stderr == ""
    return folder / "progress", write_log(folder / "gpu.csv", GPU, began_s - 2, int(time.time()) + 3)


def import_in_order(store: Path, tracked: tuple[Path, Path], order: Sequence[str], job: str | None) -> Books:
    """Books of a run and its log, the one or the other first."""
    progress, log = tracked
    books = Books(store)
    options = ReadOptions(timezone=UTC, node="n1", held_by=job, price_per_gpu_hour=2.0)
    for source in order:
        books.add(source, [log if source == "nvidia-smi" else progress], options if source == "nvidia-smi" else None)
    return books


@pytest.mark.long
@pytest.mark.parametrize("job", ["ft-42", None])
def test_both_orders_of_import_give_one_answer(tmp_path: Path, tracked: tuple[Path, Path], job: str | None) -> None:
    """A run and a log of its GPU give cost per token, MFU and experiment, in any order; with no --job, by the GPU alone."""
    found = []
    for number, order in enumerate(permutations(("nvidia-smi", "progress"))):
        books = import_in_order(tmp_path / f"{number}", tracked, order, job)
        found.append(read_experiment(books))
        (run,) = {key[0] for key in books.show("cost_per_token", "job").keys} - {None, "unknown holder"}
        assert (run or "").endswith(" ft-42"), "both are one job, which is called as the tracker calls it"
    assert found[0] == found[1]
    one = found[0]
    assert one["cost_per_token"] == pytest.approx(one["cost"] / TOKENS)
    assert one["cost"] == pytest.approx(2.0 * one["allocated_gpu_hours"])
    assert one["mfu"] == pytest.approx(TOKENS * 6e9 / (one["allocated_gpu_hours"] * 3600 * 989.4e12), rel=1e-3)


@pytest.mark.long
def test_an_experiment_of_several_runs_is_refused_with_their_ids(tmp_path: Path, tracked: tuple[Path, Path]) -> None:
    """--job takes an experiment's name while one run has it; of two it names the ids, and takes one of them."""
    progress, log = tracked
    run_loop(LOOP.format(0), progress.parent / "more", SLURM_JOB_ID="71")
    books = Books(tmp_path / "s")
    for folder in (progress, progress.parent / "more"):
        books.add("progress", [folder])
    with pytest.raises(InputError, match=r"--job ft-42: 2 runs have that name; give the id of one: 71, '\w+ ft-42'"):
        books.add("nvidia-smi", [log], ReadOptions(timezone=UTC, held_by="ft-42"))
    books.add("nvidia-smi", [log], ReadOptions(timezone=UTC, held_by="71"))
    assert ("71",) in books.show("allocated_gpu_hours", "job").keys


@pytest.mark.long
def test_labels_come_before_what_a_run_sees(tmp_path: Path, tracked: tuple[Path, Path]) -> None:
    """A GPU that a log gives somebody else is not the run's, though the run sees it: a GPU is never booked twice."""
    books = import_in_order(tmp_path / "s", tracked, ("nvidia-smi", "progress"), "other")
    held = books.show("allocated_gpu_hours", "job")
    assert held.keys == [("other",)]
    assert held[0].value == pytest.approx(books.show("paid_gpu_hours")[0].value)


@pytest.mark.long
@pytest.mark.parametrize(
    ("match", "is_known"),
    [('experiment = "ft-*"', True), ('job = "* ft-42"', True), ('user = "*"', True), ('team = "x"', False)],
)
def test_networks_match_runs_by_who_they_are(
    tmp_path: Path, tracked: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, match: str, is_known: bool
) -> None:
    """[[network]] takes job, experiment, user and team of a run, and comes before what the run says of itself."""
    text = f"[[network]]\nmatch = {{ {match} }}\nmodel = 'llama-3.1-8b'\nsequence_length = 4096\ndatatype = 'fp16'\n"
    (tmp_path / "loadfactor.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    settings.cache_clear()
    books = import_in_order(tmp_path / "s", tracked, ("nvidia-smi", "progress"), "ft-42")
    found = read_experiment(books)
    mfu_of_model = TOKENS * 6e9 / (found["allocated_gpu_hours"] * 3600 * 989.4e12)
    assert (found["mfu"] > 5 * mfu_of_model) is is_known


@pytest.mark.long
def test_what_was_made_outside_held_time_has_no_cost(tmp_path: Path, tracked: tuple[Path, Path]) -> None:
    """A log of a part of the run has the part of its tokens in a cost, and the doctor says how much has none."""
    progress, log = tracked
    lines = log.read_text().splitlines(keepends=True)
    (tmp_path / "gpu.csv").write_text("".join(lines[:4]))
    books = import_in_order(tmp_path / "s", (progress, tmp_path / "gpu.csv"), ("progress", "nvidia-smi"), "ft-42")
    found = read_experiment(books)
    counted = found["cost"] / found["cost_per_token"] if found["cost_per_token"] else 0.0
    assert counted < TOKENS
    assert any("outside the time that they held GPUs" in finding.what for finding in books.check().findings)


@pytest.mark.long
def test_progress_without_gpus_says_what_is_missing(tmp_path: Path) -> None:
    """Books that know a run and no GPU say which command brings it, and no window is blamed."""
    run_loop(LOOP.format(0), tmp_path / "progress")
    Books(tmp_path / "s").add("progress", [tmp_path / "progress"])
    said = CliRunner().invoke(app, ["show", "cost_per_token", "--by", "experiment", "--store", str(tmp_path / "s")])
    text = " ".join((said.output + str(said.exception or "")).split())
    assert "no GPU" in text
    assert "loadfactor import nvidia-smi" in text
    assert "--job ft-42" in text
    assert "widen" not in text


@pytest.mark.long
def test_a_run_and_its_gpu_are_joined_live(tmp_path: Path) -> None:
    """`loadfactor up` is sent progress and samples of the GPU that the run sees: by experiment, the cost of a token."""
    labels = {"UUID": GPU, "gpu": "0", "Hostname": "n1", "modelName": "NVIDIA H100 80GB HBM3"}
    began_ms = int(time.time() * 1000)
    with UpProcess(tmp_path / "books") as up:
        assert run_loop(LOOP.format(1), tmp_path / "p", LOADFACTOR_URL=up.url, CUDA_VISIBLE_DEVICES=GPU).stderr == ""
        samples = [(at_ms, 95.0) for at_ms in range(began_ms, int(time.time() * 1000) + 1000, 1000)]
        body = pack_request([SentSeries({"__name__": "DCGM_FI_DEV_GPU_UTIL", **labels}, samples)])
        up.wait_until(lambda: up.write(body) < 300)  # a busy machine takes its time to begin
        up.wait_until_booked()
        found = {metric: up.readings(metric, "experiment")["ft-42"] or 0.0 for metric in METRICS}
    assert found["cost_per_token"] == pytest.approx(found["cost"] / TOKENS, rel=0.02)
    assert found["mfu"] > 0
