"""Scrapes of a small fleet as remote_write requests, and what the books must say of them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.sources.prometheus.sender import SentSeries, pack_request

from loadfactor.books.books import Books

STEP_MS = 15_000


def read_samples(store: Path) -> Any:
    """The samples of the books by GPU and time, as they were taken: of one that the turn of an hour cuts, its last part."""
    rows = Books(store).table("samples").execute()
    return rows[rows["to_utc"] == rows["sampled_utc"]].sort_values(["device_id", "to_utc"]).reset_index(drop=True)


@dataclass(frozen=True)
class Fleet:
    """GPUs whose numbers follow from the GPU and the number of the scrape. Scrape k is at began_ms + (k + 1) steps."""

    began_ms: int
    gpus: int = 8

    def at_ms(self, k: int) -> int:
        """When a scrape was."""
        return self.began_ms + (k + 1) * STEP_MS

    def sm_active(self, gpu: int, k: int) -> float:
        """SM_ACTIVE, never 0."""
        return (1 + (7 * gpu + 3 * k) % 97) / 100

    def memory_mib(self, gpu: int, k: int) -> int:
        """FB_USED."""
        return 1000 + (gpu * 131 + k * 17) % 70_000

    def power_w(self, gpu: int, k: int) -> int:
        """The power between this scrape and the one before; its counter is the sum."""
        return 100 + (gpu * 11 + k * 13) % 500

    def bodies(self, k: int, parts: int = 2) -> Iterator[bytes]:
        """The requests of a scrape: its series dealt out to so many, as senders with several queues do."""
        series = self.series(k)
        for part in range(parts):
            yield pack_request(series[part::parts])

    def series(self, k: int) -> list[SentSeries]:
        """All series of a scrape."""
        return [series for gpu in range(self.gpus) for series in self._series(gpu, k)]

    def _series(self, gpu: int, k: int) -> Iterable[SentSeries]:
        labels = {
            "gpu": str(gpu), "UUID": f"GPU-{gpu:08x}-0000-4000-8000-000000000000", "Hostname": f"node-{gpu // 8}",
            "modelName": "NVIDIA H100 80GB HBM3", "namespace": "ml", "pod": f"train-{gpu // 4}",
            "instance": "n:9400", "job": "dcgm",
        }  # fmt: skip
        joules = sum(self.power_w(gpu, i) for i in range(k + 1)) * STEP_MS / 1000
        values = {
            "DCGM_FI_DEV_GPU_UTIL": 90,
            "DCGM_FI_DEV_FB_USED": self.memory_mib(gpu, k),
            "DCGM_FI_PROF_SM_ACTIVE": self.sm_active(gpu, k),
            "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": joules * 1000,
        }
        for name, value in values.items():
            yield SentSeries({"__name__": name, **labels}, [(self.at_ms(k), float(value))])
