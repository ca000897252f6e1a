"""Saved answers of Cloud Monitoring's ListTimeSeries: one JSON document a file, or page after page."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from loadfactor.base.errors import SourceError
from loadfactor.base.units import BYTES_PER_MIB
from loadfactor.sources.base import Gap, Input, ReadOptions, Rows
from loadfactor.sources.clouds.cloud_series import CloudSeries, as_list, as_object, split_documents
from loadfactor.sources.clouds.monitoring_series import read_time_series
from loadfactor.sources.clouds.saved_series import decode_series
from loadfactor.sources.parsing.text_blocks import join_pieces

LARGEST_ANSWER_BYTES: Final = 256 * BYTES_PER_MIB


def decode_saved_monitoring(inputs: Sequence[Input], _options: ReadOptions) -> Iterator[Rows | Gap]:
    """Rows of saved answers. Raises SourceError for what is none."""
    yield from decode_series(inputs, _read)


def _read(source: Input, leave_out: Callable[[str], None]) -> Iterator[CloudSeries]:
    content = join_pieces(source.label, source.chunks, LARGEST_ANSWER_BYTES, "save shorter times")
    try:
        pages = list(split_documents(content.decode()))
    except (ValueError, RecursionError):
        raise SourceError(f"{source.label} is no JSON of ListTimeSeries; is it whole?") from None
    for page in pages:
        found = (
            page if isinstance(page, list) else as_list(as_object(page, source.label).get("timeSeries"), source.label)
        )
        yield from read_time_series(found, "", source.label, leave_out)
