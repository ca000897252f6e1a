"""Does the fake exporter serve the truth that it says?"""

from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np
import pytest
from tests.live.fake_dcgm_exporter import METRICS, XID, FakeDcgmExporter, FleetTruth, expose

BEGAN = 1_772_409_600.0


def test_the_page_is_served_as_of_the_clock() -> None:
    """A scrape gets the page of its instant, and the instant is kept."""
    clock = iter((BEGAN + 1.25, BEGAN + 100.0))
    truth = FleetTruth(gpus=12, began_s=BEGAN)
    with FakeDcgmExporter(truth, clock=lambda: next(clock)) as exporter:
        for at_s in (BEGAN + 1.25, BEGAN + 100.0):
            with urlopen(f"http://{exporter.address}/metrics") as answer:
                assert answer.read().decode() == expose(truth, at_s)
        exporter.status = 503
        with pytest.raises(HTTPError):
            urlopen(f"http://{exporter.address}/metrics")
        assert exporter.answers == [BEGAN + 1.25, BEGAN + 100.0]


def test_the_page_looks_like_the_exporters() -> None:
    """Every metric has its title, and a line a GPU with the labels of dcgm-exporter."""
    truth = FleetTruth(gpus=20, began_s=BEGAN)
    lines = expose(truth, BEGAN + 91, timed=True).splitlines()
    assert len(lines) == len(METRICS) * 22
    assert (
        f'DCGM_FI_DEV_XID_ERRORS{{gpu="3",UUID="{truth.uuid(3)}",pci_bus_id="00000000:04:00.0",'
        'device="nvidia3",modelName="NVIDIA H100 80GB HBM3",Hostname="node-000",container="main",namespace="team-1",'
        f'pod="train-0-1"}} {XID} {int(BEGAN + 91) * 1000}'
    ) in lines


def test_energy_is_the_integral_of_power() -> None:
    """The counter rises by power times time, whatever the ends."""
    truth = FleetTruth(gpus=3, began_s=BEGAN)
    for gpu in range(3):
        instants = BEGAN + np.arange(0, 400, 0.05) + 0.025
        summed = np.cumsum([0.0] + [truth.power_w(gpu, at_s) * 0.05 for at_s in instants.tolist()])
        for k in (0, 40, 101, 3333, 8000):
            assert truth.energy_j(gpu, BEGAN, BEGAN + k * 0.05) == pytest.approx(summed[k], abs=1e-4)


def test_stays_cover_the_time_once() -> None:
    """The holder of a GPU is said for every instant between two, once."""
    truth = FleetTruth(gpus=8, began_s=BEGAN)
    stays = list(truth.stays(5, BEGAN + 10, BEGAN + 430))
    assert [stay[0] for stay in stays[1:]] == [stay[1] for stay in stays[:-1]]
    assert (stays[0][0], stays[-1][1]) == (BEGAN + 10, BEGAN + 430)
    assert all(truth.holder(5, (begin + end) / 2) == held for begin, end, held in stays)
    assert None in {held for *_, held in stays}
