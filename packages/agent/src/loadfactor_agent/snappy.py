"""Writes blocks of snappy. Whoever puts a block together knows which parts repeat, so nothing is searched for."""

from typing import Final

from .protobuf import write_varint

_LONGEST_COPY: Final = 64
_SHORTEST_COPY: Final = 16
_NEAR: Final = 1 << 16


class SnappyBlock:
    """A block that grows by parts; a part that stood in it before is written as a reference."""

    def __init__(self) -> None:
        self._out: list[bytes] = []
        self._literal: list[bytes] = []
        self._literal_size = 0
        self._size = 0
        self._places: dict[bytes, int] = {}

    def add(self, part: bytes) -> None:
        """Bytes that are not expected again."""
        self._literal.append(part)
        self._literal_size += len(part)
        self._size += len(part)

    def add_known(self, part: bytes) -> None:
        """Bytes that may stand in the block already."""
        if len(part) < _SHORTEST_COPY:
            return self.add(part)
        place = self._places.get(part)
        self._places[part] = self._size
        if place is None:
            return self.add(part)
        self._flush_literal()
        offset = self._size - place
        near = offset < _NEAR
        back = offset.to_bytes(2 if near else 4, "little")
        kind = 2 if near else 3
        whole, rest = divmod(len(part), _LONGEST_COPY)
        self._out.append((bytes((((_LONGEST_COPY - 1) << 2) | kind,)) + back) * whole)
        if rest:
            self._out.append(bytes((((rest - 1) << 2) | kind,)) + back)
        self._size += len(part)
        return None

    def finish(self) -> bytes:
        """The block."""
        self._flush_literal()
        return b"".join([write_varint(self._size), *self._out])

    def _flush_literal(self) -> None:
        size = self._literal_size
        if not size:
            return
        if size <= 60:
            self._out.append(bytes(((size - 1) << 2,)))
        else:
            bytes_of_size = ((size - 1).bit_length() + 7) // 8
            self._out.append(bytes(((59 + bytes_of_size) << 2,)) + (size - 1).to_bytes(bytes_of_size, "little"))
        self._out.extend(self._literal)
        self._literal, self._literal_size = [], 0
