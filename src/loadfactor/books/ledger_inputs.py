"""Inputs of the booked hours of the ledger besides rows that were touched, as the manifest keeps them: written and read here."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from loadfactor.base.units import MS_PER_DAY
from loadfactor.catalog.accelerators import accelerators
from loadfactor.catalog.prices import gpu_hour_price
from loadfactor.store.manifest import StoredFile, intersect, merge
from loadfactor.store.sample_files import read
from loadfactor.store.session import Session, empty_of
from loadfactor.tables.schema import PRICES, Span

BASIS: Final = "owned"


@dataclass(frozen=True)
class OwnedPrice:
    """The price of GPUs that are owned in [from_ms, to_ms), always where both are None; `currency` None is that of the books."""

    pool: str | None
    accelerator: str | None
    from_ms: int | None
    to_ms: int | None
    price_per_gpu_hour: float
    currency: str | None


@dataclass(frozen=True)
class OwnedPrices:
    """The prices of all owned GPUs, and a digest of the settings that they follow from; without settings none of either."""

    written: str = ""
    rows: tuple[OwnedPrice, ...] = ()

    def list_prices(self) -> list[dict[str, object]]:
        """The rows of the price list."""
        of_settings = {"basis": BASIS, "source": "[[owned]] of loadfactor.toml"}
        rows = [{**asdict(row), "from_utc": row.from_ms, "to_utc": row.to_ms, **of_settings} for row in self.rows]
        return [{column.name: row.get(column.name) for column in PRICES.columns} for row in rows]


@dataclass(frozen=True, order=True)
class BookedFile:
    """A file of charges, by its checksum and the time that its rows are of (ms, both ends included)."""

    checksum: str
    from_ms: int
    to_ms: int

    @property
    def days(self) -> Span:
        """The days that it speaks of: prices are of whole days.

        >>> BookedFile("0a1b", 90000000, 172800000).days
        (86400000, 259200000)
        """
        return self.from_ms - self.from_ms % MS_PER_DAY, self.to_ms + 1 + -(self.to_ms + 1) % MS_PER_DAY


@dataclass(frozen=True)
class BookedBills:
    """Which bills make prices, under which rules (a digest), on which nodes (a digest)."""

    rules: str
    nodes: str
    files: tuple[BookedFile, ...]


@dataclass(frozen=True)
class LedgerInputs:
    """Digests of what follows from all rows of the small tables, bills that make prices, and prices of owned GPUs.

    `sources`: of which GPUs allocation sources speak; `unlisted`: what is held and not listed; `names`: names and numbers of nodes;
    `waits`: from which files the waits follow that are kept, on which no hour stands.
    """

    sources: str = ""
    unlisted: str = ""
    names: str = ""
    bills: BookedBills | None = None
    owned: OwnedPrices = OwnedPrices()
    waits: str = ""

    def write(self) -> str:
        """As the manifest keeps it.

        >>> LedgerInputs("a", "b", "c").write()
        '{"sources":"a","unlisted":"b","names":"c"}'
        """
        reported = asdict(self)
        are_there = {"bills": self.bills, "owned": self.owned.written, "waits": self.waits}
        left_out = {name for name, is_there in are_there.items() if not is_there}
        return json.dumps({name: reported[name] for name in reported if name not in left_out}, separators=(",", ":"))


def read_inputs(text: str) -> LedgerInputs:
    """Parse the inputs in a manifest; empty ones of a ledger that was never booked.

    >>> inputs = LedgerInputs("a", "b", "c", BookedBills("r", "n", (BookedFile("0a1b", 5, -7),)), OwnedPrices("w"))
    >>> read_inputs(inputs.write()) == inputs, read_inputs("") == LedgerInputs()
    (True, True)
    """
    if not text:
        return LedgerInputs()
    reported = json.loads(text)
    bills = reported.get("bills")
    return LedgerInputs(
        reported["sources"],
        reported["unlisted"],
        reported["names"],
        bills
        and BookedBills(
            bills["rules"],
            bills["nodes"],
            tuple(BookedFile(file["checksum"], file["from_ms"], file["to_ms"]) for file in bills["files"]),
        ),
        _read_owned(reported.get("owned")),
        reported.get("waits", ""),
    )


def _read_owned(reported: Mapping[str, Any] | None) -> OwnedPrices:
    if not reported:
        return OwnedPrices()
    return OwnedPrices(reported["written"], tuple(OwnedPrice(**row) for row in reported["rows"]))


def select_ledger(session: Session, files: Iterable[StoredFile], are_earlier: bool = False) -> str:
    """SQL: files of the ledger, of each the hours that count; those that count whole are read at once.

    `are_earlier`: an earlier version may have written them all.
    """
    files = list(files)
    redefined = session.manifest.dropped.redefined
    earlier = [f for f in files if f.table == "ledger" and (are_earlier or intersect(f.booked, redefined))]
    rest = [f for f in files if f not in earlier]
    parts = (_select_earlier(session, earlier) if earlier else "", _select_booked(session, rest))
    return " UNION ALL BY NAME ".join(filter(None, parts))


def _select_booked(session: Session, files: Iterable[StoredFile], options: str = "") -> str:
    """SQL: the same with the columns that the files have; `options` of reading several."""
    files = list(files)
    whole = [f for f in files if f.hours in (None, ((f.from_ms, f.to_ms),))]
    queries = [f"SELECT * FROM {read(session.paths(whole))[:-1]}{options})"] if whole else []
    for file in (f for f in files if f not in whole):
        hours = " OR ".join(f"(hour_utc >= {start} AND hour_utc < {end})" for start, end in file.booked)
        queries.append(f"SELECT * FROM {read(session.paths([file]))} WHERE {hours}")
    return " UNION ALL BY NAME ".join(queries)


def _select_earlier(session: Session, files: Iterable[StoredFile]) -> str:
    """SQL: files as an earlier version wrote them, with the columns of now: unknown where it had none."""
    from loadfactor.ledger.steps import ledger_columns  # slow to import

    known = f"({_select_booked(session, files, ', union_by_name = true')})"
    columns = ledger_columns()
    there = {name for name, *_ in session.raw.execute(f"DESCRIBE SELECT * FROM {known}").fetchall()}
    chosen = ", ".join(name for name in columns if name in there)
    return f"SELECT {chosen} FROM {known} UNION ALL BY NAME {empty_of(columns)}"


def find_redefined(session: Session, files: Iterable[StoredFile]) -> tuple[Span, ...]:
    """The hours of those files of the ledger that lack a column of now: an earlier version wrote them."""
    from loadfactor.ledger.steps import ledger_columns  # slow to import

    def is_earlier(file: StoredFile) -> bool:
        found = session.raw.execute(f"DESCRIBE SELECT * FROM {read(session.paths([file]))}").fetchall()
        return not {*ledger_columns()} <= {name for name, *_ in found}

    return merge([span for file in files if is_earlier(file) for span in file.booked])


def list_estimates() -> list[dict[str, object]]:
    """The catalog's dated prices as rows of the price list."""
    rows = []
    for item in accelerators():
        price = gpu_hour_price(item)
        if price is not None:
            given: dict[str, object] = {
                "accelerator": item,
                "basis": "estimate",
                "price_per_gpu_hour": float(price.typical),
                "currency": price.currency,
                "source": f"{price.source} ({price.as_of})",
            }
            rows.append({column.name: given.get(column.name) for column in PRICES.columns})
    return rows
