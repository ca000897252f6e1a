"""The page of `loadfactor init`: what was found on this machine, and what to do next."""

from dataclasses import dataclass
from pathlib import Path

from loadfactor.base.errors import InputError
from loadfactor.collect.discovery.machine import ProbedPlaces, Surroundings, look_around, write_configuration
from loadfactor.interfaces.document import DataTable, Document, Section, Suggestion, TableColumn
from loadfactor.interfaces.formats import counted
from loadfactor.interfaces.render.present import replacing
from loadfactor.interfaces.requests import InitRequest
from loadfactor.settings.config import FILE

COLUMNS = (TableColumn("looked for"), TableColumn("found"))
NOT_FOUND = "not found"


@dataclass(frozen=True)
class FirstConfiguration:
    """Findings on this machine, and the file that was written."""

    file: str
    driver: str | None
    gpus: int
    exporter: str | None
    prometheus: str | None
    prometheus_gpus: int
    slurm: tuple[str, ...]
    kubernetes: bool
    cloud: str = ""


def build_page(request: InitRequest) -> Document:
    """Write a first loadfactor.toml; what was found, and the next step."""
    return write_first_configuration(ProbedPlaces(), Path(FILE), request.force)


def write_first_configuration(places: ProbedPlaces, file: Path, force: bool) -> Document:
    """Look around and write the file. Raises InputError where it is there already and may not be replaced."""
    if not force and (file.exists() or file.is_symlink()):
        raise InputError(f"{file} is there already, and stays as it is; `loadfactor init --force` replaces it")
    found = look_around(places)
    with replacing(file) as beside:
        beside.write_text(write_configuration(found, places.prometheus, places.exporter_address), encoding="utf-8")
    return build_document(found, places, file)


def build_document(found: Surroundings, places: ProbedPlaces, file: Path) -> Document:
    """The page of the findings, with the next step."""
    server = found.prometheus
    data = FirstConfiguration(
        str(file),
        found.driver,
        found.gpus,
        found.exporter,
        server.url if server else None,
        server.gpus if server else 0,
        found.slurm,
        found.kubernetes,
        found.cloud,
    )
    driver = f"version {found.driver}, {counted(found.gpus, 'GPU')}" if found.driver else NOT_FOUND
    rows = [
        ("NVIDIA driver", driver),
        (f"dcgm-exporter at {places.exporter}", counted(found.exporter_gpus, "GPU") if found.exporter else NOT_FOUND),
        (f"Prometheus at {places.prometheus}", _say_prometheus(found)),
        ("Slurm commands", ", ".join(found.slurm) or NOT_FOUND),
        ("Kubernetes service account", "found" if found.kubernetes else NOT_FOUND),
    ]
    if found.cloud:
        rows.append(("Cloud whose machine this is", f"[[{found.cloud}]] stands in the file as a comment"))
    steps = Section("Next", suggestions=_list_steps(found))
    return Document(f"{file} is written.", (Section(tables=(DataTable(COLUMNS, rows),)), steps), data=data)


def _say_prometheus(found: Surroundings) -> str:
    if found.prometheus is None:
        return NOT_FOUND
    if not found.prometheus.gpus:
        return "answers, and has no metrics of GPUs"
    return f"{counted(found.prometheus.gpus, 'GPU')} ({', '.join(found.prometheus.exporters)})"


def _list_steps(found: Surroundings) -> tuple[Suggestion, ...]:
    check = Suggestion("loadfactor check", "What the configured sources give, and what is missing.")
    up = Suggestion("loadfactor up", "Collect from now on; `loadfactor report` in another terminal.")
    if found.exporter_gpus if found.prometheus is None else found.prometheus.gpus:
        return (check, up)
    if found.prometheus is not None:
        return (check, Suggestion("loadfactor demo", "How the answers look, with a simulated fleet."))
    if found.slurm:
        return (check, up)
    if found.driver is not None:
        return (up, check)
    return (
        Suggestion(
            "loadfactor demo", "How the answers look, with a simulated fleet. Nothing to collect was found here."
        ),
        Suggestion(
            "loadfactor up", "Take what other machines send (remote_write); or name a [[prometheus]] in the file first."
        ),
    )
