"""Probes of the machine where `loadfactor init` runs: a driver, an exporter, Prometheus, Slurm, Kubernetes."""

import asyncio
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from loadfactor.base.units import BYTES_PER_MIB
from loadfactor.collect.discovery.shortfalls import SourceCheck
from loadfactor.collect.discovery.source_check import check_server
from loadfactor.collect.http_fetch import FetchError
from loadfactor.collect.prometheus_server import PrometheusServer
from loadfactor.sources.dcgm.fields import PREFIX

LONGEST_PROBE_S: Final = 1.0
MOST_BYTES: Final = 16 * BYTES_PER_MIB
CLOUDS: Final = {
    "Amazon EC2": "cloudwatch", "Google Compute Engine": "gcp-monitoring",
}  # fmt: skip
"""Tables of the configuration, by what the firmware of a cloud's machines says."""
SLURM_COMMANDS: Final = ("sacct", "squeue", "sinfo", "scontrol")


@dataclass(frozen=True)
class ProbedPlaces:
    """Where to look. Tests give another root, search path and addresses."""

    root: Path = Path("/")
    search_path: str | None = None  # None: that of the process
    exporter: str = "http://localhost:9400/metrics"
    prometheus: str = "http://localhost:9090"

    @property
    def exporter_address(self) -> str:
        """Host and port of the exporter."""
        return self.exporter.partition("://")[2].partition("/")[0]


@dataclass(frozen=True)
class Surroundings:
    """Findings on a machine. `None`, 0, False and () mean that it is not there.

    `driver` is its version, "unknown" where it does not say; `gpus` counts device files of GPUs; `exporter` and `exporter_gpus`
    are a dcgm-exporter and the GPUs it speaks of; `prometheus` is what a Prometheus gives.
    """

    driver: str | None = None
    gpus: int = 0
    exporter: str | None = None
    exporter_gpus: int = 0
    prometheus: SourceCheck | None = None
    slurm: tuple[str, ...] = ()
    kubernetes: bool = False
    cloud: str = ""
    """The table of the configuration for the cloud whose machine this is."""


def look_around(places: ProbedPlaces) -> Surroundings:
    """Find what is there. Each probe ends after a second; all run at once; none changes anything."""
    return asyncio.run(_look_around(places))


async def _look_around(places: ProbedPlaces) -> Surroundings:
    async with httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=LONGEST_PROBE_S) as client:
        exporter_gpus, prometheus = await asyncio.gather(
            _count_exported_gpus(client, places.exporter), _ask_prometheus(places.prometheus)
        )
    return Surroundings(
        _read_driver(places.root),
        len(list(places.root.glob("dev/nvidia[0-9]*"))),
        None if exporter_gpus is None else places.exporter,
        exporter_gpus or 0,
        prometheus,
        tuple(name for name in SLURM_COMMANDS if shutil.which(name, path=places.search_path)),
        (places.root / "var/run/secrets/kubernetes.io/serviceaccount/token").exists(),
        _find_cloud(places.root),
    )


def _find_cloud(root: Path) -> str:
    for name in ("sys_vendor", "board_vendor", "product_name"):
        try:
            vendor = (root / "sys/class/dmi/id" / name).read_text(errors="replace").strip()
        except OSError:
            continue
        if vendor in CLOUDS:
            return CLOUDS[vendor]
    return ""


def _read_driver(root: Path) -> str | None:
    """The version of the NVIDIA driver, read where the kernel says it: asking the driver itself may hang."""
    path = root / "proc/driver/nvidia/version"
    try:
        words = path.read_text(errors="replace").splitlines()[0].split()
    except (OSError, IndexError):
        return "unknown" if (root / "dev/nvidiactl").exists() else None
    return next((w for w in words if w[:1].isdigit() and "." in w), "unknown")


async def _count_exported_gpus(client: httpx.AsyncClient, url: str) -> int | None:
    found: set[str] = set()
    understood, size = False, 0
    try:
        async with asyncio.timeout(LONGEST_PROBE_S), client.stream("GET", url) as answer:
            if answer.status_code != httpx.codes.OK:
                return None
            async for line in answer.aiter_lines():
                size += len(line)
                if size > MOST_BYTES:
                    break
                if line.startswith(PREFIX):
                    understood = True
                    _, _, rest = line.partition('UUID="')
                    found.add(rest.partition('"')[0])
    except (httpx.HTTPError, TimeoutError, UnicodeDecodeError):
        return len(found) if understood else None
    return len(found) if understood else None


async def _ask_prometheus(url: str) -> SourceCheck | None:
    try:
        async with asyncio.timeout(LONGEST_PROBE_S):
            found = await check_server(PrometheusServer("", url, timeout_s=LONGEST_PROBE_S), "")
    except (FetchError, TimeoutError):
        return None
    return found if found.reachable else None


_HEAD = """\
# Written by `loadfactor init`. `loadfactor up` reads it in the folder it is started in, or with --config FILE;
# `loadfactor check` says what each source gives and what is missing.

store = "books"        # folder of the books
timezone = "UTC"       # where days begin: Europe/Berlin
# currency = "EUR"     # reporting currency of the books, USD where nothing is said; settled with the first import
# idle_below = 0.05    # held, and activity under this share: idle
"""
_PROMETHEUS = """
[[prometheus]]         # {why}
url = "{url}"
every = "60s"
backfill = "1h"        # how far back to begin the first time: 30d
# match = '{{cluster="a"}}'
# bearer_token_file = "/etc/loadfactor/prometheus.token"
"""
_DCGM = """
[[dcgm]]               # {why}
targets = ["{address}"]    # of other nodes as well; or dns = "dcgm-exporter.monitoring.svc:9400", or file_sd = ["gpus/*.json"]
every = "15s"
"""
_KUBERNETES = """
[[kubernetes]]         # this is a pod: its account needs the role of docs/connect-kubernetes.md, which the chart brings
"""
_SLURM = """
[[slurm]]              # its commands are here: {commands}
every = "60s"
backfill = "30d"       # how far back in accounting to begin the first time
# command = ["ssh", "login"]              # to ask from another machine
"""
_CLOUDS = {
    "cloudwatch": """
# [[cloudwatch]]       # this is a machine of EC2: what CloudWatch keeps of GPUs, and the instances that have some
# region = "eu-west-1"                    # where it may: docs/connect-clouds.md has the permissions
# instances = false                       # where exporters name the same GPUs by their UUIDs
""",
    "gcp-monitoring": """
# [[gcp-monitoring]]   # this is a machine of Compute Engine: what Cloud Monitoring keeps of GPUs, and the instances that have some
# project = "my-project"                  # where it may: docs/connect-clouds.md has the roles
""",
}
_SERVER = """
[server]
# tls_cert = "/etc/loadfactor/tls.crt"    # needed, with tls_key, to listen to other machines directly
# tls_key = "/etc/loadfactor/tls.key"
# trusted_proxies = ["10.0.0.7"]          # a proxy that checks who asks
"""


def write_configuration(found: Surroundings, prometheus: str, exporter: str) -> str:
    """The text of the file; `prometheus` is where that server was looked for, `exporter` host and port of the exporter."""
    parts = [_HEAD]
    notes = []
    if found.prometheus is not None:
        gpus = f"{found.prometheus.gpus} GPUs" if found.prometheus.gpus else "it has no metrics of GPUs yet"
        parts.append(_PROMETHEUS.format(why=f"found on this machine: {gpus}", url=found.prometheus.url))
    asks_exporter = found.exporter is not None and found.prometheus is None
    if asks_exporter:
        parts.append(_DCGM.format(why=f"a dcgm-exporter answers here: {found.exporter_gpus} GPUs", address=exporter))
    if found.driver is not None and not asks_exporter:
        notes.append(
            "The GPUs of this machine need no line here: `loadfactor up` samples them where nothing is configured."
        )
    if found.slurm:
        parts.append(_SLURM.format(commands=", ".join(found.slurm)))
    if found.kubernetes:
        parts.append(_KUBERNETES)
    if found.cloud:
        parts.append(_CLOUDS[found.cloud])
    if notes:
        parts.append("\n" + "".join(f"# {note}\n" for note in notes))
    if found.prometheus is None:
        example = _PROMETHEUS.format(why="a Prometheus, VictoriaMetrics, Mimir or Thanos to ask", url=prometheus)
        parts.append(
            "".join(f"# {line}\n".replace("# # ", "#   ") if line else "\n" for line in example.split("\n")[:-1])
        )
    parts.append(_SERVER)
    return "".join(parts)
