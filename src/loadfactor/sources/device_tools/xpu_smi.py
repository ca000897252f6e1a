"""What `xpu-smi dump` and `xpumcli dump` print of Intel's GPUs: CSV, with the time of day or, with --date, the time."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from loadfactor.base.errors import SourceError
from loadfactor.base.units import MS_PER_S
from loadfactor.sources.base import Gaps, Input, ReadOptions
from loadfactor.sources.device_tools.readings import Column, Row, make_source, read_tables, rename

_RECORD: Final = "xpu-smi dump -d -1 -m 0,1,2,3,17,18,31 -i 30 --date"
_COLUMNS: Final = {
    "Timestamp": Column("timestamp"),
    "DeviceId": Column("index"),
    "GPU Utilization (%)": Column("busy_share", "%"),
    "GPU EU Array Active (%)": Column("sm_active_share", "%"),
    "GPU Memory Bandwidth Utilization (%)": Column("dram_active_share", "%"),
    "GPU Memory Used (MiB)": Column("mem_used_bytes", "MiB"),
    "GPU Power (W)": Column("power_w", "W"),
    "GPU Frequency (MHz)": Column("sm_clock_hz", "MHz"),
    "GPU Core Temperature (Celsius Degree)": Column("temperature_c", "C"),
    "GPU Core Temperature (C)": Column("temperature_c", "C"),
}
_TIME_OF_DAY: Final = re.compile(r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_BACK: Final = timedelta(hours=12)  # a time of day so much earlier than the one before is of the next day


def _read_rows(log: Input, options: ReadOptions, gaps: Gaps) -> Iterator[Row]:
    days = _Days(log.label, options)
    for _, row in read_tables(log, gaps, lambda cells: cells[:2] == ["Timestamp", "DeviceId"]):
        if "TileId" in row:
            gaps.add(log.label, "skipped: a tile; record without -t")
            continue
        renamed = rename(row, _COLUMNS)
        if _TIME_OF_DAY.fullmatch(renamed["timestamp"]):
            renamed["timestamp"] = days.place(renamed["timestamp"])
        yield renamed


class _Days:
    """Gives times of day their day, from --at on; SourceError without it."""

    def __init__(self, label: str, options: ReadOptions) -> None:
        self._label, self._options = label, options
        self._last: datetime | None = None

    def place(self, text: str) -> str:
        """The local time of a time of day."""
        found = _TIME_OF_DAY.fullmatch(text)
        assert found is not None
        if self._last is None:
            if self._options.at_ms is None:
                raise SourceError(
                    f"{self._label}: it has times of day without a date; record with {_RECORD}, or say when it began with --at"
                )
            began = datetime.fromtimestamp(self._options.at_ms / MS_PER_S, self._options.timezone or UTC)
            self._last = began.replace(tzinfo=None)
        try:
            at = self._last.replace(
                hour=int(found[1]),
                minute=int(found[2]),
                second=int(found[3]),
                microsecond=int((found[4] or "0").ljust(6, "0")),
            )
        except ValueError:
            return text
        at += timedelta(days=1) if self._last - at > _BACK else timedelta()
        self._last = at
        return at.isoformat(sep=" ", timespec="milliseconds")


SOURCE = make_source("xpu-smi", (".csv", ".log", ".txt"), _RECORD, _read_rows, local_times=True)
