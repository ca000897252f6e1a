"""Every case kept as data holds, and a case that is marked as falling short still does."""

import os
from pathlib import Path

import pytest
from tests.cases.case_runner import ENVIRONMENT, read_case, run_case
from tests.commands import Run

CASES = sorted(path.parent for path in Path(__file__).parent.glob("*/case.toml"))


@pytest.mark.parametrize("folder", CASES, ids=lambda folder: folder.name)
def test_case_holds(folder: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """dcgm-gpu-fails-xid79: 2 GPUs × 20 min are 0.667 paid GPU-hours, though one is scraped for 8 min only."""
    monkeypatch.chdir(tmp_path)
    for name, text in ENVIRONMENT.items():
        monkeypatch.setenv(name, text)
    for name in [name for name in os.environ if name.startswith("LOADFACTOR_")]:
        monkeypatch.delenv(name)
    faults = run_case(folder, tmp_path, lambda words: run(*words))
    if "expect" in read_case(folder):
        assert faults, f"{folder.name} holds now: take `expect` and `mended_by` out of its case.toml"
    else:
        assert not faults, "\n".join([folder.name, *faults])


def test_case_with_a_wrong_value_falls_short(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """24 GPU-hours are not 25: the runner says what was expected and what came."""
    monkeypatch.chdir(tmp_path)
    case = tmp_path / "case"
    case.mkdir()
    tables = Path(__file__).parent / "the-same-file-twice-adds-nothing" / "one"
    (case / "case.toml").write_text(
        f"""step = [{{ run = "import tables {tables}", says = ["no such words"] }}]
        value = [{{ show = "allocated_gpu_hours", is = 25 }}, {{ show = "allocated_gpu_hours", is = 24 }}]"""
    )
    words, value = run_case(case, tmp_path, lambda words: run(*words))
    assert words.startswith(f"expected step 1 `import tables {tables}`: words of /no such words/; came exit 0: ")
    assert value == "expected allocated_gpu_hours is 25; came 24"
