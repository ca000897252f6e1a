"""Checks of sources and of the instances of clouds, as texts that somebody has read and kept."""

import asyncio
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pytest
from tests.collect.discovery.fake_prometheus import FakePrometheus, list_gpus
from tests.collect.discovery.kept_pages import EVERYTHING, NODE, USUAL, keep_page
from tests.live.fake_dcgm_exporter import FakeDcgmExporter, FleetTruth
from tests.live.fake_kubernetes import FakeKubernetes
from tests.live.fake_slurm import FakeSlurm, job
from tests.live.local_server import LocalServer

from loadfactor.base.errors import InputError
from loadfactor.collect.discovery.cluster_check import check_instances, check_slurm
from loadfactor.collect.discovery.shortfalls import SIGNALS, SourceCheck, list_metrics
from loadfactor.collect.discovery.source_check import CheckedSources, check_server, check_sources
from loadfactor.collect.prometheus_server import PrometheusServer
from loadfactor.collect.slurm_commands import SlurmCommands
from loadfactor.interfaces.document import Document
from loadfactor.interfaces.pages.sources_check import build_document
from loadfactor.interfaces.render.terminal import render_text
from loadfactor.metrics import METRICS
from loadfactor.settings.config import Settings
from loadfactor.settings.sources import PrometheusSettings, SlurmCluster
from loadfactor.sources.dcgm.fields import PREFIX
from loadfactor.sources.gpu_scrapes.fields import KEYS
from loadfactor.store.source_status import SourceStatus, write_statuses
from loadfactor.store.store import find_place


def show(settings: Settings, folder: Path) -> Document:
    """The page of `check`."""
    return build_document(check_sources(settings, folder), find_place(folder))


def check(name: str, folder: Path, *servers: FakePrometheus, url: str = "") -> Document:
    """Run `check` of these servers, and keep its page."""
    urls = [server.url for server in servers] + ([url] if url else [])
    sources = tuple(PrometheusSettings(url=url, name=f"cluster-{i}") for i, url in enumerate(urls))
    with chdir(folder):
        page = show(Settings(prometheus=sources), Path("books"))
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
    """Fields that dcgm-exporter leaves out by itself are named, with the field to enable and the metrics it costs."""
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
        page = show(Settings(prometheus=(PrometheusSettings(url=server.url),)), tmp_path)
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


def check_exporters(name: str, **group: object) -> SourceCheck:
    """Run `check` of a group of exporters, and keep its page."""
    page = show(Settings.model_validate({"dcgm": [{"name": "gpus", **group}]}), Path("books"))
    keep_page(f"check-{name}", page)
    assert page.is_no is (not page.data.sources[0].reachable)
    found: SourceCheck = page.data.sources[0]
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
            in show(Settings.model_validate({"dcgm": [{"targets": [one.address]}]}), tmp_path)
            .data.sources[0]
            .missing[0]
            .what
        )
        refused = show(Settings.model_validate({"dcgm": [{"targets": [other.address]}]}), tmp_path).data.sources[0]
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


@pytest.mark.long
def test_a_cluster_that_lets_some_kinds_be_read(tmp_path: Path) -> None:
    """`check` asks for each kind of a Kubernetes cluster once: what is not installed or not allowed is said; pods are needed."""
    with FakeKubernetes() as api:
        kubeconfig = api.write_kubeconfig(tmp_path / "kubeconfig")
        settings = Settings(kubernetes=({"name": "prod", "kubeconfig": kubeconfig},))
        api.forbidden, api.unwatchable = {"nodes"}, {"workloads"}
        page = show(settings, tmp_path / "books")
        (cluster,) = page.data.clusters
        assert (cluster.name, cluster.reachable, page.is_no) == ("kubernetes prod", True, False)
        assert {kind.kind: kind.can_read for kind in cluster.kinds} == {
            "nodes": False,
            "resourceflavors": True,
            "cohorts": True,
            "clusterqueues": True,
            "localqueues": True,
            "workloads": False,
            "resourceslices": False,
            "resourceclaims": False,
            "pods": True,
        }
        errors = {kind.kind: kind.error or "" for kind in cluster.kinds}
        assert errors["nodes"].endswith("without it nobody knows how GPUs are divided and which nodes are down")
        assert "cannot watch" in errors["workloads"]
        assert errors["resourceslices"] == "dynamic resource allocation is not installed"
        api.forbidden = {"pods"}
        page = show(settings, tmp_path / "books")
        assert page.is_no
        assert "403" in page.data.clusters[0].error
    nobody = Settings(kubernetes=({"kubeconfig": tmp_path / "missing"},))
    (cluster,) = show(nobody, tmp_path / "books").data.clusters
    assert not cluster.reachable
    assert "\n" not in cluster.error


def check_slurm_page(name: str, folder: Path, slurm: FakeSlurm) -> Document:
    """Run `check` of a cluster of Slurm, and keep its page."""
    settings = Settings.model_validate({"slurm": [{"name": "prod", "bin": str(slurm.bin)}]})
    with chdir(folder):
        page = show(settings, Path("books"))
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
    (cluster,) = check_slurm({"": SlurmCommands(SlurmCluster(bin=str(slurm.bin)))})
    assert cluster.missing[0].what.endswith("s ahead of this machine's")


def test_slurm_that_does_not_answer(tmp_path: Path) -> None:
    """Neither accounting nor the controller: the answer is no. With one of them there is something to know."""
    slurm = FakeSlurm(tmp_path)
    slurm.break_down("sacct", text="sacct: error: Problem talking to the database: Connection refused\n")
    assert not check_slurm_page("slurm-without-accounting", tmp_path, slurm).is_no
    slurm.break_down("scontrol", text="slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n")
    assert check_slurm_page("slurm-down", tmp_path, slurm).is_no


def answer_in_part() -> Iterator[tuple[str, str]]:
    """One question is allowed, one is not."""
    yield "instances", ""
    yield "spot prices", "may not ec2:DescribeSpotPriceHistory; add a line"


def fail() -> Iterator[tuple[str, str]]:
    """The client is not installed."""
    raise InputError("boto3 is not installed")
    yield


def test_what_may_not_be_asked_is_said_and_is_no_failure(tmp_path: Path) -> None:
    """Each question with yes or no; books without these rows are a gap, so that the answer of `check` stays as it is."""
    found = check_instances({"ec2 prod": answer_in_part, "ec2 other": fail})
    assert [(one.name, [said.works for said in one.questions]) for one in found] == [
        ("ec2 prod", [True, False]),
        ("ec2 other", [False]),
    ]
    page = build_document(CheckedSources((), instances=tuple(found), clouds=("cloudwatch prod",)), find_place(tmp_path))
    text = " ".join(render_text(page, 100).split())
    assert not page.is_no
    for said in ("ec2 prod", "may not ec2:DescribeSpotPriceHistory; add a line", "boto3 is not installed"):
        assert said in text
