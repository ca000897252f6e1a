"""Beginnings of lines as numbers: each name with labels, and each title, is parsed once and known from then on."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from loadfactor.sources.dcgm.fields import BY_NAME, PREFIX
from loadfactor.sources.gpu_scrapes.fields import KEY_NUMBER, Field
from loadfactor.sources.gpu_scrapes.known_devices import (
    DeviceLabels,
    KnownDevices,
    Numbering,
    read_labels,
)
from loadfactor.sources.parsing.exposition import TOTAL, list_labels, split_head

_LABELS_MAX: Final = 10_000


def find_field(name: str) -> Field | None:
    """The field of this name, None where the tables keep none; a total may end in _total."""
    field = BY_NAME.get(name)
    if field is None:
        field = BY_NAME.get(name.removesuffix(TOTAL))
        return field if field is not None and (field.counts or field.either) else None
    return field


@lru_cache(_LABELS_MAX)  # a device has the same ones in all of its fields
def _parse_labels(text: str, node: str | None, machine: str) -> DeviceLabels:
    return read_labels({name.lower(): value for name, value in list_labels(text).items()}, node, machine)


SERIES_MAX: Final = 100_000
"""So many are known at most; then all but those of the scrape at hand are forgotten."""
TITLE, FOREIGN, UNKEPT, NOWHERE, VALUE = range(5)
"""Kinds of lines: # …; of no DCGM field; of one that is not kept; of one that does not say of which GPU; of one that is kept."""
NEVER, ALWAYS, AS_TITLED = range(3)
"""Whether a series is a total: by what its title says where it may be a rate as well."""
GAUGE, COUNTER = 1, 2
"""Kinds that a title names, 0 none; in the place of NEVER, ALWAYS, AS_TITLED."""
KIND, NAME, BASE, WHAT, GPU, PLACE, KEY, COUNTS, LABELS, HOLDERS = range(10)
"""Columns of the facts: numbers, -1 where there is none. WHAT is name, GPU and instance, BASE the name without _total."""
WIDTH: Final = 10


class KnownSeries(KnownDevices):
    """Numbers of names with labels and of titles, and the facts of each.

    `node` is what the caller calls the machine that the lines are of.
    """

    def __init__(self, node: str | None) -> None:
        super().__init__()
        self._node, self._machine = node, ""
        self._start()

    def _start(self) -> None:
        self.heads: list[str] = []
        self.facts: NDArray[np.int32] = np.full((1024, WIDTH), -1, np.int32)
        self.whats: Numbering[tuple[str, int, str | None]] = Numbering()
        self._numbers: dict[str, int] = {}
        self._called_by_machine: list[str] = []  # heads whose GPU is named after the machine

    def begin(self, machine: str) -> None:
        """Says what to call the machine of the next lines where nobody names it."""
        if machine != self._machine and self._called_by_machine:
            others = set(self._called_by_machine)
            self.keep(head for head in self.heads if head not in others)
        self._machine = machine

    def keep(self, heads: Iterable[str]) -> None:
        """Forgets all but these; numbers change."""
        heads = list(heads)
        self._start()
        for head in heads:
            self.identify(head)

    def __len__(self) -> int:
        return len(self.heads)

    def identify(self, head: str) -> int:
        """The number of a name with labels, or of a whole title."""
        number = self._numbers.get(head)
        if number is None:
            number = self._numbers[head] = len(self.heads)
            self.heads.append(head)
            if number == len(self.facts):
                self.facts = np.concatenate([self.facts, np.full_like(self.facts, -1)])
            self._add_title(number, head) if head[:1] == "#" else self._add_series(number, head)
        return number

    def _add_title(self, number: int, line: str) -> None:
        facts, words = self.facts[number], line.split(maxsplit=3)
        facts[KIND], facts[COUNTS] = TITLE, 0
        if words[1:2] in (["TYPE"], ["HELP"]) and len(words) > 2:
            facts[NAME] = self.names.number(words[2])
        if words[1:2] == ["TYPE"] and len(words) == 4:
            facts[COUNTS] = COUNTER if words[3].strip() == "counter" else GAUGE

    def _add_series(self, number: int, head: str) -> None:
        facts, parts = self.facts[number], split_head(head)
        if parts is None or not parts[0].startswith(PREFIX):
            facts[KIND] = FOREIGN
            return
        name, field = parts[0], find_field(parts[0])
        facts[NAME] = self.names.number(name)
        if field is None:
            facts[KIND] = UNKEPT
            return
        device = _parse_labels(parts[1], self._node, self._machine)
        if device.gpu is None:
            facts[KIND] = NOWHERE
            return
        if device.node is None and device.gpu.startswith(f"{self._machine}/"):
            self._called_by_machine.append(head)
        facts[KIND], facts[KEY] = VALUE, KEY_NUMBER[field.key]
        facts[BASE] = self.names.number(name.removesuffix(TOTAL))
        facts[GPU], facts[PLACE], facts[LABELS], facts[HOLDERS] = self.number(device.gpu, device)
        facts[WHAT] = self.whats.number((name, int(facts[GPU]), device.instance))
        if field.counts or (field.either and name.endswith(TOTAL)):
            facts[COUNTS] = ALWAYS
        else:
            facts[COUNTS] = AS_TITLED if field.either else NEVER
