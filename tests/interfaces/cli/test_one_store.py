"""A command reads one store; regions are merged into one."""

import json
from pathlib import Path

import pytest
from tests.commands import Run, worked_example

from loadfactor.base.errors import InputError
from loadfactor.base.removed import refuse_removed
from loadfactor.books.books import Books
from loadfactor.settings.config import read_settings

REFUSAL = str(refuse_removed("usages", "reading several stores as one"))
PRICE_EU, PRICE_US = 8, 4


@pytest.fixture
def regions(tmp_path: Path) -> Path:
    """Stores `eu` and `us` of the worked example, 10 GPU-hours each at $8 and $4, with GPUs and jobs of their own names."""
    for region, price in (("eu", PRICE_EU), ("us", PRICE_US)):
        tables = worked_example(tmp_path / f"of {region}")
        for file in tables.iterdir():
            text = file.read_text().replace("gpu", f"{region}-gpu").replace("run-1", f"{region}-run-1")
            file.write_text(text.replace(f"{region}-gpu_hour", "gpu_hour"))
        prices = "basis,device_id,price_per_gpu_hour\n" + "".join(
            f"contracted,{region}-gpu{i},{price}\n" for i in range(8)
        )
        (tables / "prices.csv").write_text(prices)
        Books(tmp_path / region).add("tables", [tables])
    return tmp_path


def test_several_stores_are_refused_with_merge(regions: Path, run: Run) -> None:
    """`--store a --store a`, commas and patterns leave with 2 and a line that names `merge`."""
    eu, us = regions / "eu", regions / "us"
    for given in (("--store", eu, "--store", eu), ("--store", f"{eu},{us}"), ("--store", f"{regions}/*")):
        assert run("show", "cost", *given) == (2, "", f"loadfactor: {REFUSAL}\n")
        assert run("import", "tables", regions / "of eu", *given) == (2, "", f"loadfactor: {REFUSAL}\n")
    with pytest.raises(InputError, match="merge"):
        Books.open(f"{eu},{us}")


@pytest.mark.parametrize("written", ['store = ["eu", "us"]', 'store = "eu,us"', 'store = "stores/*"'])
def test_several_stores_in_settings_are_refused_with_merge(tmp_path: Path, written: str) -> None:
    """A list, commas and patterns are refused as on the command line."""
    path = tmp_path / "loadfactor.toml"
    path.write_text(f"{written}\n")
    with pytest.raises(InputError, match="merge"):
        read_settings(path)


def test_folder_with_a_comma_in_its_name_is_one_store(regions: Path, run: Run) -> None:
    """An existing folder `eu,old` is read."""
    (regions / "eu").rename(regions / "eu,old")
    assert run("show", "cost", "--store", regions / "eu,old", "--json")[0] == 0


@pytest.mark.long
def test_merged_regions_add_up(regions: Path, run: Run) -> None:
    """eu (10 GPU-hours, $80) and us (10 GPU-hours, $40) merged into `all` are 20 GPU-hours and $120."""
    for region in ("eu", "us"):
        code, _, err = run("merge", regions / region, "--store", regions / "all")
        assert code == 0, err
    _, out, _ = run("show", "paid_gpu_hours", "cost", "--store", regions / "all", "--json")
    assert [reading["value"] for reading in json.loads(out)] == pytest.approx([20, 120])
    _, out, _ = run("show", "cost", "--by", "job", "--store", regions / "all", "--json")
    assert {r["by"]["job"]: r["value"] for r in json.loads(out)} == pytest.approx({"eu-run-1": 80, "us-run-1": 40})
