"""The bytes of a trace in bounded pieces, gzip of several members unpacked; what a damaged file still holds is given.

Files are opened to be read, and nothing is written beside them.
"""

import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.errors import SourceError, say_why
from loadfactor.base.units import BYTES_PER_KIB
from loadfactor.sources.files import check_plain, check_unpacked
from loadfactor.tables.trace_events import GpuKind

PIECE_BYTES: Final = 512 * BYTES_PER_KIB
_PACKED_BYTES: Final = 64 * BYTES_PER_KIB
GZIP: Final = b"\x1f\x8b"
_GZIP_WINDOW: Final = 31
Int64s = NDArray[np.int64]
NO_CORRELATION: Final = 0
_COMM: Final = re.compile(
    "nccl|rccl|mscclpp|msccl|nvshmem|oneccl|ccl_|deep_ep|cross_device_reduce|all_reduce_kernel|allreduce_|multimem|one_shot_all"
    "|two_shot_all|symm_mem",
    re.IGNORECASE,
)
_COPY: Final = re.compile("^(__amd_rocclr_copybuffer|memory_copy_)", re.IGNORECASE)
_FILL: Final = re.compile("^__amd_rocclr_fillbuffer", re.IGNORECASE)


@dataclass
class TracePieces:
    """The bytes of a file in pieces of at most half a MiB, gzip unpacked whatever the file is called.

    A gzip stream that is cut or corrupt ends where it does, and `fault` says so. Raises SourceError where the file is no plain
    file, cannot be read, or unpacks to 250 times its size.
    """

    path: Path
    fault: str = field(default="", init=False)
    unpacked_bytes: int = field(default=0, init=False)

    def __iter__(self) -> Iterator[bytes]:
        check_plain(self.path)
        self.fault, self.unpacked_bytes = "", 0
        try:
            with self.path.open("rb") as raw:
                is_packed = raw.read(len(GZIP)) == GZIP
                raw.seek(0)
                for piece in self._unpack(raw) if is_packed else iter(lambda: raw.read(PIECE_BYTES), b""):
                    self.unpacked_bytes += len(piece)
                    yield piece
        except OSError as e:
            raise SourceError(f"{self.path} cannot be read: {say_why(e)}") from None

    def _unpack(self, raw: IO[bytes]) -> Iterator[bytes]:
        unpacker = zlib.decompressobj(_GZIP_WINDOW)
        waiting = b""
        try:
            while packed := waiting or raw.read(_PACKED_BYTES):
                if piece := unpacker.decompress(packed, PIECE_BYTES):
                    check_unpacked(self.path, raw.tell(), self.unpacked_bytes + len(piece))
                    yield piece
                waiting = unpacker.unconsumed_tail
                if unpacker.eof:
                    waiting = unpacker.unused_data.lstrip(b"\0") or raw.read(_PACKED_BYTES)
                    if not waiting.startswith(GZIP):
                        return
                    unpacker = zlib.decompressobj(_GZIP_WINDOW)
            self.fault = "its gzip stream is cut short"
        except zlib.error as e:
            self.fault = f"its gzip stream is corrupt ({e})"


def read_first(path: Path, count: int) -> bytes:
    """The first bytes of a file, unpacked."""
    found = b""
    for piece in TracePieces(path):
        found += piece
        if len(found) >= count:
            break
    return found[:count]


def find_launches(
    launched_by: Int64s, given: Int64s, given_start_ns: Int64s, given_process: NDArray[np.int32]
) -> tuple[NDArray[np.int32], int]:
    """For each GPU event the place of its call among the given ones, the earliest of several; -1 where there is none.

    A number that several processes use says nothing about which call it was: those are -1, too, and counted.
    """
    found = np.full(len(launched_by), -1, np.int32)
    if not len(given) or not len(launched_by):
        return found, 0
    order = np.lexsort((given_start_ns, given))
    numbers = given[order]
    places = np.searchsorted(numbers, launched_by)
    inside = np.minimum(places, len(numbers) - 1)
    known = (launched_by > NO_CORRELATION) & (numbers[inside] == launched_by)
    found[known] = order[inside[known]]
    processes = given_process[order]
    if len(processes) == 0 or (processes == processes[0]).all():
        return found, 0
    same = numbers[1:] == numbers[:-1]
    doubtful = np.unique(numbers[1:][same & (processes[1:] != processes[:-1])])
    unclear = known & np.isin(launched_by, doubtful)
    found[unclear] = -1
    return found, int(unclear.sum())


def kind_of_kernel(name: str) -> GpuKind:
    """The kind of a kernel, by its name.

    >>> [kind_of_kernel(n).name for n in ("ncclDevKernel_AllReduce_Sum_bf16", "nvjet_tst", "__amd_rocclr_fillBuffer")]
    ['COMM', 'COMPUTE', 'MEMSET']
    """
    if _COPY.search(name):
        return GpuKind.MEMCPY
    if _FILL.search(name):
        return GpuKind.MEMSET
    return GpuKind.COMM if _COMM.search(name) else GpuKind.COMPUTE


def refine_kinds(kind: NDArray[np.int8], name: NDArray[np.int32], names: Sequence[str]) -> NDArray[np.int8]:
    """The kinds of GPU events, those filed as kernels by what their names say."""
    found = kind.copy()
    kernels = kind == GpuKind.COMPUTE
    for number in np.unique(name[kernels]):
        refined = kind_of_kernel(names[number]) if number >= 0 else GpuKind.COMPUTE
        if refined != GpuKind.COMPUTE:
            found[kernels & (name == number)] = refined
    return found
