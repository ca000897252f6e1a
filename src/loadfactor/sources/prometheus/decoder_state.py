"""What a decoder remembers, as bytes: tables in Arrow's stream format, packed with lz4."""

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

import pyarrow as pa

from loadfactor.base.errors import DamageError

VERSION: Final = 1
_HEAD: Final = struct.Struct("<4sIqqI")
_MAGIC: Final = b"lfpd"


class DecoderState(NamedTuple):
    """Bodies through which all was put once, how many series were alive, and tables of what is remembered."""

    through: int
    series: int
    tables: tuple[pa.Table, ...]


def pack_state(state: DecoderState) -> bytes:
    """As bytes."""
    parts = [_HEAD.pack(_MAGIC, VERSION, state.through, state.series, len(state.tables))]
    for table in state.tables:
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
            writer.write_table(table)
        content = out.getvalue().to_pybytes()
        parts += [len(content).to_bytes(8, "little"), content]
    return b"".join(parts)


def unpack_state(content: bytes) -> DecoderState:
    """What `pack_state` made bytes of. Raises DamageError for anything else, and for what a later version wrote."""
    try:
        magic, version, through, series, count = _HEAD.unpack_from(content)
        if magic != _MAGIC or version != VERSION:
            raise DamageError(
                f"the state of the decoder of Prometheus is of version {version}; this one reads {VERSION}"
            )
        tables, at = [], _HEAD.size
        for _ in range(count):
            size = int.from_bytes(content[at : at + 8], "little")
            tables.append(pa.ipc.open_stream(pa.py_buffer(content[at + 8 : at + 8 + size])).read_all())
            at += 8 + size
    except (struct.error, pa.ArrowInvalid, OSError) as error:
        raise DamageError(f"the state of the decoder of Prometheus cannot be read: {error}") from error
    return DecoderState(through, series, tuple(tables))


def join_tables(tables: Iterable[pa.Table], schema: pa.Schema) -> pa.Table:
    """All of these, one after the other."""
    return pa.concat_tables([schema.empty_table(), *tables])
