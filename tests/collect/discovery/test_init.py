"""Findings of `init`, and what it writes, as texts that somebody has read and kept; the role that reads a cluster."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.collect.discovery.fake_prometheus import FakePrometheus, list_gpus
from tests.collect.discovery.kept_pages import NODE, USUAL, keep, keep_page
from tests.live.fake_dcgm_exporter import FakeDcgmExporter, FleetTruth
from tests.live.up_process import free_port
from tests.waiting import LONGEST_S

from loadfactor.base.errors import InputError
from loadfactor.collect.discovery import machine
from loadfactor.collect.discovery.machine import ProbedPlaces, look_around, write_configuration
from loadfactor.collect.kubernetes_api import RESOURCES, name_plural
from loadfactor.interfaces.pages.first_configuration import build_document as build_first_page
from loadfactor.interfaces.pages.first_configuration import write_first_configuration
from loadfactor.settings.config import Settings, read_settings
from loadfactor.sources.kubernetes.pods import PURPOSES

SHIPPED_S = machine.LONGEST_PROBE_S


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers of a test are there, however late they answer."""
    monkeypatch.setattr(machine, "LONGEST_PROBE_S", LONGEST_S)


@contextmanager
def bare_machine(folder: Path) -> Iterator[ProbedPlaces]:
    """A machine on which nothing is; nobody listens on its ports."""
    (folder / "bin").mkdir()
    dead = f"http://127.0.0.1:{free_port()}"
    yield ProbedPlaces(folder, str(folder / "bin"), f"{dead}/metrics", dead)


def add_driver(root: Path, gpus: int = 8) -> None:
    (root / "proc/driver/nvidia").mkdir(parents=True)
    said = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31 09:35:42 UTC 2024\nGCC version:\n"
    (root / "proc/driver/nvidia/version").write_text(said)
    (root / "dev").mkdir()
    for name in ("nvidiactl", *(f"nvidia{i}" for i in range(gpus))):
        (root / "dev" / name).touch()


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


def test_a_machine_of_a_cloud(tmp_path: Path) -> None:
    """The cloud of its firmware is proposed as a comment: reading it takes permissions that somebody has to give."""
    for vendor, table in (("Amazon EC2", "cloudwatch"), ("Google Compute Engine", "gcp-monitoring"), ("Dell Inc.", "")):
        folder = tmp_path / (table or "none")
        (folder / "sys/class/dmi/id").mkdir(parents=True)
        (folder / "sys/class/dmi/id/product_name").write_text(f"{vendor}\n")
        with bare_machine(folder) as machine:
            found = look_around(machine)
        assert found.cloud == table
        text = write_configuration(found, machine.prometheus, machine.exporter_address)
        assert (f"# [[{table}]]" in text) == bool(table)
        assert [name for name in ("cloudwatch", "gcp-monitoring") if name in text] == [table] * bool(table)


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
        # The commands of Slurm on the search path.
        for name in ("sacct", "squeue", "sinfo", "scontrol"):
            command = machine.root / "bin" / name
            command.write_text("#!/bin/sh\n")
            command.chmod(0o755)
        (tmp_path / "var/run/secrets/kubernetes.io/serviceaccount").mkdir(parents=True)
        (tmp_path / "var/run/secrets/kubernetes.io/serviceaccount/token").write_text("secret")
        assert begin("slurm", machine).slurm


def test_slow_servers_are_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that does not answer within a second is not there."""
    monkeypatch.setattr(machine, "LONGEST_PROBE_S", SHIPPED_S)
    with bare_machine(tmp_path) as bare, FakePrometheus(NODE, delay_s=3600) as server:
        began = time.monotonic()
        found = look_around(ProbedPlaces(bare.root, bare.search_path, bare.exporter, server.url))
        assert found.prometheus is None
        assert time.monotonic() - began < LONGEST_S


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


ROOT = Path(__file__).parents[3]
RULE = re.compile(r"apiGroups: \[(.*?)\],?\s+resources: \[(.*?)\],?\s+verbs: \[(.*?)\]")


def read_rules(path: str) -> dict[tuple[str, str], set[str]]:
    """Verbs by group and resource of the role in a file."""
    found: Any = RULE.findall((ROOT / path).read_text())
    return {
        (group.strip(' "'), resource.strip()): {verb.strip() for verb in verbs.split(",")}
        for group, resources, verbs in found
        for resource in resources.split(",")
    }


def test_the_role_covers_what_is_watched() -> None:
    """Each kind may be listed and watched; the owners of pods that can be followed up may be got; nothing may be written."""
    rules = read_rules("docs/connect-kubernetes.md")
    assert rules == read_rules("packaging/chart/templates/rbac.yaml")
    watched = {(one.group, one.plural) for one in RESOURCES}
    assert {place for place, verbs in rules.items() if verbs == {"get", "list", "watch"}} == watched
    assert {frozenset(verbs) for place, verbs in rules.items() if place not in watched} == {frozenset({"get"})}
    owners = {resource for _, resource in rules}
    kinds = (
        "Job",
        "PyTorchJob",
        "MPIJob",
        "JobSet",
        "RayCluster",
        "RayJob",
        "LeaderWorkerSet",
        "Notebook",
        "Deployment",
        "TrainJob",
    )
    assert {name_plural(kind) for kind in kinds} <= owners
    assert {*kinds} - {"RayCluster"} <= PURPOSES.keys()
