"""Live decoders, listed in `LIVE_SOURCES`: what makes rows of the events of a watched scheduler, cloud or engine, as they come."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Protocol

from loadfactor.sources.base import Gap, Rows


class LiveDecoder(Protocol):
    """Makes rows of events. Made of a name and a state, `b""` for a new one."""

    def feed(self, events: Sequence[Any]) -> None:
        """Take events in the order in which they came."""

    def drain(self) -> Iterator[Rows | Gap]:
        """The rows that are new or changed since the last call; `where` is their source."""

    def state(self) -> bytes:
        """All that is needed to go on in another process."""


@dataclass(frozen=True)
class LiveSource:
    """A family of live streams: the first word of their ids, and what decodes them.

    `corrects_rows`: it lists what there is and corrects it; of rows with one key the later one counts whole, its end too.
    """

    name: str
    module: str
    decoder: str
    corrects_rows: bool = True

    def open(self, name: str, state: bytes) -> LiveDecoder:
        """The decoder of the stream that the configuration calls `name`. Raises SourceError where `state` is none of it."""
        decoder: LiveDecoder = getattr(import_module(self.module), self.decoder)(name, state)
        return decoder


LIVE_SOURCES: Final = (
    LiveSource("ec2", "loadfactor.sources.clouds.ec2", "LiveEc2Decoder"),
    LiveSource("gce", "loadfactor.sources.clouds.gce", "LiveGceDecoder"),
    LiveSource("kubernetes", "loadfactor.sources.kubernetes.live_decoder", "LiveKubernetesDecoder"),
    LiveSource("metric-stream", "loadfactor.sources.clouds.cloudwatch", "LiveMetricStreamDecoder", corrects_rows=False),
    LiveSource("progress", "loadfactor.sources.progress_records.live_decoder", "LiveProgressDecoder"),
    LiveSource("serving", "loadfactor.sources.serving_engines.live_decoder", "LiveServingDecoder"),
    LiveSource("slurm", "loadfactor.sources.slurm.live_decoder", "LiveSlurmDecoder"),
)


def find_live_source(stream_id: str) -> LiveSource | None:
    """The family of a stream; None for streams of samples.

    >>> find_live_source("kubernetes prod").name, find_live_source("prometheus prod")
    ('kubernetes', None)
    """
    family = stream_id.partition(" ")[0]
    return next((source for source in LIVE_SOURCES if source.name == family), None)


def corrects_rows(source: str) -> bool:
    """Whether the live rows of a source are a list that it corrects.

    >>> corrects_rows("kubernetes:prod"), corrects_rows("dcgm:nodes")
    (True, False)
    """
    family = source.partition(":")[0]
    return any(known.name == family and known.corrects_rows for known in LIVE_SOURCES)
