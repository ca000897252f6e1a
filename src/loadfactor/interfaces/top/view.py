"""What `loadfactor top` shows of an answer: grouping, order, filter and the row that is chosen; and what keys change."""

from dataclasses import dataclass, replace
from typing import Literal

from loadfactor.interfaces.top.rows import Grouping, TopRow
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
    """What is shown, and how. `gpu`: the one whose last hour is shown; `is_typing`: keys are letters of the filter."""

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
        wanted = self.filter.casefold()
        named = sorted((r for r in rows if any(wanted in (n or "").casefold() for n in r.names)), key=_name)
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
