"""The pages of `loadfactor catalog`: known models, accelerators, prices and types of instances, each with its source and date."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from loadfactor.base.units import BYTES_PER_GB, FLOPS_PER_TFLOPS
from loadfactor.catalog.accelerators import Accelerator, accelerators
from loadfactor.catalog.instances import rented_types
from loadfactor.catalog.models import catalog_rows, networks
from loadfactor.catalog.prices import GpuHourPrice, gpu_hour_prices
from loadfactor.catalog.token_prices import TokenPrice, token_prices
from loadfactor.interfaces.document import Cell, DataTable, Document, Section, TableColumn
from loadfactor.interfaces.formats import short

ORIGIN = (TableColumn("source"), TableColumn("as of"), TableColumn("status"))


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


def build_models() -> Document:
    """Every model with its size and where its shape was read."""
    data = tuple(_model(row) for row in catalog_rows().values())
    columns = (TableColumn("model"), TableColumn("parameters"), TableColumn("active"), TableColumn("layers", "number"))
    rows = [
        (m.id, short(m.parameters), short(m.active_parameters), m.layers, m.source, str(m.retrieved_on), m.status)
        for m in data
    ]
    headline = f"{len(data)} models; a path to a Hugging Face config.json works wherever a name does."
    return Document(headline, (_section((*columns, *ORIGIN), rows),), data=data)


def _model(row: Any) -> ModelEntry:
    shape = networks()[row["id"]]
    return ModelEntry(
        row["id"],
        shape.parameters,
        shape.active_parameters,
        shape.layers,
        shape.max_context,
        tuple(row.get("aliases", ())),
        row["source"],
        row["retrieved_on"],
        row["status"],
    )


def build_accelerators() -> Document:
    """Every accelerator with what limits it, and where that was read; as data every fact with its own source."""
    data = tuple(accelerators().values())
    columns = (
        TableColumn("accelerator"),
        TableColumn("name"),
        TableColumn("memory (GB)", "number"),
        TableColumn("memory (GB/s)", "number"),
        TableColumn("bf16 (TFLOP/s)", "number"),
        *ORIGIN,
    )
    return Document(f"{len(data)} accelerators.", (_section(columns, [_accelerator(a) for a in data]),), data=data)


def _accelerator(item: Accelerator) -> Sequence[Cell]:
    origin = item.facts["memory_bytes"]
    return (
        item.id,
        item.name,
        item.memory_bytes / BYTES_PER_GB,
        item.memory_bandwidth_bytes_per_s / BYTES_PER_GB,
        item.peak_flops("bf16") / FLOPS_PER_TFLOPS if "peak_bf16_flops" in item.facts else None,
        origin.source,
        str(origin.retrieved_on),
        origin.status,
    )


def build_prices() -> Document:
    """Every price of a GPU-hour and of tokens, dated."""
    data = PriceList(gpu_hour_prices(), token_prices())
    gpu_columns = (
        TableColumn("accelerator"),
        TableColumn("kind"),
        TableColumn("per GPU-hour", "money"),
        TableColumn("low", "money"),
        TableColumn("high", "money"),
        *ORIGIN,
    )
    gpu_rows = [(p.accelerator, p.kind, p.typical, p.low, p.high, p.source, p.as_of, p.status) for p in data.gpu_hours]
    token_columns = (
        TableColumn("API and model"),
        TableColumn("input, per million", "money"),
        TableColumn("output, per million", "money"),
        *ORIGIN,
    )
    token_rows = [
        (p.id, p.input_price_per_mtok, p.output_price_per_mtok, p.source, p.as_of, p.status) for p in data.tokens
    ]
    sections = (_section(gpu_columns, gpu_rows, "A GPU-hour"), _section(token_columns, token_rows, "Tokens of an API"))
    headline = f"{len(gpu_rows)} dated prices of a GPU-hour and {len(token_rows)} of tokens, in USD."
    return Document(headline, sections, data=data)


def build_instances() -> Document:
    """Every type of instance with GPUs that bills are read by: how many GPUs of which model, and where that was read."""
    data = tuple(rented_types().values())
    columns = (
        TableColumn("instance type"),
        TableColumn("provider"),
        TableColumn("GPUs", "number"),
        TableColumn("accelerator"),
        *ORIGIN,
    )
    rows = [(t.name, t.provider, t.whole_gpus, t.accelerator, t.source, str(t.retrieved_on), t.status) for t in data]
    providers = ", ".join(dict.fromkeys(t.provider for t in data))
    headline = f"{len(data)} types of instances with GPUs, of {providers}."
    return Document(headline, (_section(columns, rows),), data=data)


def _section(columns: Sequence[TableColumn], rows: Sequence[Sequence[Cell]], title: str = "") -> Section:
    return Section(title, tables=(DataTable(columns, rows),))
