"""The pages of `loadfactor top`: the fleet by GPU, node, job or team, and one GPU's last hour."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from loadfactor.base.units import W_PER_KW
from loadfactor.interfaces.document import Cell, DataTable, Document, Section, Style, TableColumn
from loadfactor.interfaces.formats import counted, instant, number, percent
from loadfactor.interfaces.pages.readings import NO_NAME
from loadfactor.interfaces.top.readers import GpuHistory, Grouping, TopAnswer, TopRow
from loadfactor.metrics.query.reading import rank

Order = Literal["name", "gpus", "utilization", "sm_activity", "memory", "power_w", "temperature_c", "cost_per_hour"]
ORDERS: tuple[Order, ...] = (
    "name", "gpus", "utilization", "sm_activity", "memory", "power_w", "temperature_c", "cost_per_hour",
)  # fmt: skip
GROUPINGS: dict[str, Grouping] = {"g": "gpu", "n": "node", "j": "job", "t": "team"}
UP, DOWN, ENTER, ESCAPE, RUB_OUT = "up", "down", "enter", "escape", "rub out"
KEYS = "g n j t: group  s: order  r: reverse  /: filter  arrows, enter: open  q: quit"


@dataclass(frozen=True)
class TopView:
    """The part that is shown, and how. `gpu`: the one whose last hour is shown; `is_typing`: keys are letters of the filter."""

    grouping: Grouping = "node"
    order: Order = "name"
    descending: bool = False
    filter: str = ""
    chosen: int = 0
    gpu: str | None = None
    is_typing: bool = False
    is_over: bool = False

    def arrange(self, rows: tuple[TopRow, ...]) -> list[TopRow]:
        """The rows that the filter lets through, in order; what is unknown stands last."""
        part = self.filter.casefold()
        named = sorted((r for r in rows if any(part in (n or "").casefold() for n in r.names)), key=_name)
        if self.order == "name":
            return named[::-1] if self.descending else named
        known = [row for row in named if getattr(row, self.order) is not None]
        unknown = [row for row in named if getattr(row, self.order) is None]
        return sorted(known, key=lambda row: rank(getattr(row, self.order)), reverse=self.descending) + unknown

    def press(self, key: str, rows: tuple[TopRow, ...]) -> "TopView":
        """The view after a key."""
        if self.is_typing:
            return self._type(key)
        if key in ("q", "\x03"):
            return replace(self, is_over=True)
        if key in GROUPINGS:
            return replace(self, grouping=GROUPINGS[key], chosen=0, gpu=None)
        if key == "s":
            following = ORDERS[(ORDERS.index(self.order) + 1) % len(ORDERS)]
            return replace(self, order=following, descending=following != "name", chosen=0)
        if key == "r":
            return replace(self, descending=not self.descending, chosen=0)
        if key == "/":
            return replace(self, filter="", is_typing=True, chosen=0, gpu=None)
        if key == ESCAPE:
            return replace(self, gpu=None) if self.gpu is not None else replace(self, filter="")
        shown = self.arrange(rows)
        if key in (UP, DOWN) and shown:
            return replace(self, chosen=min(max(self.chosen + (1 if key == DOWN else -1), 0), len(shown) - 1))
        if key == ENTER and self.grouping == "gpu" and shown:
            return replace(self, gpu=shown[min(self.chosen, len(shown) - 1)].names[0])
        if key == ENTER and self.grouping != "gpu" and shown:  # its GPUs
            return replace(
                self, grouping="gpu", filter=shown[min(self.chosen, len(shown) - 1)].names[0] or "", chosen=0
            )
        return self

    def _type(self, key: str) -> "TopView":
        if key in (ENTER, ESCAPE):
            return replace(self, is_typing=False, filter=self.filter if key == ENTER else "")
        if key == RUB_OUT:
            return replace(self, filter=self.filter[:-1])
        return replace(self, filter=self.filter + key) if len(key) == 1 and key.isprintable() else self


def _name(row: TopRow) -> tuple[str, ...]:
    return tuple(name or "\U0010ffff" for name in row.names)  # nobody stands last


BAR = 8
EIGHTHS = " ▏▎▍▌▋▊▉"
_UUID = re.compile(r"(GPU-[0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TITLES = {"gpu": ("GPU", "node", "job"), "node": ("node",), "job": ("job", "team"), "team": ("team",)}
_VALUES: tuple[tuple[str, str, Style], ...] = (
    ("sm_activity", "SM", "percent"),
    ("memory", "memory", "percent"),
    ("power_w", "W", "number"),
    ("temperature_c", "°C", "number"),
    ("cost_per_hour", "cost an hour", "money"),
)


def build_page(answer: TopAnswer, view: TopView, limit: int | None = None, marks: bool = False) -> Document:
    """The groups of an answer as a page, at most `limit` of them; `marks`: an arrow before the one that is chosen."""
    rows = view.arrange(answer.rows)
    first = max(0, min(view.chosen - (limit or 0) // 2, len(rows) - (limit or 0))) if limit else 0
    shown = rows[first : first + limit] if limit else rows
    columns, cells = _draw_rows(answer, shown)
    if marks:
        columns = [TableColumn(""), *columns]
        cells = [[">" if first + i == view.chosen else " ", *row] for i, row in enumerate(cells)]
    left = len(rows) - len(shown)
    note = f"and {counted(left, 'more')[:-1] if left != 1 else '1 more'}" if left else ""
    of = f" with {view.filter!r}" if view.filter else ""
    subtitle = f"{_say_window(answer)}. By {view.grouping}{of}, ordered by {_say_order(view)}."
    table = DataTable(columns, cells, note=note)
    return Document(_say_fleet(answer), (Section(tables=(table,)),), subtitle, data=answer)


def build_history(history: GpuHistory) -> Document:
    """One GPU's last hour, a row a step."""
    columns, cells = _draw_values(history.steps, history.currency, with_gpus=False)
    rows = [[f"{at:%H:%M}", *row] for at, row in zip(history.ends, cells, strict=True)]
    known = [row.utilization for row in history.steps if row.utilization is not None]
    mean = percent(sum(known) / len(known)) if known else "not held or not observed"
    table = DataTable([TableColumn("until"), *columns], rows)
    return Document(
        f"{history.gpu}, the last hour: utilization {mean}.",
        (Section(tables=(table,)),),
        instant(history.ends[-1]),
        data=history,
    )


def _draw_rows(answer: TopAnswer, rows: Sequence[TopRow]) -> tuple[list[TableColumn], list[list[Cell]]]:
    names = [TableColumn(title) for title in _TITLES[answer.grouping]]
    columns, cells = _draw_values(
        rows, answer.currency, with_gpus=answer.grouping != "gpu", with_held=answer.grouping == "node"
    )
    shown = [[(NO_NAME if name is None else _UUID.sub(r"\1", name)) for name in row.names] for row in rows]
    return [*names, *columns], [[*name, *row] for name, row in zip(shown, cells, strict=True)]


def _draw_values(
    rows: Sequence[TopRow], currency: str, with_gpus: bool, with_held: bool = False
) -> tuple[list[TableColumn], list[list[Cell]]]:
    """Columns and cells of what was measured; a column of which nothing is known is left out."""
    drawn: list[tuple[TableColumn, Callable[[TopRow], Cell]]] = []
    if with_gpus:
        drawn.append((TableColumn("GPUs", "number"), lambda row: row.gpus))
    if with_held:
        drawn.append((TableColumn("held", "percent"), lambda row: row.held))
    drawn.append((TableColumn(""), lambda row: draw_bar(row.utilization)))
    drawn.append((TableColumn("util", "percent"), lambda row: row.utilization))
    for name, title, style in _VALUES:
        if any(getattr(row, name) is not None for row in rows) and (with_gpus or style != "money"):
            column = TableColumn(title, style, currency, digits=2)
            drawn.append((column, lambda row, name=name: getattr(row, name)))  # type: ignore[misc]
    return [column for column, _ in drawn], [[read(row) for _, read in drawn] for row in rows]


def draw_bar(share: float | None) -> str:
    """A share of one as a bar.

    >>> draw_bar(0.5), draw_bar(None)
    ('████', '')
    """
    whole, rest = divmod(round(min(max(share or 0.0, 0.0), 1.0) * BAR * len(EIGHTHS)), len(EIGHTHS))
    return "█" * whole + (EIGHTHS[rest] if rest else "")


def _say_fleet(answer: TopAnswer) -> str:
    fleet = answer.fleet
    if fleet is None or fleet.gpus is None:
        return "Nothing in this window."
    parts = [f"{percent(fleet.held)} held"] if fleet.held is not None else []
    if fleet.utilization is not None:
        parts.append(f"utilization {percent(fleet.utilization)}")
    if fleet.power_w is not None:
        parts.append(f"{number(fleet.power_w * fleet.gpus * (fleet.held or 0) / W_PER_KW)} kW by those held")
    return f"{counted(fleet.gpus, 'GPU')}: {', '.join(parts)}." if parts else f"{counted(fleet.gpus, 'GPU')}."


def _say_window(answer: TopAnswer) -> str:
    if answer.start is None or answer.end is None:
        return "No samples yet"
    return f"{answer.start:%Y-%m-%d %H:%M:%S} to {answer.end:%H:%M:%S} {answer.end:%Z}"


def _say_order(view: TopView) -> str:
    return view.order.replace("_", " ") + (", largest first" if view.descending and view.order != "name" else "")
