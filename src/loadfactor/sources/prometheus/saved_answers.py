"""Decoder of saved answers of a Prometheus-compatible server to /api/v1/query and query_range: GPUs, nodes and serving engines."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from loadfactor.base.errors import SourceError
from loadfactor.base.units import BYTES_PER_MIB
from loadfactor.sources.base import Gap, Input, ReadOptions, Rows, Source
from loadfactor.sources.files import find_with, read_with
from loadfactor.sources.parsing.steps import EXPORTER_STEP_S
from loadfactor.sources.parsing.text_blocks import join_pieces
from loadfactor.sources.prometheus.decoder import PrometheusDecoder
from loadfactor.sources.prometheus.query_answers import read_answer

LARGEST_FILE_BYTES: Final = 256 * BYTES_PER_MIB


def decode_answers(answers: Sequence[Input], options: ReadOptions) -> Iterator[Rows | Gap]:
    """The rows of all answers together. The job of serving engines is `held_by`, else what labels say.

    Raises SourceError naming the file that is no answer with the samples of series.
    """
    decoder = PrometheusDecoder()

    def identify(labels: dict[str, str]) -> int:
        return decoder.identify({**labels, "job": options.held_by} if options.held_by else labels)

    for number, answer in enumerate(answers, 1):
        try:
            content = join_pieces(answer.label, answer.chunks, LARGEST_FILE_BYTES, "ask for shorter times")
            points = read_answer(content, identify)
        except SourceError as error:
            said = str(error)
            raise SourceError(said if answer.label in said else f"{answer.label}: {said}") from None
        decoder.put(points, number, 0.0)
    for item in decoder.take(None):
        yield name_source(item) if isinstance(item, Rows) else item
    yield from decoder.take_progress(has_ended=True)
    where = answers[0].label if len(answers) == 1 else f"{answers[0].label} …"
    for name, series in decoder.not_understood.items():
        yield Gap(where, f"series not understood: {name}", series)


def name_source(rows: Rows) -> Rows:
    """Samples with the exporter that took them: one import has several. Other rows say it themselves."""
    if rows.table != "samples":
        return rows
    source = pa.array([rows.where] * rows.data.num_rows, pa.string())
    return replace(rows, data=rows.data.append_column("source", source))


SOURCE = Source(
    "prometheus",
    find_with((".json",), "saved answer of a Prometheus"),
    read_with(decode_answers),
    EXPORTER_STEP_S,
    watches=True,
)
