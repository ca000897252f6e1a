"""Traffic of a GPU's links beside their peaks: PCIe in its busier direction, NVLink in both directions together."""

from typing import Any

import ibis

from loadfactor.tables.schema import measured_bit

PCIE = ("pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s")
PCIE_BUSIER = "pcie_bytes_per_s"
"""PCIe traffic of a sample: that of the busier direction, for each direction has the link's peak to itself."""
NVLINK = "nvlink_bytes_per_s"

LINK_BITS = {PCIE_BUSIER: sum(measured_bit(c) for c in PCIE), NVLINK: measured_bit(NVLINK)}
"""What each link's traffic is known from: any of these bits of `measured_mask`."""
PEAKS = {PCIE_BUSIER: "pcie_peak_bytes_per_s", NVLINK: "nvlink_peak_bytes_per_s"}
"""The ledger's column of each link's peak, null where the catalog does not know the accelerator or its link."""

Expr = Any


def link_table() -> Expr:
    """The input `links`: the peaks of each accelerator, by its catalog id."""
    return ibis.table({"accelerator": "string", **dict.fromkeys(PEAKS.values(), "float64")}, name="links")


def add_peaks(holdings: Expr, links: Expr) -> Expr:
    """Holdings with the peaks of the links of their accelerator."""
    found = holdings.left_join(links, holdings.accelerator == links.accelerator)
    return found.select(holdings, *(links[peak] for peak in PEAKS.values()))


def busier_direction(samples: Expr) -> Expr:
    """PCIe traffic in the busier direction; of one direction where only that was measured."""
    rx, tx = (samples[c] for c in PCIE)
    return ibis.greatest(ibis.coalesce(rx, tx), ibis.coalesce(tx, rx))
