"""First contact: what `init` finds and writes, and what `check` says of sources, as texts that somebody has read and kept.

`UPDATE_PAGES=1 pytest tests/contact` writes them anew; read the difference before it is kept.
"""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.contact.fake_prometheus import FakePrometheus, list_gpus
from tests.live.fake_dcgm_exporter import FakeDcgmExporter, FleetTruth
from tests.live.fake_kubernetes import FakeKubernetes
from tests.live.fake_slurm import FakeSlurm, job
from tests.live.local_server import LocalServer
from tests.live.up_process import free_port

from loadfactor.collect.prometheus_server import PrometheusServer
from loadfactor.collect.slurm_commands import SlurmAccess, SlurmCommands
from loadfactor.config import PulledServer, Settings, read_settings
from loadfactor.contact.configuration import write_configuration
from loadfactor.contact.signals import SIGNALS, list_metrics
from loadfactor.contact.slurm_check import check_slurm
from loadfactor.contact.source_check import check_server
from loadfactor.contact.surroundings import ProbedPlaces, look_around
from loadfactor.errors import InputError
from loadfactor.faces.document import Document
from loadfactor.faces.pages.first_configuration import build_document as build_first_page
from loadfactor.faces.pages.first_configuration import write_first_configuration
from loadfactor.faces.pages.sources_check import CheckedSource, check_sources
from loadfactor.faces.render.ascii import to_ascii
from loadfactor.faces.render.terminal import render_text
from loadfactor.metrics import METRICS
from loadfactor.sources.dcgm.fields import FIELDS, PREFIX
from loadfactor.sources.gpu_scrapes.fields import KEYS
from loadfactor.store.source_status import SourceStatus, write_statuses

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
        assert max(map(len, text.splitlines())) <= width
        assert to_ascii(text).isascii()
        keep(f"{name}.{width}.txt", text)


@contextmanager
def bare_machine(folder: Path) -> Iterator[ProbedPlaces]:
    """A machine on which nothing is; nobody listens on its ports."""
    (folder / "bin").mkdir()
    dead = f"http://127.0.0.1:{free_port()}"
    yield ProbedPlaces(folder, str(folder / "bin"), f"{dead}/metrics", dead)


def add_driver(root: Path, gpus: int = 8) -> None:
    """The files of a driver and its GPUs."""
    (root / "proc/driver/nvidia").mkdir(parents=True)
    said = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31 09:35:42 UTC 2024\nGCC version:\n"
    (root / "proc/driver/nvidia/version").write_text(said)
    (root / "dev").mkdir()
    for name in ("nvidiactl", *(f"nvidia{i}" for i in range(gpus))):
        (root / "dev" / name).touch()


def add_slurm(machine: ProbedPlaces) -> None:
    """The commands of Slurm on the search path."""
    for name in ("sacct", "squeue", "sinfo", "scontrol"):
        command = machine.root / "bin" / name
        command.write_text("#!/bin/sh\n")
        command.chmod(0o755)


def begin(name: str, machine: ProbedPlaces) -> Settings:
    """Run `init` there, keep its page and its file as they are with the usual addresses, and read the file as `up` does."""
    found, usual = look_around(machine), ProbedPlaces()
    if found.prometheus is not None:
        found = replace(found, prometheus=replace(found.prometheus, url=usual.prometheus))
    keep_page(f"init-{name}", build_first_page(found, usual, Path("loadfactor.toml")))
    keep(f"init-{name}.toml", write_configuration(found, usual.prometheus, usual.exporter_address))
    file = machine.root / "loadfactor.toml"
    write_first_configuration(machine, file, force=False)
    return read_settings(file)


def test_a_bare_machine(tmp_path: Path) -> None:
    """Nothing is found: the file is a valid one without sources, and the page says how to go on."""
    with bare_machine(tmp_path) as machine:
        assert not begin("bare", machine).prometheus


def test_a_machine_with_a_driver(tmp_path: Path) -> None:
    """The version of the driver and its GPUs are found without asking the driver."""
    with bare_machine(tmp_path) as machine:
        add_driver(tmp_path)
        assert not begin("driver", machine).prometheus


def test_a_machine_with_an_exporter(tmp_path: Path) -> None:
    """A dcgm-exporter without a Prometheus is scraped by loadfactor itself, and is found with the GPUs it speaks of."""
    with bare_machine(tmp_path) as bare, FakeDcgmExporter(FleetTruth(gpus=8)) as exporter:
        add_driver(tmp_path)
        machine = ProbedPlaces(bare.root, bare.search_path, f"{exporter.url}/metrics", bare.prometheus)
        settings = begin("exporter", machine)
    assert [group.targets for group in settings.dcgm] == [(exporter.address,)]
    assert not settings.prometheus


def test_a_prometheus_with_dcgm(tmp_path: Path) -> None:
    """A Prometheus becomes a source of the file, with what it has."""
    with bare_machine(tmp_path) as bare, FakePrometheus(list_gpus(USUAL)) as server:
        machine = ProbedPlaces(bare.root, bare.search_path, bare.exporter, server.url)
        assert [s.url for s in begin("prometheus", machine).prometheus] == [server.url]


def test_a_prometheus_without_dcgm(tmp_path: Path) -> None:
    """A Prometheus that knows of no GPU becomes a source, and both say that nothing comes of it yet."""
    with bare_machine(tmp_path) as bare, FakePrometheus(NODE) as server:
        machine = ProbedPlaces(bare.root, bare.search_path, bare.exporter, server.url)
        assert begin("prometheus-without-dcgm", machine).prometheus


def test_a_machine_of_slurm(tmp_path: Path) -> None:
    """Slurm's commands and a service account are found."""
    with bare_machine(tmp_path) as machine:
        add_slurm(machine)
        (tmp_path / "var/run/secrets/kubernetes.io/serviceaccount").mkdir(parents=True)
        (tmp_path / "var/run/secrets/kubernetes.io/serviceaccount/token").write_text("secret")
        assert begin("slurm", machine).slurm


def test_slow_servers_are_not_waited_for(tmp_path: Path) -> None:
    """A server that does not answer within a second is not there."""
    with bare_machine(tmp_path) as bare, FakePrometheus(NODE, delay_s=20) as server:
        began = time.monotonic()
        found = look_around(ProbedPlaces(bare.root, bare.search_path, bare.exporter, server.url))
        assert found.prometheus is None
        assert time.monotonic() - began < 10


def test_a_file_that_is_there_stays(tmp_path: Path) -> None:
    """`init` replaces nothing without --force."""
    file = tmp_path / "loadfactor.toml"
    file.write_text("store = 'mine'\n")
    with bare_machine(tmp_path) as machine:
        with pytest.raises(InputError, match="is there already"):
            write_first_configuration(machine, file, force=False)
        assert file.read_text() == "store = 'mine'\n"
        write_first_configuration(machine, file, force=True)
        assert read_settings(file).store == Path("books")


def check(name: str, folder: Path, *servers: FakePrometheus, url: str = "") -> Document:
    """Run `check` of these servers, and keep its page."""
    urls = [server.url for server in servers] + ([url] if url else [])
    sources = tuple(PulledServer(url=url, name=f"cluster-{i}") for i, url in enumerate(urls))
    with chdir(folder):
        page = check_sources(Settings(prometheus=sources), Path("books"))
    keep_page(f"check-{name}", page)
    return page


def test_nothing_is_configured(tmp_path: Path) -> None:
    """A bare folder is no mistake: the page says how to begin."""
    assert not check("bare", tmp_path).is_no


def test_a_source_that_gives_everything(tmp_path: Path) -> None:
    """Nothing that matters is missing."""
    series = list_gpus(EVERYTHING, pod="train-0", namespace="ml") + NODE
    with FakePrometheus(series) as server:
        page = check("everything", tmp_path, server)
    (source,) = page.data.sources
    assert (source.gpus, source.nodes, source.held_gpus, source.step_s, source.missing) == (16, 2, 16, 15.0, ())


def test_a_usual_exporter(tmp_path: Path) -> None:
    """What dcgm-exporter leaves out by itself is named, with the field to enable and the metrics it costs."""
    with FakePrometheus(list_gpus(USUAL)) as server:
        page = check("usual", tmp_path, server)
    missing = {s.what: s for s in page.data.sources[0].missing}
    assert missing["no SM active"].field == "DCGM_FI_PROF_SM_ACTIVE"
    assert "sm_activity" in missing["no SM active"].costs
    assert "no pod or job label on any GPU" in missing


def test_a_source_without_gpus(tmp_path: Path) -> None:
    """A server that knows of no GPU is reachable, and gives nothing to book."""
    with FakePrometheus(NODE) as server:
        assert not check("without-dcgm", tmp_path, server).is_no


def test_a_wrong_clock(tmp_path: Path) -> None:
    """A clock that differs is said in seconds."""
    with FakePrometheus(NODE, ahead_s=-90) as server:
        page = check_sources(Settings(prometheus=(PulledServer(url=server.url),)), tmp_path)
    (source,) = page.data.sources
    assert source.clock_s == pytest.approx(-90, abs=2)
    assert "behind this machine's" in source.missing[0].what


def test_what_cannot_be_reached(tmp_path: Path) -> None:
    """One that is away or refuses makes the answer no; the others are shown all the same, and what came in live."""
    (tmp_path / "books").mkdir()
    write_statuses(
        tmp_path / "books", [SourceStatus("dcgm:gpus", "silent", 1_772_409_600_000, "no sample since 00:00")]
    )
    with FakePrometheus(list_gpus(USUAL)) as fine, FakePrometheus((), status=403) as closed:
        page = check("unreachable", tmp_path, fine, closed, url="http://127.0.0.1:1")
    assert page.is_no
    assert [source.reachable for source in page.data.sources] == [True, False, False]


def check_exporters(name: str, **group: object) -> CheckedSource:
    """Run `check` of a group of exporters, and keep its page."""
    page = check_sources(Settings.model_validate({"dcgm": [{"name": "gpus", **group}]}), Path("books"))
    keep_page(f"check-{name}", page)
    assert page.is_no is (not page.data.sources[0].reachable)
    found: CheckedSource = page.data.sources[0]
    return found


def test_a_group_of_exporters(tmp_path: Path) -> None:
    """How many answer, what they give together, which are away and why, and what to enable."""
    truth = FleetTruth(gpus=16)
    with (
        chdir(tmp_path),
        FakeDcgmExporter(truth, clock=lambda: truth.began_s) as one,
        FakeDcgmExporter(FleetTruth(4)) as other,
    ):
        other.status = 503
        found = check_exporters("exporters", targets=[one.address, "127.0.0.1:1", "127.0.0.1:2"])
        assert (found.targets, found.answering, found.gpus, found.nodes, found.step_s) == (3, 1, 16, 2, 15)
        assert found.held_gpus == sum(truth.holder(gpu, truth.began_s) is not None for gpu in range(16))
        one.ahead_s = 75
        assert (
            "75 s ahead"
            in check_sources(Settings.model_validate({"dcgm": [{"targets": [one.address]}]}), tmp_path)
            .data.sources[0]
            .missing[0]
            .what
        )
        refused = check_sources(
            Settings.model_validate({"dcgm": [{"targets": [other.address]}]}), tmp_path
        ).data.sources[0]
        assert refused.error == f"{other.address} (answered 503)"


def test_exporters_in_files_that_are_broken(tmp_path: Path) -> None:
    """A file that cannot be read is named with what is wrong in it."""
    with chdir(tmp_path):
        Path("gpus.json").write_text("[{")
        found = check_exporters("broken-list", file_sd=["gpus.json"])
    assert found.error
    assert found.error.startswith("gpus.json: no JSON")


def test_exporters_without_gpus(tmp_path: Path) -> None:
    """A group of node-exporters lacks nothing; pages of something else are said to be that."""

    class NodePages(LocalServer):
        page = b'node_cpu_seconds_total{cpu="0",mode="idle"} 5\n'

        def respond(self, _path: str, _body: str, _headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
            return 200, {}, self.page

    with chdir(tmp_path), NodePages() as pages:
        assert check_exporters("node-exporters", targets=[pages.address]).missing == ()
        pages.page = b"go_threads 8\n"
        assert "dcgm-exporters" in check_exporters("other-exporters", targets=[pages.address]).missing[0].do


def test_what_is_no_prometheus() -> None:
    """An answer of something else is said in one line."""
    with FakePrometheus(({"__name__": PREFIX + "DEV_GPU_UTIL"},)) as server:
        server._rows = lambda _query: [{"metric": {}, "value": "x"}]  # type: ignore[method-assign]

        assert (
            asyncio.run(check_server(PrometheusServer("a", server.url), "")).error
            == "answered, but not as Prometheus does; check the address"
        )


def test_every_signal_costs_a_metric() -> None:
    """Each signal is given by fields there are, and some metric is unknown without it."""
    for signal in SIGNALS:
        assert set(signal.keys) <= set(KEYS), signal
        assert set(list_metrics(signal)) <= {metric.name for metric in METRICS}
        assert list_metrics(signal), signal


def test_a_cluster_that_lets_some_kinds_be_read(tmp_path: Path) -> None:
    """`check` asks for each kind of a Kubernetes cluster once: what is not installed or not allowed is said; pods are needed."""
    with FakeKubernetes() as api:
        kubeconfig = api.write_kubeconfig(tmp_path / "kubeconfig")
        settings = Settings(kubernetes=({"name": "prod", "kubeconfig": kubeconfig},))
        api.forbidden = {"nodes"}
        page = check_sources(settings, tmp_path / "books")
        (cluster,) = page.data.clusters
        assert (cluster.name, cluster.reachable, page.is_no) == ("kubernetes prod", True, False)
        assert {kind.kind: kind.can_read for kind in cluster.kinds} == {
            "nodes": False,
            "workloads": True,
            "resourceslices": False,
            "resourceclaims": False,
            "pods": True,
        }
        api.forbidden = {"pods"}
        page = check_sources(settings, tmp_path / "books")
        assert page.is_no
        assert "403" in page.data.clusters[0].error
    nobody = Settings(kubernetes=({"kubeconfig": tmp_path / "missing"},))
    (cluster,) = check_sources(nobody, tmp_path / "books").data.clusters
    assert not cluster.reachable
    assert "\n" not in cluster.error


def check_slurm_page(name: str, folder: Path, slurm: FakeSlurm) -> Document:
    """Run `check` of a cluster of Slurm, and keep its page."""
    settings = Settings.model_validate({"slurm": [{"name": "prod", "bin": str(slurm.bin)}]})
    with chdir(folder):
        page = check_sources(settings, Path("books"))
    keep_page(f"check-{name}", page)
    return page


def test_slurm_that_gives_everything(tmp_path: Path) -> None:
    """Its commands answer, and nothing that matters is missing."""
    slurm = FakeSlurm(tmp_path)
    slurm.account(job("1"))
    page = check_slurm_page("slurm", tmp_path, slurm)
    (cluster,) = page.data.slurm
    assert (cluster.gpus, cluster.nodes, cluster.missing, page.is_no) == (16, 2, (), False)


def test_slurm_that_leaves_out_what_matters(tmp_path: Path) -> None:
    """Accounting without GPUs and comments, jobs that are hidden, fields that a version lacks: each with what it costs."""
    slurm = FakeSlurm(tmp_path)
    slurm.say(
        "config",
        "AccountingStorageTRES = cpu,mem\nAccountingStorageType = accounting_storage/slurmdbd\nPrivateData = jobs\n",
    )
    slurm.say(
        "helpformat",
        "JobID State Submit Eligible Start End AllocTRES ReqTRES NodeList User Account JobName Comment WCKey",
    )
    page = check_slurm_page("slurm-poor", tmp_path, slurm)
    assert not page.is_no
    what = [s.what for s in page.data.slurm[0].missing]
    assert "AccountingStorageTRES has no gres/gpu" in what
    slurm.say("clock", "40")
    (cluster,) = check_slurm({"": SlurmCommands(SlurmAccess(bin=str(slurm.bin)))})
    assert cluster.missing[0].what.endswith("s ahead of this machine's")


def test_slurm_that_does_not_answer(tmp_path: Path) -> None:
    """Neither accounting nor the controller: the answer is no. With one of them there is something to know."""
    slurm = FakeSlurm(tmp_path)
    slurm.break_down("sacct", text="sacct: error: Problem talking to the database: Connection refused\n")
    assert not check_slurm_page("slurm-without-accounting", tmp_path, slurm).is_no
    slurm.break_down("scontrol", text="slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n")
    assert check_slurm_page("slurm-down", tmp_path, slurm).is_no
