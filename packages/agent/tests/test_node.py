"""The agent says of the node what node-exporter says, as the server understands it."""

from pathlib import Path

from pages import read_page

from loadfactor_agent.node import NodeReader
from loadfactor_agent.page_server import write_page


def write_proc(folder: Path) -> None:
    """A machine with two cores, a disk with a partition and two interfaces."""
    (folder / "net").mkdir(parents=True)
    (folder / "stat").write_text("cpu  1000 200 300 4000 500 60 70 8 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n")
    (folder / "meminfo").write_text("MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:   400 kB\n")
    (folder / "diskstats").write_text(" 259 0 nvme0n1 1 2 300 4 5 6 700 8 0 0 0\n 7 0 loop0 1 2 3 4 5 6 7 8 0 0 0\n")
    (folder / "net" / "dev").write_text(
        "Inter-| Receive\n face |bytes\n    lo: 9 0 0 0 0 0 0 0 9 0\n  eth0: 1234 5 0 0 0 0 0 0 5678 9\n"
    )


def test_node_is_read_under_the_names_of_node_exporter(tmp_path: Path) -> None:
    """Seconds of all cores by mode, bytes of memory, disks and interfaces; the loopback and loop devices not."""
    write_proc(tmp_path)
    found = [
        (name, *labels.values(), value)
        for name, labels, value in read_page(write_page(NodeReader(tmp_path, "n1").read(1)))
    ]
    modes = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    seconds = (10, 2, 3, 40, 5, 0.6, 0.7, 0.08)
    assert found == [
        *(("node_cpu_seconds_total", mode, s) for mode, s in zip(modes, seconds, strict=True)),
        ("node_memory_MemTotal_bytes", 1000 * 1024),
        ("node_memory_MemAvailable_bytes", 400 * 1024),
        ("node_disk_read_bytes_total", "nvme0n1", 300 * 512),
        ("node_disk_written_bytes_total", "nvme0n1", 700 * 512),
        ("node_network_receive_bytes_total", "eth0", 1234),
        ("node_network_transmit_bytes_total", "eth0", 5678),
    ]


def test_what_the_kernel_does_not_say_is_left_out(tmp_path: Path) -> None:
    """A machine without /proc/diskstats still has a CPU."""
    write_proc(tmp_path)
    (tmp_path / "diskstats").unlink()
    names = {name for name, _, _ in read_page(write_page(NodeReader(tmp_path, "n1").read(1)))}
    assert "node_cpu_seconds_total" in names
    assert not any("disk" in name for name in names)
