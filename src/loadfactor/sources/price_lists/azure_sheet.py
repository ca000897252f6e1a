"""Decoder of Azure's price sheets (Enterprise and Customer Agreement): what virtual machines with GPUs cost an hour, a GPU.

A sheet prices meters by region, the books GPUs by model: a region is chosen, and a model that costs otherwise in machines of other
sizes has no price until a size is chosen. Machines on spot, with Windows, for tests, reserved or under a plan are left out.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.base.errors import InputError, SourceError
from loadfactor.base.units import MS_PER_S
from loadfactor.catalog.instances import RentedType, find_rented_type, may_have_gpus
from loadfactor.sources.base import Gap, Gaps, Input, ReadOptions, Rows
from loadfactor.sources.billing.bill_file import fold_name
from loadfactor.sources.billing.decimal_commas import learn_decimals, write_points
from loadfactor.sources.parsing.cells import quote
from loadfactor.sources.parsing.csv_text import TextBatch, split_csv
from loadfactor.sources.parsing.text_blocks import split_blocks
from loadfactor.tables.schema import PRICES

_COLUMNS: Final = {
    "category": "metercategory", "family": "metersubcategory", "meter": "metername", "region": "meterregion",
    "product": "product", "unit": "unitofmeasure", "contracted": "unitprice", "list": "marketprice", "kind": "pricetype",
    "offer": "offerid", "order": "productordername", "least": "tierminimumunits", "since": "effectivestartdate",
    "currency": "currency", "code": "currencycode",
}  # fmt: skip
_NEEDED: Final = ("meter", "unit", "contracted")
_HOURS: Final = re.compile(r"(\d+) hours?(?:/month)?", re.IGNORECASE)
_NOT_OWN: Final = re.compile(r"\b(spot|low priority|promo)\b", re.IGNORECASE)
_DAY: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)|(\d{1,2})/(\d{1,2})/(\d{4})")
_FOR_TESTS: Final = "ms-azr-0148p"
_SHOWN: Final = 5
SPOT: Final = "prices of spot and low-priority machines: left out"
WINDOWS: Final = "prices of machines with Windows: left out"
COMMITTED: Final = "prices of reservations and savings plans, of whole terms: left out"
FOR_TESTS: Final = "prices for development and tests: left out"
NO_PRICE: Final = "machines with GPUs without a price above zero for hours: left out"


@dataclass(frozen=True)
class MachinePrice:
    """What a machine costs a GPU-hour, as the contract and the list say it; since when, in ms."""

    contracted: Decimal
    list: Decimal | None
    since_ms: int | None
    currency: str | None


def is_price_sheet(source: Input) -> bool:
    """Whether the heading of a CSV is that of a price sheet."""
    names = {fold_name(name) for name in re.split("[,;\t]", _read_heading(source))}
    return "meterid" in names and {"unitprice", "unitofmeasure"} <= names


def decode_price_sheet(source: Input, options: ReadOptions) -> Iterator[Rows | Gap]:
    """The prices of one region. SourceError where several are to choose from, or nothing in it prices a machine with GPUs."""
    gaps = Gaps()
    kind = _find_type(options.instance_type)
    found: dict[str, dict[RentedType, set[MachinePrice]]] = defaultdict(lambda: defaultdict(set))
    for row in _list_machines(source, gaps):
        type_ = _find_machine(row["meter"])
        if type_ is None:
            if may_have_gpus(row["meter"].replace(" ", "_")):
                gaps.add(source.label, f"{quote(row['meter'])[1:-1]}: a size that the catalog does not know; left out")
            continue
        price = _read_price(source.label, row, type_)
        if price is None:
            gaps.add(source.label, NO_PRICE)
        elif kind in (None, type_):
            found[row["region"] or ""][type_].add(price)
    region = _choose_region(source.label, sorted(found), options.region, kind)
    rows = list(_price_models(source.label, found[region], region, options.pool, gaps))
    if not rows:
        why = next((gap.what for gap in gaps.drain()), "")
        raise SourceError(f"{source.label}: no machine with GPUs has one price in it ({why})")
    yield Rows(PRICES.name, pa.Table.from_pylist(rows, PRICES.schema), source.label)
    yield from gaps.drain()


def _read_heading(source: Input) -> str:
    return next((block.data for block in split_blocks(source)), b"").partition(b"\n")[0].decode()


def _list_machines(source: Input, gaps: Gaps) -> Iterator[dict[str, Any]]:
    """Rows of hours of virtual machines that are rented as they are."""
    for batch in _read_batches(source):
        columns = {
            fold_name(name): cells for name, cells in zip(batch.cells.schema.names, batch.cells.columns, strict=True)
        }
        missing = [_COLUMNS[name] for name in _NEEDED if _COLUMNS[name] not in columns]
        if missing:
            raise SourceError(f"{source.label}: a price sheet of Azure without {', '.join(missing)}; export it whole")
        cells = pa.table({ours: columns[theirs] for ours, theirs in _COLUMNS.items() if theirs in columns})
        has_hours = pc.fill_null(pc.match_substring(cells["unit"], "hour", ignore_case=True), False)
        if "category" in cells.column_names:
            is_machine = pc.match_substring(cells["category"], "virtual machine", ignore_case=True)
            has_hours = pc.and_(has_hours, pc.fill_null(is_machine, False))
        for row in cells.filter(has_hours).to_pylist():
            row = dict.fromkeys(_COLUMNS) | row
            if why := _find_reason(row):
                gaps.add(source.label, why, int(_find_machine(row["meter"] or "") is not None))
            elif row["meter"]:
                yield row


def _read_batches(source: Input) -> Iterator[TextBatch]:
    heading = _read_heading(source)
    delimiter = ";" if heading.count(";") > heading.count(",") else "\t" if "\t" in heading else ","
    if delimiter == ",":
        yield from split_csv(source)[1]
        return
    has_commas = learn_decimals(source.label, split_csv(source, delimiter)[1])
    for batch in split_csv(source, delimiter)[1]:
        yield write_points(batch) if has_commas else batch


def _find_reason(row: dict[str, Any]) -> str | None:
    """Why a row is no price of a machine as it is rented by the hour; None where it is one."""
    kind = (row["kind"] or "consumption").lower()
    if "reserv" in kind or "saving" in kind:
        return COMMITTED
    if "dev" in kind or (row["offer"] or "").lower() == _FOR_TESTS or re.search("dev.?test", row["order"] or "", re.I):
        return FOR_TESTS
    if _NOT_OWN.search(row["meter"] or ""):
        return SPOT
    if "windows" in f"{row['family'] or ''} {row['product'] or ''}".lower():
        return WINDOWS
    return "prices of further tiers: left out" if re.search("[1-9]", row["least"] or "") else None


def _find_machine(meter: str) -> RentedType | None:
    """The size that a meter is of, as "NC24ads A100 v4", "ND96asr A100 v4" (whose name has no model) or "NC6/NC6s v2" name it."""
    for name in _NOT_OWN.sub("", meter).split("/"):
        words = name.split()
        for chosen in (words, [*words[:1], *words[2:]] if len(words) > 2 else words):
            if found := find_rented_type("Standard_" + "_".join(chosen)):
                return found
    return None


def _find_type(name: str | None) -> RentedType | None:
    if name is None:
        return None
    found = find_rented_type(name.replace(" ", "_")) or _find_machine(name)
    if found is None:
        raise InputError(
            f"--instance-type {name} is none that the catalog knows; `loadfactor catalog instances` lists them"
        )
    return found


def _read_price(label: str, row: dict[str, Any], type_: RentedType) -> MachinePrice | None:
    hours = _HOURS.fullmatch(row["unit"].strip())
    amounts = {name: _read_amount(label, row[name]) for name in ("contracted", "list")}
    contracted = amounts["contracted"]
    if hours is None or contracted is None or contracted <= 0:
        return None
    per_gpu = Decimal(hours[1]) * Decimal(str(type_.whole_gpus))
    listed = amounts["list"]
    return MachinePrice(
        contracted / per_gpu,
        listed / per_gpu if listed else None,
        _read_day(label, row["since"]),
        row["currency"] or row["code"],
    )


def _read_amount(label: str, text: str | None) -> Decimal | None:
    try:
        number = Decimal(text.strip()) if text else None
    except InvalidOperation:
        raise SourceError(f"{label}: a price of {quote(text)} is no number; export the sheet again") from None
    return number if number is not None and number.is_finite() else None


def _read_day(label: str, text: str | None) -> int | None:
    """Midnight (UTC) of a day, in ms; with slashes the month comes first, as Azure writes it, where it can."""
    found = _DAY.match(text or "")
    if found is None:
        return None
    year, month, day = map(int, found.groups()[:3] if found[1] else (found[6], found[4], found[5]))
    try:
        when = date(year, month, day) if month <= 12 else date(year, day, month)
    except ValueError:
        raise SourceError(f"{label}: {quote(text)} is no day") from None
    return int(datetime(when.year, when.month, when.day, tzinfo=UTC).timestamp()) * MS_PER_S


def _choose_region(label: str, regions: list[str], given: str | None, kind: RentedType | None) -> str:
    if not regions:
        of = f"{kind.name}" if kind else "a machine with GPUs that the catalog knows"
        raise SourceError(
            f"{label} is a price sheet of Azure without an hour of {of}; export the sheet of all services"
        )
    shown = ", ".join(regions[:_SHOWN]) + (f" and {len(regions) - _SHOWN} more" if len(regions) > _SHOWN else "")
    if given is None and len(regions) > 1:
        raise SourceError(f"{label} is a price sheet of Azure with prices of GPUs in {shown}; choose one with --region")
    chosen = next((region for region in regions if given is None or region.lower() == given.strip().lower()), None)
    if chosen is None:
        raise SourceError(f"{label} has no prices of GPUs in {given}; it has {shown}")
    return chosen


def _price_models(
    label: str, sizes: dict[RentedType, set[MachinePrice]], region: str, pool: str | None, gaps: Gaps
) -> Iterator[dict[str, Any]]:
    by_model: dict[str, dict[MachinePrice, str]] = defaultdict(dict)
    for type_, prices in sizes.items():
        for price in prices:
            by_model[type_.accelerator].setdefault(price, type_.name)
    for model, found in sorted(by_model.items()):
        ordered = sorted(found, key=lambda price: price.contracted)
        low, high = ordered[0], ordered[-1]
        if len(found) > 1:
            gaps.add(
                label,
                f"{model} costs {low.contracted:.4f} ({found[low]}) to {high.contracted:.4f} ({found[high]}) a GPU-hour in"
                f" {region}: left out; choose a size with --instance-type",
                len(found),
            )
            continue
        for basis, amount in (("contracted", low.contracted), ("list", low.list)):
            if amount:
                yield {
                    "accelerator": model, "pool": pool, "from_utc": low.since_ms, "basis": basis,
                    "price_per_gpu_hour": float(amount), "currency": low.currency,
                    "source": f"Azure price sheet, {found[low]}, {region}".rstrip(", "),
                }  # fmt: skip
