"""GPUs that stand free while jobs wait."""

from pathlib import Path

import pytest

import loadfactor
from loadfactor.books.books import Books

DEVICES = "device_id,node,pool,accelerator,from_utc,to_utc\n" + "".join(
    f"{node}-{n},{node},h100,h100-sxm,2026-10-05T00:00:00Z,2026-10-05T12:00:00Z\n" for node in "ab" for n in range(4)
)
PRICES = "accelerator,basis,price_per_gpu_hour,currency,source\nh100-sxm,contracted,2.0,USD,made up\n"
JOBS = """job_id,user,team,pool,node,gpus,submitted_utc,from_utc,to_utc
left,ann,one,h100,a,2,2026-10-05T00:00:00Z,2026-10-05T00:00:00Z,2026-10-05T10:00:00Z
right,ann,one,h100,b,2,2026-10-05T00:00:00Z,2026-10-05T00:00:00Z,2026-10-05T06:00:00Z
wide,bob,two,h100,b,4,2026-10-05T02:00:00Z,2026-10-05T08:00:00Z,2026-10-05T12:00:00Z
"""


def test_free_gpus_beside_a_waiting_job_are_fragmentation_until_it_would_fit(tmp_path: Path) -> None:
    """A job of 4 waits from 2 to 8: until 6 o'clock 2 + 2 GPUs lie on two nodes (16 GPU-hours), then a whole node is free (8)."""
    for name, text in (("devices", DEVICES), ("prices", PRICES), ("allocations", JOBS)):
        (tmp_path / f"{name}.csv").write_text(text)
    Books(tmp_path / "books").add("tables", [tmp_path])
    found = {of.cause: of for of in loadfactor.diagnose(store=tmp_path / "books").data.scheduling}
    assert {cause: of.gpu_hours.high for cause, of in found.items()} == pytest.approx(
        {"fragmentation": 16, "free_while_jobs_wait": 8}
    )
    fragmented = found["fragmentation"]
    assert fragmented.pool == "h100"
    assert fragmented.job is None
    assert fragmented.cost is not None
    assert fragmented.cost.high == pytest.approx(16 * 2.0)
    assert fragmented.share.high == pytest.approx(16 / (8 * 12))
    assert "wide" in fragmented.evidence[0]
    assert not loadfactor.diagnose(store=tmp_path / "books", team="two").data.scheduling
