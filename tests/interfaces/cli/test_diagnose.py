"""`loadfactor diagnose` at the terminal: the contract's JSON, the page, several files of which one is broken, and mistakes."""

import json
from pathlib import Path

from tests.commands import Run

import loadfactor

TRACE = Path(__file__).resolve().parents[3] / "examples" / "trace.json"
PROMISED = {
    *("trace", "rank", "device", "gpu_span_us", "busy_us", "idle_us", "compute_us", "comm_us", "comm_exposed_us"),
    *("memcpy_exposed_us", "memset_exposed_us", "idle_host_us", "idle_launch_us", "idle_device_us", "idle_unknown_us"),
    *("kernels", "can_judge"),
}


def test_json_has_what_was_promised(run: Run) -> None:
    """Every name of the contract is there; the example waits 90 of 129.99 ms for its data."""
    code, out, _ = run("diagnose", TRACE, "--format", "json")
    found = json.loads(out)
    (trace,) = found["traces"]
    assert code == 0
    assert set(trace) >= PROMISED
    assert (trace["trace"], trace["rank"], trace["device"], trace["can_judge"]) == ("trace.json", 0, 0, True)
    first = found["findings"][0]
    assert {"cause", "class", "share", "sureness", "evidence", "action"} <= set(first)
    assert (first["cause"], first["class"], round(first["share"], 3)) == ("input_pipeline", "I/O", 0.692)


def test_the_page_says_the_cause_first(run: Run) -> None:
    """A person reads the largest cause on top, and what to do."""
    code, out, _ = run("diagnose", TRACE)
    assert code == 0
    assert out.startswith("input_pipeline first")
    assert "num_workers" in out


def test_a_broken_file_among_others_is_said(run: Run, tmp_path: Path) -> None:
    """One file that cannot be read does not hide the others, and is said; alone it is a mistake in one line."""
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    code, out, _ = run("diagnose", TRACE, broken, "--format", "json")
    judged = {trace["trace"]: trace["can_judge"] for trace in json.loads(out)["traces"]}
    assert (code, judged) == (0, {"trace.json": True, "broken.json": False})
    assert str(broken) in json.loads(out)["traces"][1]["because"][0]
    code, _, said = run("diagnose", broken)
    assert code == 2
    assert len(said.strip().splitlines()) == 1


def test_without_traces_the_fleet_is_diagnosed(run: Run) -> None:
    """Without a trace the books are asked; where there are none, it is said how to begin."""
    code, _, said = run("diagnose")
    assert code == 2
    assert "no books" in said
    assert len(said.strip().splitlines()) == 1


def test_the_same_in_python() -> None:
    """The function takes what the command takes."""
    page = loadfactor.diagnose(trace=[TRACE])
    assert page.data.findings[0].cause == "input_pipeline"
    assert "input_pipeline" in repr(page)
