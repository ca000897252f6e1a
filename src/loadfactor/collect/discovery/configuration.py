"""The first loadfactor.toml: short, commented, and true of what was found."""

from loadfactor.collect.discovery.surroundings import Surroundings

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
