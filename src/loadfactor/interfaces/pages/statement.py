"""The pages of `loadfactor statement`: a month of one team or of all, and its versions; as files of a folder, too."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from shlex import quote
from typing import Final

from loadfactor.base.errors import InputError, no_such
from loadfactor.base.paths import name_file, read_path
from loadfactor.books.books import Books
from loadfactor.books.charging.closings import ChargebackChanges
from loadfactor.books.charging.statements import OwnerStatement
from loadfactor.interfaces.charts import Chart, Series
from loadfactor.interfaces.document import Assumption, Cell, DataTable, Document, Section, Suggestion, TableColumn, Tile
from loadfactor.interfaces.formats import counted, instant, percent
from loadfactor.interfaces.functions import make_function
from loadfactor.interfaces.pages.bridge import link_bridge
from loadfactor.interfaces.pages.chargeback import COLUMN_TITLES, SHOWN, build_changes, say_source
from loadfactor.interfaces.pages.energy import ENERGY, say_terms
from loadfactor.interfaces.render.present import SUFFIXES, write_document
from loadfactor.interfaces.requests import StatementRequest
from loadfactor.interfaces.tables import col, cols, table
from loadfactor.metrics import metric
from loadfactor.money.currency import add_exactly
from loadfactor.money.lines import choose_column
from loadfactor.settings.config import settings

TOTAL: Final = "total"
MOST_BARS: Final = 12


def build_page(request: StatementRequest) -> Document:
    """The statement of a team, or all; its versions, or one beside another. Writes the files that it names."""
    books, words = request.books, request.words if request.output is None else None
    if request.versions:
        if request.version is not None or request.against is not None:
            raise InputError("--versions lists them all; leave --version and --against out")
        return _write(request, build_versions(read_versions(books, request.month, request.team), request.words))
    if request.against is not None:
        changes = books.compare_closed(
            request.month, None, request.currency, request.zone, request.against, request.version
        )
        return _write(request, build_changes(_pick(changes, request.team), request.words))
    found = books.read_statements(request.month, request.currency, request.zone, request.version)
    if request.team is not None:
        return _write(request, build_statement(find_statement(found, request.team), words))
    if request.output is not None and _is_folder(request.output):
        return write_folder(found, request.output, request.files)
    return _write(request, build_statements(found, words))


def find_statement(found: Sequence[OwnerStatement], team: str) -> OwnerStatement:
    """The statement of a team. Raises InputError where it is charged nothing."""
    for statement in found:
        if statement.team == team:
            return statement
    known = [of.team for of in found if of.team]
    raise no_such("team in the statements of this month", team, known)


def _write(request: StatementRequest, document: Document) -> Document:
    """The page, or that it was written."""
    if request.output is None:
        return document
    if _is_folder(request.output):
        raise InputError(f"--output {request.output}: name a file, like {request.output}/{request.month}.pdf")
    return say_written(document, write_document(document, request.output))


def say_written(document: Document, path: Path) -> Document:
    return Document(document.headline, subtitle=f"Written to {path}", data=document.data, is_no=document.is_no)


def _is_folder(path: Path) -> bool:
    return path.is_dir() or not path.suffix


@dataclass(frozen=True)
class WrittenStatement:
    """A statement that stands in files of a folder."""

    team: str | None
    pool: str | None
    month: str | None
    currency: str
    amounts: dict[str, Decimal]
    files: tuple[str, ...]


def write_folder(found: Sequence[OwnerStatement], folder: Path, kinds: Sequence[str]) -> Document:
    """Write the statement of every team and pool, and one page of all, into a folder, each as these kinds of files.

    Raises InputError for a kind that cannot be written.
    """
    for kind in kinds:
        if f".{kind}" not in SUFFIXES:
            raise InputError(f"--files {kind}: cannot be written; take {', '.join(s[1:] for s in SUFFIXES)}")
    folder = read_path(folder)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"--output {folder}: cannot be made ({error.strerror or error})") from error
    written = []
    for statement in found:
        # No name of an owner has a space: a pool, a team and the page of all never share a file.
        kind_of_owner = "pool " if statement.team is None else ""
        name = f"{statement.month} {kind_of_owner}{name_file(statement.name)}"
        page = build_statement(statement)
        files = tuple(write_document(page, folder / f"{name}.{kind}").name for kind in kinds)
        written.append(
            WrittenStatement(
                statement.team, statement.pool, statement.month, statement.currency, statement.amounts, files
            )
        )
    whole = build_statements(found)
    for kind in kinds:
        write_document(whole, folder / f"{found[0].month} all.{kind}")
    columns = _list_columns(found)
    listed = table(
        written,
        col("statement", lambda of: of.team or of.pool),
        *cols(_title(columns, found[0].currency), lambda of, column: of.amounts[column], "money"),
        col("files", lambda of: ", ".join(of.files)),
    )
    count = counted(float((len(found) + 1) * len(kinds)), "file")
    headline = f"{whole.headline} Written: {count} into {folder}."
    return Document(headline, (Section(tables=(listed,)),), data=written)


def build_statement(found: OwnerStatement, words: str | None = None) -> Document:
    """What one team is charged for a month: lines, direct and shared, corrections of earlier months, and the rules.

    `words` are options of commands to type next; without them, as in a file for others, there are none.
    """
    columns = _list_columns([found])
    main = columns[-1]
    amount = f"{found.amounts[main]:,f} {found.currency}"
    whose = "" if found.team else "The pool "
    hours = f" for {found.hours.total:,.1f} GPU-hours" if found.hours.total else ""
    headline = f"{whose}{found.name}, {found.month}: {amount}{hours}."
    return Document(
        headline,
        (
            Section(
                "Lines",
                _say_lines(found, main),
                _draw_amounts([(line.name, line.amounts[main]) for line in found.lines], main, found.currency),
                (_list_lines([found], columns, with_names=False),),
            ),
            Section("Direct and shared", tables=(_list_sums(found, columns),)),
            *_list_energy([found]),
            *_list_corrections(found.corrections, columns, found.currency),
            Section("By which rule", tables=(_list_rules(found),)),
            *_suggest(found, words),
        ),
        subtitle=_say_what(found),
        tiles=tuple(_list_tiles(found, main)),
        assumptions=_list_policy(found),
        notes=found.remarks,
        data=found,
    )


def _suggest(found: OwnerStatement, words: str | None) -> Iterator[Section]:
    if words is None:
        return
    month = f"--month {found.month}"
    versions = Suggestion(f"loadfactor statement {month} --versions{words}", "how this month was closed, and when")
    yield Section(suggestions=(*([link_bridge(f" {month}{words}", found.team)] if found.team else ()), versions))


@dataclass(frozen=True)
class MonthStatements:
    """The statements of a month, and their sums by cost column."""

    month: str | None
    currency: str
    totals: dict[str, Decimal]
    statements: tuple[OwnerStatement, ...]


def build_statements(found: Sequence[OwnerStatement], words: str | None = None) -> Document:
    """The statements of all teams and pools of a month, which sum to its bill, and the lines of each."""
    if not found:
        raise InputError("nothing is charged to anybody in this month; name another one")
    columns = _list_columns(found)
    first, currency = found[0], found[0].currency
    sums = {column: add_exactly(of.amounts[column] for of in found) for column in columns}
    teams = [of for of in found if of.team]
    titles = _title(columns, currency)
    heads = [TableColumn("team"), TableColumn("pool")]
    heads += [TableColumn(title, "money") for title in titles.values()]
    heads += [TableColumn(f"{name} {COLUMN_TITLES[columns[-1]]}", "money") for name in ("direct", "shared")]
    heads += [TableColumn("GPU-hours", "number"), TableColumn("observed", "percent")]
    rows: list[Sequence[Cell]] = [
        (
            of.team or "",
            of.pool or "",
            *(of.amounts[column] for column in columns),
            of.direct[columns[-1]],
            of.shared[columns[-1]],
            of.hours.total.quantize(Decimal("0.1")) if of.hours.total else None,
            None if of.hours.coverage_share is None else float(of.hours.coverage_share),
        )
        for of in found
    ]
    whole = [add_exactly(getattr(of, name)[columns[-1]] for of in found) for name in ("direct", "shared")]
    rows.append((TOTAL, "", *sums.values(), *whole, None, None))
    charged = f"{sums[columns[-1]]:,f} {currency}"
    pools = len(found) - len(teams)
    corrections = [(of, correction) for of in found for correction in of.corrections]
    one = quote(teams[0].team or "") if teams else "TEAM"
    commands = (
        Suggestion(f"loadfactor statement --team {one} --month {first.month}{words}", "one of them, with its rules"),
        Suggestion(
            f"loadfactor statement --month {first.month} --output statements{words}", "a PDF and a spreadsheet of each"
        ),
    )
    return Document(
        f"{first.month}: {charged} on {counted(float(len(teams)), 'statement')} of teams"
        f" and {counted(float(pools), 'statement')} of pools.",
        (
            Section(
                "All statements",
                charts=_draw_amounts([(of.name, of.amounts[columns[-1]]) for of in found], columns[-1], currency),
                tables=(DataTable(heads, rows, note=f"{currency}; they sum to the bill"),),
            ),
            Section("Lines", tables=(_list_lines(found, columns, with_names=True),)),
            *_list_energy(found),
            *_list_corrections([of for _, of in corrections], columns, currency, [of.name for of, _ in corrections]),
            *([Section(suggestions=commands)] if words is not None else ()),
        ),
        subtitle=_say_what(first),
        assumptions=_list_policy(first),
        notes=first.remarks,
        data=MonthStatements(first.month, first.currency, sums, tuple(found)),
    )


def _draw_amounts(amounts: Sequence[tuple[str, Decimal]], column: str, currency: str) -> tuple[Chart, ...]:
    """A bar an amount, the largest first, and one of what is left of many; nothing where there is one alone."""
    if len(amounts) < 2:
        return ()
    ranked = sorted(amounts, key=lambda of: -abs(of[1]))
    shown, left = ranked[:MOST_BARS], ranked[MOST_BARS:]
    if left:
        shown.append((f"{len(left)} others", add_exactly(amount for _, amount in left)))
    bars = Series(COLUMN_TITLES[column], [float(amount) for _, amount in shown])
    return (Chart("What it is made of", "bar", [name for name, _ in shown], (bars,), y_label=currency),)


def _list_energy(found: Sequence[OwnerStatement]) -> Iterator[Section]:
    """Energy and carbon of teams, where the settings want it on statements."""
    known = [(of.team, of.energy) for of in found if of.energy]
    if not known:
        return
    listed = table(
        known,
        *([col("team", lambda row: row[0])] if len(found) > 1 else []),
        *cols(
            {name: f"{metric(name).title}, {metric(name).unit}" for name in ENERGY},
            lambda row, name: getattr(row[1], name),
            "number",
        ),
        col("coverage", lambda row: row[1].coverage, "percent"),
        note="of the GPU-hours that were held; no closing keeps it",
    )
    yield Section("Energy and carbon", say_terms(settings().energy), tables=(listed,))


def _list_columns(found: Sequence[OwnerStatement]) -> list[str]:
    """The columns of cost that are shown; the last is the one that rates are of."""
    known = found[0].amounts
    return [column for column in SHOWN if column in known] or [choose_column(known)]


def _title(columns: Sequence[str], currency: str) -> dict[str, str]:
    return {column: f"{COLUMN_TITLES[column]}, {currency}" for column in columns}


def _say_what(found: OwnerStatement) -> str:
    kept = f"Closed as {found.closing}" if found.closing else "Not closed: it changes with what is imported"
    return f"{instant(found.start)} to {instant(found.end)}. {kept}. From {say_source(found)}; {found.policy['mode']}."


def _say_lines(found: OwnerStatement, column: str) -> str:
    rate = found.rates.get(column)
    at = "" if rate is None else f" A GPU-hour cost {rate:,.4f} {found.currency} on average."
    seen = found.hours.coverage_share
    observed = "" if seen is None else f" {percent(float(seen))} of the held hours were observed."
    return f"Lines sum to the total, to the cent.{at}{observed}"


def _list_tiles(found: OwnerStatement, column: str) -> Iterator[Tile]:
    yield Tile("Total", f"{found.amounts[column]:,f} {found.currency}", COLUMN_TITLES[column])
    yield Tile("Direct", f"{found.direct[column]:,f}", "its own lines and GPU-hours")
    yield Tile("Shared", f"{found.shared[column]:,f}", "its shares of pools")
    if found.hours.total:
        idle = "idle unknown" if found.hours.idle is None else f"{found.hours.idle:,.1f} of them idle"
        yield Tile("GPU-hours held", f"{found.hours.total:,.1f}", idle)


def _list_lines(found: Sequence[OwnerStatement], columns: Sequence[str], with_names: bool) -> DataTable:
    """A row a line, and the total: direct or shared, GPU-hours, their rate, amounts."""
    heads = [TableColumn("statement")] * with_names
    heads += [TableColumn("line"), TableColumn("kind"), TableColumn("unit"), TableColumn("quantity", "number")]
    heads += [TableColumn(f"rate, {found[0].currency}", "number")]
    heads += [TableColumn(title, "money") for title in _title(columns, found[0].currency).values()]
    rows: list[tuple[Cell, ...]] = []
    for of in found:
        for line in of.lines:
            hours = None if line.hours is None else line.hours.quantize(Decimal("0.001"))
            rate = line.rates.get(columns[-1])
            cells = (line.name, "shared" if line.is_share else "direct", line.unit or "", hours)
            shown = None if rate is None else rate.quantize(Decimal("0.0001"))
            rows.append((*([of.name] * with_names), *cells, shown, *(line.amounts[c] for c in columns)))
    sums = [add_exactly(of.amounts[column] for of in found) for column in columns]
    rows.append((*([TOTAL] * with_names), "" if with_names else TOTAL, "", "", None, None, *sums))
    return DataTable(heads, rows)


def _list_sums(found: OwnerStatement, columns: Sequence[str]) -> DataTable:
    return table(
        (("direct", found.direct), ("shared", found.shared), (TOTAL, found.amounts)),
        col("part"),
        *cols(_title(columns, found.currency), lambda row, column: row[1][column], "money"),
    )


def _list_corrections(
    found: Sequence[object], columns: Sequence[str], currency: str, names: Sequence[str] = ()
) -> Iterator[Section]:
    if not found:
        return
    column = columns[-1]

    def read(of: object, name: str) -> Cell:
        return getattr(of, name).get(column, Decimal("0.00"))  # type: ignore[no-any-return]

    named = [col("statement", lambda row: row[0])] if names else []
    listed = table(
        list(zip(names or [""] * len(found), found, strict=True)),
        *named,
        col("month", lambda row: row[1].month),
        col("was charged as", lambda row: f"{row[1].version}, closed {row[1].closed:%Y-%m-%d}"),
        col("is now", lambda row: row[1].later or "not closed again"),
        col("before", lambda row: read(row[1], "before"), "money"),
        col("after", lambda row: read(row[1], "after"), "money"),
        col("correction", lambda row: read(row[1], "change"), "money"),
        note=f"{currency}, {COLUMN_TITLES[column]}",
    )
    lead = "They are in the statements of their own months and in no amount above: each month sums to its own bill."
    yield Section("Corrections of earlier months", lead, tables=(listed,))


def _list_rules(found: OwnerStatement) -> DataTable:
    """Each line's rule in words."""
    return table(found.lines, col("line", "name"), col("rule", "method"))


def _list_policy(found: OwnerStatement) -> tuple[Assumption, ...]:
    return tuple(Assumption(name.replace("_", " "), value, "[chargeback]") for name, value in found.policy.items())


@dataclass(frozen=True)
class StatementVersion:
    """A closing of a month: what it charged in all, or one team, and by how much that differs from the one before."""

    month: str
    number: int
    closing: str
    closed: datetime
    replaces: str | None
    by: tuple[str, ...]
    currency: str
    team: str | None
    amounts: dict[str, Decimal]
    change: dict[str, Decimal]
    remark: str


def read_versions(books: Books, month: str, team: str | None) -> list[StatementVersion]:
    """The versions of a month. Raises InputError where it is not closed."""
    with books.snapshot() as snapshot:
        closings = snapshot.list_closings(month)
    if not closings:
        raise InputError(f"{month} is not closed; `loadfactor chargeback --month {month} --close` keeps its statements")
    versions: list[StatementVersion] = []
    for number, closing in enumerate(closings, 1):
        of = [s for s in closing.statements if team is None or s.by.get("team") == team]
        amounts = {
            column: add_exactly([total.charged * 0, *(s.amounts[column] for s in of)])
            for column, total in closing.totals.items()
        }
        before = versions[-1].amounts if versions else {}
        change = {column: amount - before[column] for column, amount in amounts.items() if column in before}
        versions.append(
            StatementVersion(
                month, number, closing.name, closing.closed, closing.replaces, closing.by, closing.currency, team,
                amounts, change, closing.stood_on.remark,
            )
        )  # fmt: skip
    return versions


def build_versions(found: Sequence[StatementVersion], words: str) -> Document:
    """The versions of a month, each with what it charged and the change from the one before."""
    last = found[-1]
    column = choose_column(last.amounts)
    listed = table(
        found,
        col("version", lambda of: float(of.number), "number"),
        col("closed", lambda of: instant(of.closed)),
        col("replaces", lambda of: of.replaces or ""),
        col("by", lambda of: ",".join(of.by)),
        col(f"{COLUMN_TITLES[column]}, {last.currency}", lambda of: of.amounts.get(column), "money"),
        col("change", lambda of: of.change.get(column), "money"),
        col("missing", "remark"),
    )
    whose = f" of {last.team}" if last.team else ""
    team = f" --team {quote(last.team)}" if last.team else ""
    commands = [
        Suggestion(
            f"loadfactor statement --month {last.month}{team} --version {last.number}{words}", "prints it as it was"
        ),
        Suggestion(
            f"loadfactor statement --month {last.month}{team} --against {last.number}{words}", "what changed since"
        ),
    ]
    return Document(
        f"{last.month} was closed {counted(float(len(found)), 'time')}; the last, {last.closing}, charged"
        f"{whose} {last.amounts[column]:,f} {last.currency}.",
        (Section(tables=(listed,), suggestions=commands),),
        data=found,
    )


def _pick(changes: ChargebackChanges, team: str | None) -> ChargebackChanges:
    """The changes of one team; why the month changed stays."""
    if team is None:
        return changes
    own = tuple(of for of in changes.statements if of.by.get("team") == team)
    whole = {c: add_exactly([Decimal("0.00"), *(of.change[c] for of in own)]) for c in changes.change}
    return replace(changes, statements=own, change=whole)


statement = make_function("statement", StatementRequest, build_page, "The answer of `loadfactor statement` as a page.")
