"""Bills of those who rent out GPUs alone, typed anew in the shapes that each documents: sums exact, intervals, who pays.

docs.runpod.io/api-reference/billing, docs.vast.ai/api-reference/billing, modal.com/docs/reference/cli/billing.
"""

import json
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.sources.billing.bills import read_bill

from loadfactor.base.errors import InputError, SourceError
from loadfactor.sources import find_source

HOUR_MS = 3_600_000
BEGIN_MS = 1_790_812_800_000  # 2026-10-01
RUNPOD = [
    {"amount": 2.3904, "diskSpaceBilledGb": 50, "gpuTypeId": "NVIDIA H100 80GB HBM3", "podId": f"pod-{pod}",
     "time": f"2026-10-01T{hour:02}:00:00Z", "timeBilledMs": HOUR_MS}
    for hour in range(3) for pod in "ab"
]  # fmt: skip
VAST = [
    {"start": 1790812800, "end": 1791072000, "type": "instance", "source": "instance-1", "description": "Instance 1",
     "amount": 28.813, "metadata": {"label": "team-vision", "template_id": 101},
     "items": [{"start": 1790812800, "end": 1791072000, "type": "gpu", "amount": 28.008, "items": []}]},
    {"start": 1790899200, "end": 1790985600, "type": "volume", "source": "volume-7", "amount": 0.1, "metadata": {}},
]  # fmt: skip
MODAL = [
    {"object_id": "ap-1", "description": "train", "environment_name": "main", "interval_start": f"2026-10-0{day}T00:00:00+00:00",
     "cost": "12.345678901", "tags": {"team": "vision"}}
    for day in (1, 2)
]  # fmt: skip
MODAL_CSV = (
    "Object ID,Description,Environment,Interval Start,Cost,team\n"
    "ap-1,train,main,2026-10-01T00:00:00+00:00,12.345678901,vision\nap-1,train,main,2026-10-02T00:00:00+00:00,12.345678901,vision\n"
)
SUMS = {"runpod": Decimal("14.3424"), "vast": Decimal("28.913"), "modal": Decimal("24.691357802")}
ROWS: dict[str, list[dict[str, Any]]] = {"runpod": RUNPOD, "vast": VAST, "modal": MODAL}


def write(folder: Path, text: str) -> Path:
    path = folder / "bill.json"
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize("source", list(ROWS))
@pytest.mark.parametrize("form", ["array", "pretty", "lines", "shuffled", "BOM", "CRLF", "answer"])
def test_sums_are_exact_however_it_is_written(tmp_path: Path, source: str, form: str) -> None:
    """An array, lines, any order and line ends: the same charges to the last digit, billed and effective, in US dollars."""
    rows = ROWS[source] if form != "shuffled" else Random(3).sample(ROWS[source], len(ROWS[source]))
    text = json.dumps(rows, indent=2 if form in ("pretty", "CRLF") else None)
    if form == "answer":
        text = json.dumps({"success": True, "count": len(rows), "results": rows, "next_token": None})
    if form in ("lines", "BOM"):
        text = "".join(f"{json.dumps(row)}\n" for row in rows)
    text = {"BOM": "\ufeff" + text, "CRLF": text.replace("\n", "\r\n")}.get(form, text)
    bill = read_bill(find_source(source), write(tmp_path, text))
    assert bill.total("BilledCost") == bill.total("EffectiveCost") == SUMS[source]
    assert set(bill.column("BillingCurrency")) == {"USD"}
    assert set(bill.column("BillingPeriodStart")) == {BEGIN_MS}


def test_intervals_and_who_pays(tmp_path: Path) -> None:
    """Hours of RunPod, spans of Vast.ai, days of Modal; labels and tags become tags, and the team what they say."""
    runpod = read_bill(find_source("runpod"), write(tmp_path, json.dumps(RUNPOD)))
    spans = zip(runpod.column("ChargePeriodStart"), runpod.column("ChargePeriodEnd"), strict=True)
    assert {end - start for start, end in spans} == {HOUR_MS}
    assert set(runpod.column("ResourceId")) == {"pod-a", "pod-b"}
    vast = read_bill(find_source("vast"), write(tmp_path, "\n".join(map(json.dumps, VAST))))
    assert vast.column("ChargePeriodEnd") == [BEGIN_MS + 72 * HOUR_MS, BEGIN_MS + 48 * HOUR_MS]
    assert json.loads(vast.column("Tags")[0])["label"] == "team-vision"
    for text in (json.dumps(MODAL), MODAL_CSV):
        modal = read_bill(find_source("modal"), write(tmp_path, text))
        assert modal.total("BilledCost") == SUMS["modal"]
        assert modal.column("team") == ["vision", "vision"]
        assert modal.column("ChargePeriodEnd") == [BEGIN_MS + 24 * HOUR_MS, BEGIN_MS + 48 * HOUR_MS]


@pytest.mark.parametrize(
    ("source", "text", "message"),
    [
        ("runpod", json.dumps([{"cost": 1, "time": "2026-10-01"}]), r"runpodctl billing pods.*needs the column amount"),
        ("vast", json.dumps({"success": True, "count": 1, "results": VAST})[:-40], "cut off"),
        ("vast", json.dumps([{**VAST[0], "start": "soon"}]), "soon.* is no time in seconds since 1970"),
        ("modal", json.dumps([{**MODAL[0], "cost": "twelve"}]), "twelve"),
        ("runpod", json.dumps(RUNPOD)[:-40], "cut off"),
    ],
)
def test_what_is_none_is_refused(tmp_path: Path, source: str, text: str, message: str) -> None:
    """One line names what is missing and the command that gives it."""
    with pytest.raises(SourceError, match=message) as error:
        read_bill(find_source(source), write(tmp_path, text))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("name", "instead"), [("coreweave", "BilledCost"), ("lambda", "ChargePeriodStart")])
def test_who_publishes_no_costs_is_named(name: str, instead: str) -> None:
    """CoreWeave's export has quantities alone and Lambda publishes no format: each is refused with what to do."""
    with pytest.raises(InputError, match=instead):
        find_source(name)
