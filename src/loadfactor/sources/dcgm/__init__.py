"""What does dcgm-exporter tell? Its Prometheus text, of any version: one scrape a file, or many in a row with times."""

from collections.abc import Iterator
from pathlib import Path

from loadfactor.sources.base import Gap, ReadOptions, Rows, Source
from loadfactor.sources.dcgm.books import DEFAULT_STEP_S, Books
from loadfactor.sources.dcgm.exposition import in_order, readings
from loadfactor.sources.dcgm.window import Window
from loadfactor.sources.parsing.gaps import Gaps
from loadfactor.sources.parsing.lines import expand


def _files(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    return expand(paths, (".prom", ".txt", ".metrics", ".om"), "text of dcgm-exporter", rotated=True)


def _read(paths: tuple[Path, ...], options: ReadOptions) -> Iterator[Rows | Gap]:
    gaps = Gaps()
    window, books = (
        Window(options, gaps),
        Books(options, f"{paths[0]}{' …' if len(paths) > 1 else ''}" if paths else ""),
    )

    def rows(everything: bool, where: Path) -> Iterator[Rows]:
        known = {gpu: window.times(gpu) for gpu in window.gpus}
        for gpu, scrapes in window.take(everything):
            yield from books.add(gpu, scrapes, known[gpu])
        for what, count in books.wrong.items():
            gaps.add(where, what, count)
        books.wrong.clear()

    for path in in_order(paths):
        for reading in readings(path, options.node, gaps, alone=len(paths) == 1):
            window.put(path, reading)
            if window.full:
                yield from rows(False, path)
        yield from gaps.each()
    if paths:
        yield from rows(True, paths[-1])
    yield from books.end()
    yield from gaps.each()


SOURCE = Source("dcgm", "Prometheus text of dcgm-exporter", _files, _read, DEFAULT_STEP_S, watches=True)
