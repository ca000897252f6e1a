"""An answer of a pulled server as a body: packed, with the time it covers in front, so that a pull goes on where it stopped."""

import struct

import cramjam

from loadfactor.base.errors import SourceError

_COVERS = struct.Struct("<qqq")  # from and to, ms; bytes of the answer


def pack_answer(answer: bytes, from_ms: int, to_ms: int) -> bytes:
    """The body of an answer with all samples after `from_ms`, through `to_ms`."""
    return _COVERS.pack(from_ms, to_ms, len(answer)) + bytes(cramjam.lz4.compress_block(answer, store_size=False))


def unpack_answer(body: bytes) -> bytes:
    """The answer in a body. Raises SourceError where it is none."""
    try:
        size = _COVERS.unpack_from(body)[2]
        return bytes(cramjam.lz4.decompress_block(body[_COVERS.size :], output_len=size))
    except (struct.error, cramjam.DecompressionError, MemoryError, OverflowError) as error:
        raise SourceError(f"a kept answer cannot be read: {error}") from error


def read_begin_ms(body: bytes) -> int:
    """After which all samples of a body are; those before were asked for again."""
    begin_ms: int = _COVERS.unpack_from(body)[0]
    return begin_ms


def read_end_ms(body: bytes) -> int:
    """Through when the samples of a body go."""
    end_ms: int = _COVERS.unpack_from(body)[1]
    return end_ms
