"""XPlane messages: planes with their lines, and the metadata of their events and statistics.

    XSpace{planes=1, hostnames=4}  XPlane{id=1, name=2, lines=3, event_metadata=4, stat_metadata=5, stats=6}
    XLine{id=1, name=2, timestamp_ns=3, events=4, display_id=10, display_name=11}
    XEvent{metadata_id=1, offset_ps=2, duration_ps=3, stats=4, num_occurrences=5}
    XStat{metadata_id=1, double=2, uint64=3, int64=4, str=5, bytes=6, ref=7}
    XEventMetadata{id=1, name=2, metadata=3, display_name=4, stats=5}  XStatMetadata{id=1, name=2}

openxla/xla xplane.proto @f33d2e16.
"""

from dataclasses import dataclass, field

from loadfactor.sources.protobuf import BYTES, FIXED64, VARINT, real, signed, text, walk

Stat = int | float | str


@dataclass
class XLine:
    """A line: where its events lie is found by `xplane_events`."""

    id: int = 0
    name: str = ""
    timestamp_ns: int = 0
    begin: int = 0
    end: int = 0


@dataclass
class XPlane:
    """A plane. `kinds` are the names of its events' metadata by id, `facts` their statistics, `stats` those of the plane."""

    name: str = ""
    lines: list[XLine] = field(default_factory=list)
    kinds: dict[int, str] = field(default_factory=dict)
    facts: dict[int, dict[str, Stat]] = field(default_factory=dict)
    stat_names: dict[int, str] = field(default_factory=dict)
    stats: dict[str, Stat] = field(default_factory=dict)

    def stat_id(self, name: str) -> int:
        """The id of a statistic, -1 where there is none of this name."""
        return next((number for number, known in self.stat_names.items() if known == name), -1)


def read_space(data: memoryview) -> tuple[list[XPlane], list[str]]:
    """The planes and host names. Raises WireError where the bytes are no XSpace."""
    planes, hosts = [], []
    for number, begin, end, wire in walk(data, 0, len(data)):
        if number == 1 and wire == BYTES:
            planes.append(_read_plane(data, begin, end))
        elif number == 4 and wire == BYTES:
            hosts.append(text(data, begin, end))
    return planes, hosts


def _read_plane(data: memoryview, begin: int, end: int) -> XPlane:
    plane = XPlane()
    kinds, stats = [], []
    for number, value, stop, wire in walk(data, begin, end):
        if wire != BYTES:
            continue
        if number == 2:
            plane.name = text(data, value, stop)
        elif number == 3:
            plane.lines.append(_read_line(data, value, stop))
        elif number == 4:
            kinds.append((value, stop))
        elif number == 5:
            key, name = _read_stat_metadata(data, value, stop)
            plane.stat_names[key] = name
        elif number == 6:
            stats.append((value, stop))
    for value, stop in kinds:
        _read_event_metadata(data, value, stop, plane)
    for value, stop in stats:
        named = read_stat(data, value, stop, plane.stat_names)
        if named:
            plane.stats[named[0]] = named[1]
    return plane


def _read_line(data: memoryview, begin: int, end: int) -> XLine:
    line = XLine(begin=begin, end=end)
    for number, value, stop, wire in walk(data, begin, end):
        if number == 1 and wire == VARINT:
            line.id = signed(value)
        elif number == 2 and wire == BYTES:
            line.name = text(data, value, stop)
        elif number == 3 and wire == VARINT:
            line.timestamp_ns = signed(value)
        elif number == 11 and wire == BYTES and not line.name:
            line.name = text(data, value, stop)
    return line


def _value_of(data: memoryview, begin: int, end: int) -> tuple[int, int, int]:
    key, found = 0, (begin, begin)
    for number, value, stop, wire in walk(data, begin, end):
        if number == 1 and wire == VARINT:
            key = signed(value)
        elif number == 2 and wire == BYTES:
            found = (value, stop)
    return key, *found


def _read_stat_metadata(data: memoryview, begin: int, end: int) -> tuple[int, str]:
    key, start, stop = _value_of(data, begin, end)
    name = ""
    for number, value, last, wire in walk(data, start, stop):
        if number == 2 and wire == BYTES:
            name = text(data, value, last)
    return key, name


def _read_event_metadata(data: memoryview, begin: int, end: int, plane: XPlane) -> None:
    key, start, stop = _value_of(data, begin, end)
    for number, value, last, wire in walk(data, start, stop):
        if wire != BYTES:
            continue
        if number == 2 or (number == 4 and not plane.kinds.get(key)):
            plane.kinds[key] = text(data, value, last)
        elif number == 5 and (named := read_stat(data, value, last, plane.stat_names)):
            plane.facts.setdefault(key, {})[named[0]] = named[1]


def read_stat(data: memoryview, begin: int, end: int, names: dict[int, str]) -> tuple[str, Stat] | None:
    key = 0
    found: Stat | None = None
    for number, value, stop, wire in walk(data, begin, end):
        if wire == VARINT and number == 1:
            key = signed(value)
        elif wire == VARINT:
            found = names.get(value, "") if number == 7 else signed(value) if number == 4 else value
        elif wire == BYTES and number == 5:
            found = text(data, value, stop)
        elif wire == FIXED64 and number == 2:
            found = real(data, value)
    return (names.get(key, ""), found) if found is not None else None
