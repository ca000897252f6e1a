"""The pages that list what there is: tables, metrics, settings, and the facts of the catalog with source and date."""

from dataclasses import dataclass
from datetime import date
from itertools import groupby
from pathlib import Path
from shlex import quote

from loadfactor.base.errors import InputError, say_why
from loadfactor.base.units import BYTES_PER_GB, FLOPS_PER_TFLOPS
from loadfactor.catalog.accelerators import Accelerator, accelerators
from loadfactor.catalog.instances import rented_types
from loadfactor.catalog.models import catalog_rows, networks
from loadfactor.catalog.prices import GpuHourPrice, gpu_hour_prices
from loadfactor.catalog.token_prices import TokenPrice, token_prices
from loadfactor.interfaces.document import Document, Section, Suggestion
from loadfactor.interfaces.formats import short
from loadfactor.interfaces.render.present import replacing
from loadfactor.interfaces.requests import CatalogRequest, NoRequest, TablesRequest
from loadfactor.interfaces.tables import col, table
from loadfactor.metrics import METRICS
from loadfactor.settings.reference import list_settings, name_table
from loadfactor.sources.own_tables.templates import describe_kind, make_templates
from loadfactor.tables.schema import GIVEN


@dataclass(frozen=True)
class ColumnEntry:
    """One column: its kind, how a value is written, what it means, and what an empty cell means (None: not allowed)."""

    name: str
    kind: str
    written: str
    meaning: str
    empty: str | None
    required: bool
    one_of: tuple[str, ...]


@dataclass(frozen=True)
class TableEntry:
    """One table, with the columns that identify a row."""

    name: str
    says: str
    key: tuple[str, ...]
    columns: tuple[ColumnEntry, ...]


def build_tables_page(request: TablesRequest) -> Document:
    """The list of tables, or the templates that were written. Raises InputError where a file exists already."""
    if request.write is None:
        return _list_tables()
    paths = _write_templates(request.write)
    next_step = Suggestion(f"loadfactor import tables {quote(str(request.write))}", "when what you know is filled in")
    return Document(
        f"Wrote {', '.join(path.name for path in paths)}.", (Section(suggestions=(next_step,)),), data=paths
    )


def _list_tables() -> Document:
    lead = (
        "A time is ISO 8601 with its zone (2026-05-01T12:00:00Z) or epoch milliseconds; a number is in the"
        " unit its column's name ends with. `loadfactor tables --write DIR` makes empty files to fill in,"
        " `loadfactor import tables DIR` reads them."
    )
    sections = [Section(lead=lead)]
    entries = []
    for given in GIVEN:
        columns = table(
            given.columns,
            col("column", "name"),
            col("written as", describe_kind),
            col("meaning", lambda c: f"{c.meaning} {f'(empty: {c.empty})' if c.empty else '(required)'}"),
            title=f"{given.name}: one row says “{given.says}”",
        )
        sections.append(Section(tables=(columns,)))
        described = [
            ColumnEntry(c.name, c.kind, describe_kind(c), c.meaning, c.empty or None, c.required, c.one_of)
            for c in given.columns
        ]
        entries.append(TableEntry(given.name, given.says, given.key, tuple(described)))
    return Document(f"{len(GIVEN)} tables take your own data, as Parquet or CSV.", sections, data=tuple(entries))


def _write_templates(folder: Path) -> tuple[Path, ...]:
    """Write an empty CSV of every table and a README into the folder.

    Raises InputError, with nothing written, when one of these files exists already or the folder cannot be made.
    """
    paths = {folder / name: text for name, text in make_templates().items()}
    existing = [path.name for path in paths if path.exists()]
    if existing:
        raise InputError(f"{folder} holds {existing[0]} already, and nothing is overwritten; name another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--write {folder}: the folder cannot be made ({say_why(error)})") from error
    for path, text in paths.items():
        with replacing(path, "--write") as beside:
            beside.write_text(text, encoding="utf-8", newline="\n")
    return tuple(paths)


@dataclass(frozen=True)
class MetricEntry:
    """The declaration of a metric. `better` is the direction: higher, lower or neither."""

    name: str
    unit: str
    title: str
    meaning: str
    better: str
    topic: str


def build_metrics(_request: NoRequest = NoRequest()) -> Document:
    """The metrics by topic, and as data one entry each."""
    sections = [
        Section(tables=(table([m for m in METRICS if m.topic == topic], *METRIC_COLUMNS, title=topic),))
        for topic in dict.fromkeys(m.topic for m in METRICS)
    ]
    return Document(
        f"{len(METRICS)} metrics; any cost_per_<unit> of a unit in your progress table is a metric, too.",
        sections,
        data=list_entries(),
    )


def list_entries() -> tuple[MetricEntry, ...]:
    """An entry for each metric."""
    return tuple(MetricEntry(m.name, m.unit, m.title, m.meaning, m.better, m.topic) for m in METRICS)


def build_settings(_request: NoRequest = NoRequest()) -> Document:
    """The settings, a table for each table of loadfactor.toml, and as data one entry each."""
    entries = list_settings()
    sections = []
    for name, items in groupby(entries, key=lambda entry: entry.name.rpartition(".")[0]):
        listed = table(
            items,
            col("setting", lambda entry: entry.name.rpartition(".")[2]),
            col("type", "type"),
            col("default", lambda entry: entry.shown_default),
            col("meaning", "description"),
            title=name_table(name),
        )
        sections.append(Section(tables=(listed,)))
    headline = f"{len(entries)} settings of loadfactor.toml; those in no table may be given as LOADFACTOR_NAME as well."
    return Document(headline, sections, data=[vars(entry) for entry in entries])


METRIC_COLUMNS = (
    col("metric", "name"),
    col("unit", "unit"),
    col("meaning", lambda m: m.meaning if m.better == "neither" else f"{m.meaning} {m.better.capitalize()} is better."),
)
SOURCED = (col("source", "source"), col("as of", lambda entry: str(entry.retrieved_on)), col("status", "status"))
"""Columns on where a fact was read."""


@dataclass(frozen=True)
class ModelEntry:
    """A model of the catalog, with the spellings it is found by."""

    id: str
    parameters: int
    active_parameters: int
    layers: int
    max_context: int
    aliases: tuple[str, ...]
    source: str
    retrieved_on: date
    status: str


@dataclass(frozen=True)
class PriceList:
    """The dated prices of the catalog: USD per GPU-hour, and USD per million tokens of an API."""

    gpu_hours: tuple[GpuHourPrice, ...]
    tokens: tuple[TokenPrice, ...]


def build_catalog(request: CatalogRequest) -> Document:
    """The list that the request names."""
    pages = {
        "models": build_models,
        "accelerators": build_accelerators,
        "prices": build_prices,
        "instances": build_instances,
    }
    return pages[request.part]()


def build_models() -> Document:
    """Every model with its size and where its shape was read."""
    data = tuple(
        ModelEntry(
            row["id"],
            (shape := networks()[row["id"]]).parameters,
            shape.active_parameters,
            shape.layers,
            shape.max_context,
            tuple(row.get("aliases", ())),
            row["source"],
            row["retrieved_on"],
            row["status"],
        )
        for row in catalog_rows().values()
    )
    models = table(
        data,
        col("model", "id"),
        col("parameters", lambda model: short(model.parameters)),
        col("active", lambda model: short(model.active_parameters)),
        col("layers", "layers", "number"),
        *SOURCED,
    )
    headline = f"{len(data)} models; a path to a Hugging Face config.json works wherever a name does."
    return Document(headline, (Section(tables=(models,)),), data=data)


def build_accelerators() -> Document:
    """Every accelerator with what limits it, and where that was read; as data every fact with its own source."""
    data = tuple(accelerators().values())

    def peak(item: Accelerator) -> float | None:
        return item.peak_flops("bf16") / FLOPS_PER_TFLOPS if "peak_bf16_flops" in item.facts else None

    listed = table(
        data,
        col("accelerator", "id"),
        col("name", "name"),
        col("memory (GB)", lambda item: item.memory_bytes / BYTES_PER_GB, "number"),
        col("memory (GB/s)", lambda item: item.memory_bandwidth_bytes_per_s / BYTES_PER_GB, "number"),
        col("bf16 (TFLOP/s)", peak, "number"),
        col("source", lambda item: item.facts["memory_bytes"].source),
        col("as of", lambda item: str(item.facts["memory_bytes"].retrieved_on)),
        col("status", lambda item: item.facts["memory_bytes"].status),
    )
    return Document(f"{len(data)} accelerators.", (Section(tables=(listed,)),), data=data)


def build_prices() -> Document:
    """Every price of a GPU-hour and of tokens, dated."""
    data = PriceList(gpu_hour_prices(), token_prices())
    dated = (col("source", "source"), col("as of", "as_of"), col("status", "status"))
    of_gpus = table(
        data.gpu_hours,
        col("accelerator", "accelerator"),
        col("kind", "kind"),
        col("per GPU-hour", "typical", "money"),
        col("low", "low", "money"),
        col("high", "high", "money"),
        *dated,
    )
    of_tokens = table(
        data.tokens,
        col("API and model", "id"),
        col("input, per million", "input_price_per_mtok", "money"),
        col("output, per million", "output_price_per_mtok", "money"),
        *dated,
    )
    sections = (Section("A GPU-hour", tables=(of_gpus,)), Section("Tokens of an API", tables=(of_tokens,)))
    headline = f"{len(data.gpu_hours)} dated prices of a GPU-hour and {len(data.tokens)} of tokens, in USD."
    return Document(headline, sections, data=data)


def build_instances() -> Document:
    """Every type of instance with GPUs that bills are read by: how many GPUs of which model, and where that was read."""
    data = tuple(rented_types().values())
    types = table(
        data,
        col("instance type", "name"),
        col("provider", "provider"),
        col("GPUs", "whole_gpus", "number"),
        col("accelerator", "accelerator"),
        *SOURCED,
    )
    providers = ", ".join(dict.fromkeys(t.provider for t in data))
    headline = f"{len(data)} types of instances with GPUs, of {providers}."
    return Document(headline, (Section(tables=(types,)),), data=data)
