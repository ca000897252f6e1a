"""Several stores read as one: the books of regions, each with its own files, steps and ledger, as tables of one session.

A session of each store names what it reads in a schema of its own; the session of all reads them there, one after another. Nothing
is written. Devices, nodes, pools and jobs belong to a region: a name that several regions use is `region/name` in each of them.
Teams, users, projects and experiments are people's names and mean the same everywhere.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from shlex import quote as quote_word
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from loadfactor.base.errors import InputError
from loadfactor.base.paths import list_stores, name_store, read_url, say_read_only
from loadfactor.store.manifest import Dropped, Manifest, StoredFile, merge
from loadfactor.store.overlay import Overlay
from loadfactor.store.place import CACHE_GB, Generation, Place
from loadfactor.store.sample_files import quote
from loadfactor.store.session import MEMORY, Entry, Session, connect_reader
from loadfactor.store.store import Store, find_place
from loadfactor.tables.schema import NUMBERED, Span, columns_of

if TYPE_CHECKING:
    import duckdb

NAMED_IN: Final = {
    "device_id": ("devices", "allocations", "outages"),
    "node": ("devices", "allocations", "outages"),
    "pool": ("devices", "allocations", "queue_events"),
    "job_id": ("allocations", "queue_events", "progress", "served_requests"),
}
"""The columns whose names belong to a region, and the tables that say which names it has."""
_WORDS: Final = {"device_id": "GPU", "node": "node", "pool": "pool", "job_id": "job"}
SHOWN: Final = 3
SPAN_BITS: Final = 48
"""Numbers of intervals of holdings (`ledger.attribution`) are smaller in one store; those of others are set apart above them."""


@dataclass(frozen=True)
class Clash:
    """Names of a column that several regions use: how many, and the first of them."""

    column: str
    count: int
    first: tuple[str, ...]

    @property
    def words(self) -> str:
        """In words: `2 nodes (n1, n2)`."""
        more = ", …" if self.count > len(self.first) else ""
        plural = "s" * (self.count != 1)
        return f"{self.count:,} {_WORDS[self.column]}{plural} ({', '.join(self.first)}{more})"


class FederatedSession(Session):
    """The tables of several sessions as those of one, each row under the names that it has among all."""

    def __init__(
        self,
        place: Place,
        manifest: Manifest,
        raw: "duckdb.DuckDBPyConnection",
        currency: str,
        members: Mapping[str, Session],
        overlay: Overlay | None = None,
    ) -> None:
        """`members`: a session of each region, with a schema of its own; `raw` is a connection of the overlay's engine."""
        super().__init__(place, manifest, raw, currency, has_schema=True)
        self.members, self.overlay = members, overlay
        self._own: tuple[Session, ...] = ()
        self._homes = {file.name: member for member in members.values() for file in member.manifest.files}
        self.live = {table: "" for member in members.values() for table in member.live}
        self.live_samples = tuple(part for member in members.values() for part in member.live_samples)

    def beside(self) -> "FederatedSession":
        members = {region: member.beside() for region, member in self.members.items()}
        session = FederatedSession(self.place, self.manifest, self.raw.cursor(), self.currency, members)
        session._own = tuple(members.values())
        session._clashing = self._clashing  # it stands as long as this one
        return session

    def close(self) -> None:
        super().close()
        for member in self._own:
            member.close()

    def view_table(
        self, name: str, table: str, files: tuple[StoredFile, ...] | None = None, within: tuple[Span, ...] = ()
    ) -> None:
        for member in self.members.values():
            own = None if files is None else tuple(f for f in files if self._homes[f.name] is member)
            member.view_table(name, table, own, within)
        self.unite(name, columns_of(table))

    def unite(
        self, name: str, columns: Iterable[str] | None = None, where: str = "true", is_kept: bool = False
    ) -> None:
        """Name the rows that every member calls so, together; `columns`: those among `NAMED_IN` are looked for there.

        `is_kept`: as they are now, in a table.
        """
        if columns is None:
            first = next(iter(self.members.values()))
            columns = [column for column, *_ in first.raw.execute(f'DESCRIBE "{name}"').fetchall()]
        known = set(columns)
        parts = []
        for place, (region, member) in enumerate(self.members.items()):
            changed = [self._rename(region, column) for column in NAMED_IN if column in known]
            changed += [f"span + {place << SPAN_BITS} AS span"] if "span" in known else []
            renamed = ", ".join(filter(None, changed))
            replaced = f" REPLACE ({renamed})" if renamed else ""
            parts.append(f'SELECT *{replaced} FROM {member.schema}."{name}"')
        sql = f"SELECT * FROM ({' UNION ALL BY NAME '.join(parts)}) WHERE {where}"
        if is_kept:
            self.materialize(name, sql)
        elif self._standing.get(name) != sql:
            self.create_view(name, sql)

    def _rename(self, region: str, column: str) -> str:
        """SQL: what rows of a region have in a column, under a name that no other region uses; empty where all are such."""
        relation, clashes = self._clashing
        found = f"SELECT name FROM {relation} WHERE kind"
        is_clash = f"{column} IN ({found} = '{column}')" if column in {of.column for of in clashes} else ""
        if column == "device_id":  # GPUs that nobody lists are named after their place
            place = f"left({column}, -length(split_part({column}, '{NUMBERED}', -1)) - {len(NUMBERED)})"
            is_listed = f"contains({column}, '{NUMBERED}') AND {place} IN ({found} = 'place')"
            is_clash = f"{is_clash} OR ({is_listed})" if is_clash else is_listed
        return is_clash and f"if({is_clash}, {quote(f'{region}/')} || {column}, {column}) AS {column}"

    def describe_clashes(self) -> str:
        """Which names several regions use, and what they are called here; empty where there are none."""
        clashes = self._clashing[1]
        if not clashes:
            return ""
        names, first = ", ".join(of.words for of in clashes), clashes[0].first[0]
        example = " and ".join(f"{region}/{first}" for region in list(self.members)[:2])
        return f"these stores use the same names for different things, which stand with their region, as {example}: {names}"

    @cached_property
    def _clashing(self) -> tuple[str, tuple[Clash, ...]]:
        """A table of them (kind, name), and what they are."""
        return self.find_once("clashes", self._find_clashes)

    def _find_clashes(self) -> tuple[str, tuple[Clash, ...]]:
        kinds = []
        for column, tables in NAMED_IN.items():
            named = []
            for place, member in enumerate(self.members.values()):
                for table in tables:
                    member.view_table(table, table)
                    named.append(f"SELECT DISTINCT {column} AS name, {place} AS place FROM {member.schema}.{table}")
            kinds.append(
                f"SELECT '{column}' AS kind, name FROM ({' UNION '.join(named)}) WHERE name IS NOT NULL"
                " GROUP BY name HAVING count(*) > 1"
            )
        found = self.materialize_shared("names", " UNION ALL ".join(kinds))
        relation = self.materialize_shared(
            "clashes",
            f"SELECT * FROM {found} UNION ALL SELECT 'place', name FROM {found} WHERE kind = 'node'"
            f" UNION ALL SELECT 'place', 'pool ' || name FROM {found} WHERE kind = 'pool' UNION ALL SELECT 'place', 'fleet'",
        )
        rows = self.raw.execute(
            f"SELECT kind, count(*), min(name, {SHOWN}) FROM {relation} WHERE kind <> 'place' GROUP BY kind"
        ).fetchall()
        clashes = {kind: Clash(kind, count, tuple(first)) for kind, count, first in rows}
        return relation, tuple(clashes[column] for column in NAMED_IN if column in clashes)

    def span(self) -> Span:
        spans = [span for span in (member.span() for member in self.members.values()) if span[0] < span[1]]
        return (min(start for start, _ in spans), max(end for _, end in spans)) if spans else (0, 0)

    def paths(self, files: Iterable[StoredFile]) -> list[Path]:
        return [path for file in files for path in self._homes[file.name].paths([file])]


class Joint(Place):
    """Where several stores lie. Nothing is put there, but in the folder beside them where one is named."""

    def __init__(self, path: Path, local: Path | None, cache_gb: float) -> None:
        """`path` names them all (`base.paths.list_stores`). Raises InputError where one is no store, or is there twice."""
        paths = list_stores(path)
        places = [find_place(of, None, cache_gb) for of in paths]
        _check(places)
        self.name, self.folder = name_store(path), path
        self._beside = local or path
        self.files = path
        self.paths = dict(zip(name_regions(paths), paths, strict=True))
        self._places = dict(zip(self.paths, places, strict=True))

    @property
    def beside(self) -> Path:
        return self._beside

    def open_newest(self) -> Generation:
        return Generation(join_manifests({region: place.read_newest() for region, place in self._places.items()}))

    def read_mark(self) -> object:
        return tuple(place.read_mark() for place in self._places.values())

    def has_books(self) -> bool:
        return True

    def _refuse(self, *_args: Any) -> NoReturn:
        raise InputError(say_read_only(self.files))

    writing = announce = put = swap = take_back = end = remove_leftovers = remove_unread = cast("Any", _refuse)
    locate = has = put_new = list_within = fetch = remove = claim_live = cast("Any", _refuse)


class Federation(Store):
    """Several stores, read as one."""

    place: Joint

    def __init__(
        self,
        path: Path,
        currency: str | None = None,
        memory: str = MEMORY,
        entry: Callable[[], Entry] = Entry,
        local: Path | None = None,
        cache_gb: float = CACHE_GB,
    ) -> None:
        """As of one store; live rows beside a bucket are those that are kept where nobody names a folder."""
        super().__init__(path, currency, memory, entry, local, cache_gb)
        self.stores = {
            region: Store(of, currency, memory, entry, None, cache_gb) for region, of in self.place.paths.items()
        }
        self._shared: tuple[Sequence[Overlay | None], Overlay] | None = None

    def _find_place(self, store: Path, local: Path | None, cache_gb: float) -> Place:
        return Joint(store, local, cache_gb)

    @contextmanager
    def read(self, has_schema: bool = True) -> Iterator[Session]:  # noqa: ARG002 (it has one)
        with ExitStack() as opened:
            members = {
                region: opened.enter_context(store.read(has_schema=True)) for region, store in self.stores.items()
            }
            manifest = join_manifests({region: member.manifest for region, member in members.items()})
            overlay = self._share([member.overlay for member in members.values()])
            currency = self.currency_of(manifest)
            overlay.find_once("bills", lambda: _check_bills(members))
            with closing(
                FederatedSession(self.place, manifest, overlay.connect(), currency, members, overlay)
            ) as session:
                yield session

    def _share(self, of: Sequence[Overlay | None]) -> Overlay:
        """The overlay of sessions over these overlays of the members."""
        with self._laying:
            if self._shared is None or any(a is not b for a, b in zip(self._shared[0], of, strict=True)):
                self._shared = of, Overlay(connect_reader(self.memory))
            return self._shared[1]


def join_manifests(manifests: Mapping[str, Manifest]) -> Manifest:
    """One manifest of all files. Raises InputError where stores have other currencies, or one is a copy of another."""
    kept = {region: of.currency for region, of in manifests.items() if of.currency}
    if len(set(kept.values())) > 1:
        listed = ", ".join(f"{region} in {currency}" for region, currency in kept.items())
        raise InputError(
            f"the books to be read as one have different currencies ({listed}); read those of one currency"
        )
    homes: dict[str, str] = {}
    for region, manifest in manifests.items():
        for file in manifest.files:
            other = homes.setdefault(file.name, region)
            if other != region:
                raise InputError(f"{region} is a copy of {other}: {file.name} is in both; leave one out")
    every = manifests.values()
    return Manifest(
        generation=sum(of.generation for of in every),
        currency=next(iter(kept.values()), ""),
        files=tuple(file for of in every for file in of.files),
        last_import=sum(of.last_import for of in every),
        stale=merge([span for of in every for span in of.stale]),
        losses=tuple(loss for of in every for loss in of.losses),
        dropped=Dropped(
            frozen=merge([span for of in every for span in of.dropped.frozen]),
            changed=merge([span for of in every for span in of.dropped.changed]),
            redefined=merge([span for of in every for span in of.dropped.redefined]),
        ),
    )


def _check_bills(members: Mapping[str, Session]) -> None:
    """Raise InputError where two stores have imported the same bill: it would be charged twice."""
    from loadfactor.store.import_records import list_imports  # which writes, too

    homes: dict[str, str] = {}
    billed = {region: member for region, member in members.items() if member.manifest.of("charges")}
    for region, member in billed.items() if len(billed) > 1 else ():
        for record in list_imports(member):
            other = homes.setdefault(record.digest, region) if "charges" in record.rows else region
            if other != region:
                raise InputError(
                    f"{other} and {region} have imported the same bill ({', '.join(record.paths)}), which would be charged twice:"
                    f" `loadfactor forget {record.number} --store {quote_word(member.name)}`"
                )


def open_store(
    path: Path,
    currency: str | None = None,
    memory: str = MEMORY,
    entry: Callable[[], Entry] = Entry,
    local: Path | None = None,
    cache_gb: float = CACHE_GB,
) -> Store:
    """The store of a folder or bucket, or all that a path names as one. Raises InputError where these cannot be read as one."""
    paths = list_stores(path)
    if len(paths) == 1:
        return Store(paths[0], currency, memory, entry, local, cache_gb)
    return Federation(path, currency, memory, entry, local, cache_gb)


def list_sessions(session: Session) -> tuple[Session, ...]:
    """The sessions of the stores that a session reads: itself, where it is of one."""
    return tuple(session.members.values()) if isinstance(session, FederatedSession) else (session,)


def unite(session: Session, name: str, columns: Iterable[str]) -> None:
    """Name what the sessions of all stores call so, together (`FederatedSession.unite`); nothing to do for those of one store."""
    if isinstance(session, FederatedSession):
        session.unite(name, columns)


def name_regions(folders: Sequence[Path]) -> tuple[str, ...]:
    """Names of stores: the last parts of their paths that are all different, as folders of regions often end alike.

    >>> name_regions([Path("stores/eu"), Path("stores/us")]), name_regions([Path("/a/eu/books"), Path("/a/us/books")])
    (('eu', 'us'), ('eu', 'us'))
    """
    parts = [path.absolute().parts for path in folders]
    for place in range(1, min(map(len, parts)) + 1):
        names = tuple(own[-place] for own in parts)
        if len(set(names)) == len(names):
            return names
    return tuple("/".join(own[1:]) for own in parts)


def _check(places: Iterable[Place]) -> None:
    """Raise InputError where one of them is no store of this version, or is there twice."""
    seen: set[str] = set()
    for place in places:
        real = read_url(place.name) or os.path.realpath(place.name)
        if real in seen:
            raise InputError(f"{place.name} is given twice with --store; its books would count twice")
        seen.add(real)
        if not place.has_books():
            raise InputError(f"no books in {place.name}; name the books to be read as one with --store")
