"""Load of the node, from /proc, under the names of node-exporter. Counters of all cores are one series a mode."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .units import BYTES_PER_KIB, BYTES_PER_SECTOR
from .write_request import Labels, SeriesValues

_MODES: Final = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_MEMORY: Final = {"MemTotal:": "node_memory_MemTotal_bytes", "MemAvailable:": "node_memory_MemAvailable_bytes"}
_NO_DISKS: Final = ("loop", "ram", "zram", "fd", "sr", "dm-", "md")
_NO_INTERFACES: Final = ("lo", "veth", "cali", "cni", "lxc", "docker", "virbr", "br-")
_READ_SECTORS, _WRITTEN_SECTORS = 5, 9
_RECEIVED, _TRANSMITTED = 0, 8


class NodeReader:
    """Reads one node; what its kernel does not say is left out."""

    def __init__(self, proc: Path, node: str) -> None:
        self._proc = proc
        self._common = {"instance": node, "job": "loadfactor-agent"}
        self._ticks_per_s = os.sysconf("SC_CLK_TCK")
        self._labels: dict[tuple[str, str], Labels] = {}
        host = proc / "1" / "net" / "dev"  # of the machine, where the agent is in a container that sees its processes
        self._interfaces = host if os.access(host, os.R_OK) else proc / "net" / "dev"

    def read(self, at_ms: int) -> list[SeriesValues]:
        """Everything, read now."""
        found: list[SeriesValues] = []
        for read in (self._read_cores, self._read_memory, self._read_disks, self._read_interfaces):
            try:
                found += [SeriesValues(labels, at_ms, values) for labels, values in read()]
            except (OSError, ValueError, IndexError):
                continue
        return found

    def _read_cores(self) -> Iterator[tuple[Labels, dict[str, float]]]:
        with (self._proc / "stat").open() as stat:
            ticks = stat.readline().split()[1:]
        for mode, count in zip(_MODES, ticks, strict=False):
            yield self._label("mode", mode), {"node_cpu_seconds_total": int(count) / self._ticks_per_s}

    def _read_memory(self) -> Iterator[tuple[Labels, dict[str, float]]]:
        values: dict[str, float] = {}
        with (self._proc / "meminfo").open() as lines:
            for line in lines:
                name, number = line.split()[:2]
                if name in _MEMORY:
                    values[_MEMORY[name]] = float(number) * BYTES_PER_KIB
                    if len(values) == len(_MEMORY):
                        break
        yield self._label("", ""), values

    def _read_disks(self) -> Iterator[tuple[Labels, dict[str, float]]]:
        for line in (self._proc / "diskstats").read_text().splitlines():
            words = line.split()
            if not words[2].startswith(_NO_DISKS):
                yield (
                    self._label("device", words[2]),
                    {
                        "node_disk_read_bytes_total": float(words[_READ_SECTORS]) * BYTES_PER_SECTOR,
                        "node_disk_written_bytes_total": float(words[_WRITTEN_SECTORS]) * BYTES_PER_SECTOR,
                    },
                )

    def _read_interfaces(self) -> Iterator[tuple[Labels, dict[str, float]]]:
        for line in self._interfaces.read_text().splitlines()[2:]:
            name, _, numbers = line.partition(":")
            name, words = name.strip(), numbers.split()
            if not name.startswith(_NO_INTERFACES):
                yield (
                    self._label("device", name),
                    {
                        "node_network_receive_bytes_total": float(words[_RECEIVED]),
                        "node_network_transmit_bytes_total": float(words[_TRANSMITTED]),
                    },
                )

    def _label(self, name: str, value: str) -> Labels:
        key = (name, value)
        if key not in self._labels:
            self._labels[key] = Labels({**self._common, **({name: value} if name else {})})
        return self._labels[key]
