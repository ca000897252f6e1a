"""The series of node-exporter that are understood, and which of its disks and network interfaces count. Facts, and one lookup."""

import re
from collections.abc import Mapping
from typing import Final

from loadfactor.sources.gpu_scrapes.fields import Field

NODE_EXPORTER: Final = "node-exporter"

CPU_IDLE, CPU_WAIT, CPU_WORK, DISK_READ, DISK_WRITE, NET_RX, NET_TX, MEM_TOTAL, MEM_AVAILABLE = KINDS = (
    *("cpu_idle", "cpu_wait", "cpu_work", "disk_read", "disk_write", "net_rx", "net_tx"),
    *("mem_total", "mem_available"),
)
"""What a series of a node tells; those of the CPU are seconds of one core, those of disks and interfaces bytes of one of them."""
KIND_NUMBER: Final = {kind: number for number, kind in enumerate(KINDS)}
COUNTED: Final = KINDS[:7]
"""Kinds that are totals which only grow."""

_FIELDS: Final = (
    Field(CPU_WORK, ("node_cpu_seconds_total", "node_cpu"), counts=True),
    Field(DISK_READ, ("node_disk_read_bytes_total", "node_disk_bytes_read"), counts=True),
    Field(DISK_WRITE, ("node_disk_written_bytes_total", "node_disk_bytes_written"), counts=True),
    Field(NET_RX, ("node_network_receive_bytes_total", "node_network_receive_bytes"), counts=True),
    Field(NET_TX, ("node_network_transmit_bytes_total", "node_network_transmit_bytes"), counts=True),
    Field(MEM_TOTAL, ("node_memory_MemTotal_bytes", "node_memory_MemTotal")),
    Field(MEM_AVAILABLE, ("node_memory_MemAvailable_bytes", "node_memory_MemAvailable")),
)
_BY_NAME: Final = {name: field for field in _FIELDS for name in field.names}
_MODES: Final = {mode: Field(kind, (mode,), counts=True) for mode, kind in (("idle", CPU_IDLE), ("iowait", CPU_WAIT))}

_NO_DISK: Final = re.compile(
    r"(?:dm-|md|loop|z?ram|fd|sr|nbd|drbd|bcache)\d.*|(?:h|s|v|xv)d[a-z]+\d+|nvme\d+n\d+p\d+|nvme\d+c\d+n\d+|mmcblk\d+(?:p|boot|rpmb).*"
)
"""Partitions, and what lies on top of disks or is none: their bytes are counted on the disks."""
_NO_INTERFACE: Final = re.compile(
    r"lo|(?:veth|cali|cilium|lxc|cni|flannel|weave|docker|virbr|vnet|br-|br\d|ovs|tap|tun|vxlan|geneve|genev|gre|wg|dummy|bond|team"
    r"|macv|ipvl|kube-|nodelocal|podman|ifb|sit|ip6|erspan|vmnet|tailscale).*|.*[.@].*"
)
"""The loopback, what only containers see, tunnels, VLANs, bridges and bonds: their bytes are counted on the interfaces below."""


def find_node_field(labels: Mapping[str, str]) -> tuple[Field, str] | None:
    """The field of a series of node-exporter, and which part of the node it is of; None for one that is not kept.

    >>> find_node_field({"__name__": "node_disk_read_bytes_total", "device": "nvme0n1"})[1]
    'nvme0n1'
    >>> find_node_field({"__name__": "node_disk_read_bytes_total", "device": "nvme0n1p2"})
    """
    field = _BY_NAME.get(labels.get("__name__", ""))
    if field is None:
        return None
    part = labels.get("device", "")
    if field.key == CPU_WORK:
        return _MODES.get(labels.get("mode", ""), field), ""  # all cores of a node are one
    if field.key in (DISK_READ, DISK_WRITE):
        return (field, part) if part and not _NO_DISK.fullmatch(part) else None
    if field.key in (NET_RX, NET_TX):
        return (field, part) if part and not _NO_INTERFACE.fullmatch(part) else None
    return field, ""


def list_node_names() -> list[str]:
    """The metrics of node-exporter."""
    return sorted(_BY_NAME)
