"""Decoder of /metrics of serving engines: pages of each replica in the order of time, what was made between them as progress."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from loadfactor.base.errors import SourceError
from loadfactor.base.units import MS_PER_S
from loadfactor.sources.base import Gap, Input, ReadOptions, Rows
from loadfactor.sources.parsing.text_blocks import strip_endings
from loadfactor.sources.parsing.times import parse_epoch_ms
from loadfactor.sources.serving_engines.counting import (
    MOST_ROWS,
    ProgressRow,
    ReplicaCounts,
    find_step_ms,
    join_amounts,
    make_row,
    make_rows,
)
from loadfactor.sources.serving_engines.pages import EnginePage, read_pages

DEFAULT_STEP_S: Final = 15.0
SINGLE: Final = (
    "a replica with a single page: what it made until then is not known; a second page, saved later and imported with it,"
    " adds the tokens, requests and running time between the two"
)
_NAMED: Final = re.compile(
    r"(?P<date>\d{4}-?\d\d-?\d\d)[T_-](?P<hour>\d\d)[:-]?(?P<minute>\d\d)[:-]?(?P<second>\d\d)(?P<zone>Z)?|(?P<epoch>\d{13}|\d{10})"
)


def decode_engines(scrapes: Sequence[Input], options: ReadOptions) -> Iterator[Rows | Gap]:
    """The progress of all replicas in these texts. The job is `held_by`, else the pod that labels name.

    Raises SourceError naming the text: no metrics of an engine, no times and none given, no job and none given.
    """
    replicas: dict[tuple[str, str], list[EnginePage]] = {}
    untimed: Counter[tuple[str, str]] = Counter()
    nameless: dict[str, str] = {}  # replicas whose job nothing names, and their text
    for text in scrapes:
        name, named_ms = _read_name(text, options)
        unreadable: list[str] = []
        routers: dict[str, str] = {}
        found = False
        for page in read_pages(text, name, unreadable, routers):
            found = True
            if page.at_ms is None:
                page.at_ms = named_ms if named_ms is not None else _count_on(text, options, untimed[page.place])
                untimed[page.place] += 1
            job = options.held_by or page.place[0]
            if not job:
                nameless.setdefault(page.place[1], text.label)
            replicas.setdefault((job, page.place[1]), []).append(page)
        if not found:
            what = next(iter(routers), "")
            raise SourceError(
                f"{text.label}: a page of {what}, which does not count the tokens of engines; {routers[what]}"
                if what
                else f"{text.label}: no metrics of vLLM, SGLang, TGI, Triton, TensorRT-LLM or llama.cpp in it; save the engine's"
                " answer, for example curl http://NODE:8000/metrics > vllm.prom"
            )
        if unreadable:
            yield Gap(text.label, "lines that are no metrics", len(unreadable))
    for replica, where in nameless.items():
        single = f", and save another page: {SINGLE}" if len(replicas["", replica]) == 1 else ""
        raise SourceError(f"{where}: no label names the job of {replica}; name it with --job JOB{single}")
    label = scrapes[0].label if len(scrapes) == 1 else f"{scrapes[0].label} …"
    yield from _count_replicas(replicas, label, options)


def _count_replicas(
    replicas: dict[tuple[str, str], list[EnginePage]], label: str, options: ReadOptions
) -> Iterator[Rows | Gap]:
    unknown: Counter[str] = Counter()
    rows: list[ProgressRow] = []
    for (job, replica), pages in replicas.items():
        counts = ReplicaCounts(options.step_s * MS_PER_S if options.step_s else find_step_ms(pages))
        amounts = [a for page in sorted(pages, key=lambda page: page.at_ms or 0) for a in counts.add_page(page)]
        joined = join_amounts([*amounts, *counts.end()], {})
        unknown.update(counts.unknown)
        if len(pages) == 1:
            unknown[SINGLE] += 1
        rows += [make_row(job, replica, amount) for amount in joined]
        while len(rows) >= MOST_ROWS:
            yield make_rows(rows[:MOST_ROWS], label)
            rows = rows[MOST_ROWS:]
    if rows:
        yield make_rows(rows, label)
    yield from (Gap(label, what, count) for what, count in unknown.items())


def _read_name(text: Input, options: ReadOptions) -> tuple[str, int | None]:
    """The name of a replica that no label names, and the time in the name of its file: none of a local clock without a zone."""
    name = strip_endings(text.name or text.label)
    found = _NAMED.search(name)
    if found is None:
        return name, None
    rest = (name[: found.start()] + name[found.end() :]).strip("-_. ") or "replica"
    if found["epoch"]:
        return rest, parse_epoch_ms(found["epoch"])
    zone = UTC if found["zone"] else options.timezone
    if zone is None:
        return rest, None
    digits = "".join(found[part].replace("-", "") for part in ("date", "hour", "minute", "second"))
    try:
        at = datetime.strptime(digits, "%Y%m%d%H%M%S").replace(tzinfo=zone)
    except ValueError:
        return name, None
    return rest, round(at.timestamp() * MS_PER_S)


def _count_on(text: Input, options: ReadOptions, page: int) -> int:
    """When a page without a time was taken: one step after the other from `at_ms` on."""
    if options.at_ms is None:
        raise SourceError(
            f"{text.label}: nothing says when it was scraped; say so with --at 2026-10-05T08:00Z, and --step SECONDS where there"
            " are several"
        )
    return options.at_ms + round((options.step_s or DEFAULT_STEP_S) * MS_PER_S) * page
