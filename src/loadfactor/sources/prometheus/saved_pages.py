"""Pages of exporters that were saved: a page a file, or several after each other, each with the time it was taken."""

from collections.abc import Iterator

from loadfactor.base.errors import SourceError
from loadfactor.base.units import BYTES_PER_MIB, MS_PER_S, NS_PER_MS
from loadfactor.sources.base import Input, ReadOptions
from loadfactor.sources.parsing.exposition import find_head_end, read_sample
from loadfactor.sources.parsing.steps import EXPORTER_STEP_S
from loadfactor.sources.parsing.text_blocks import split_blocks
from loadfactor.sources.parsing.times import parse_stamp

LARGEST_PAGE_BYTES = 256 * BYTES_PER_MIB


def split_pages(source: Input, options: ReadOptions) -> Iterator[tuple[int, bytes]]:
    """The pages of a text and when each was taken, ms UTC, in its order.

    Times are those of a line that is nothing but a time, before the page; else `at_ms` of the options and steps from there. A
    series that comes again begins another page. Lines with times of their own need neither. SourceError where nothing says when.
    """
    lines: list[str] = []
    seen: set[str] = set()
    stamp_ms, size, is_timed, has_ended = options.at_ms, 0, True, True
    has_samples = False
    step_ms = round((options.step_s or EXPORTER_STEP_S) * MS_PER_S)

    def close() -> Iterator[tuple[int, bytes]]:
        nonlocal size, is_timed
        if seen:
            if stamp_ms is None and not is_timed:
                raise SourceError(
                    f"{source.label}: a page of metrics without its time; --at 2026-05-01T12:00:00Z says when it was saved, or put "
                    "a line `# 2026-05-01T12:00:00Z` before each page"
                )
            yield stamp_ms or 0, "\n".join([*lines, ""] if has_ended else lines).encode()
        lines.clear()
        seen.clear()
        size, is_timed = 0, True

    for block in split_blocks(source):
        for line in block.data.decode().removesuffix("\n").split("\n"):
            stamp = parse_stamp(line.strip("# ")) if line[:1] == "#" or line[:4].isdigit() else None
            if stamp is not None and stamp.zoned:
                yield from close()
                stamp_ms = stamp.at_ns // NS_PER_MS
                continue
            if line.startswith("# EOF"):
                yield from close()
                continue
            if line and line[:1] != "#":
                cut = find_head_end(line)
                sample, head = read_sample(line[cut:]), line[:cut]
                has_samples = has_samples or sample is not None
                if sample is not None and sample[1] is None:
                    if head in seen:
                        yield from close()
                        stamp_ms = None if stamp_ms is None else stamp_ms + step_ms
                    is_timed = False
                seen.add(head)
            lines.append(line)
            size += len(line) + 1
            if size > LARGEST_PAGE_BYTES:
                raise SourceError(
                    f"{source.label}: a page of over {LARGEST_PAGE_BYTES // BYTES_PER_MIB} MiB; check that it is the right file"
                )
        has_ended = block.data.endswith(b"\n")
        if not has_samples:
            raise SourceError(
                f"{source.label}: no metrics in it; save what an exporter answers (`curl -s http://NODE:9100/metrics`), "
                "or an answer of Prometheus as JSON"
            )
    yield from close()
