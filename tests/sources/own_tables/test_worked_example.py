"""The worked example of docs/bring-your-own-data.md: its files in examples/, and the numbers it gives."""

import re
from pathlib import Path

import pytest

import loadfactor

PROJECT = Path(__file__).resolve().parents[3]
DOCUMENT = PROJECT / "docs" / "bring-your-own-data.md"
EXAMPLES = PROJECT / "examples"


def test_the_documented_files_give_the_documented_numbers(tmp_path: Path) -> None:
    """8 GPUs × 1.25 h at $8, 60 % busy, 200,000 samples: 10 GPU-hours, 6 effective, $80, $13.33, $0.0004."""
    text = DOCUMENT.read_text(encoding="utf-8")
    files = re.findall(r"`(\w+\.csv)`\n\n```csv\n(.*?)```", text, re.DOTALL)
    assert len(files) == 5
    assert dict(files) == {path.name: path.read_text(encoding="utf-8") for path in (EXAMPLES / "tables").iterdir()}
    assert (EXAMPLES / "prices.toml").read_text(encoding="utf-8") in text
    books = loadfactor.open(tmp_path / "books", create=True)
    books.add("tables", [EXAMPLES / "tables"])
    wanted = {
        "allocated_gpu_hours": 10.0,
        "effective_gpu_hours": 6.0,
        "cost": 80.0,
        "cost_per_effective_gpu_hour": 80 / 6,
        "cost_per_sample": 0.0004,
    }
    got = {r.metric: r.value for r in books.show(list(wanted))}
    assert got == pytest.approx(wanted, rel=1e-12)
