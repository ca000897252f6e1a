"""Peaks of the links of accelerators: what their traffic is divided by."""

from typing import Final

from loadfactor.catalog.accelerators import accelerators

LINK_COLUMNS: Final = {
    "accelerator": "string",
    "pcie_peak_bytes_per_s": "float64",
    "nvlink_peak_bytes_per_s": "float64",
}


def list_link_peaks() -> list[dict[str, str | float | None]]:
    """A row for each accelerator: its id, PCIe in one direction, NVLink in both together, bytes/s; null where not known.

    >>> peaks = {row["accelerator"]: row for row in list_link_peaks()}
    >>> peaks["h100-sxm"]["pcie_peak_bytes_per_s"], peaks["h100-sxm"]["nvlink_peak_bytes_per_s"]
    (63015000000.0, 900000000000.0)
    >>> peaks["l4"]["nvlink_peak_bytes_per_s"] is None
    True
    """
    return [
        {
            "accelerator": item.id,
            "pcie_peak_bytes_per_s": _float(item.get("pcie_bytes_per_s")),
            "nvlink_peak_bytes_per_s": _float(item.nvlink_bytes_per_s),
        }
        for item in accelerators().values()
    ]


def _float(value: float | None) -> float | None:
    return None if value is None else float(value)
