"""Reviewed pages, kept: `UPDATE_PAGES=1 pytest tests/collect/discovery` writes them anew; read the difference before."""

import os
from pathlib import Path

from tests.commands import measure_width

from loadfactor.interfaces.document import Document
from loadfactor.interfaces.render.ascii import to_ascii
from loadfactor.interfaces.render.terminal import render_text
from loadfactor.sources.dcgm.fields import FIELDS, PREFIX

KEPT = Path(__file__).parent / "pages"
NODE = [{"__name__": "node_cpu_seconds_total", "mode": "idle", "cpu": "0", "instance": "node-0:9100"}]
USUAL = [  # the counters that dcgm-exporter gives unless it is told otherwise
    PREFIX + name
    for name in (
        "DEV_SM_CLOCK", "DEV_GPU_TEMP", "DEV_POWER_USAGE", "DEV_TOTAL_ENERGY_CONSUMPTION", "DEV_GPU_UTIL", "DEV_FB_FREE",
        "DEV_FB_USED", "PROF_GR_ENGINE_ACTIVE", "PROF_PIPE_TENSOR_ACTIVE", "PROF_DRAM_ACTIVE", "PROF_PCIE_TX_BYTES",
        "PROF_PCIE_RX_BYTES",
    )
]  # fmt: skip
EVERYTHING = [PREFIX + field.names[0] for field in FIELDS]


def keep(name: str, text: str) -> None:
    """The text is the one that was kept."""
    path = KEPT / name
    if os.environ.get("UPDATE_PAGES"):
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text, f"{name} changed; read it, then run with UPDATE_PAGES=1"


def keep_page(name: str, page: Document) -> None:
    """The page is the one that was kept, at 80 and 100 columns; in ASCII it is as wide."""
    for width in (80, 100):
        text = render_text(page, width) + "\n"
        assert measure_width(text) <= width
        assert to_ascii(text).isascii()
        keep(f"{name}.{width}.txt", text)
