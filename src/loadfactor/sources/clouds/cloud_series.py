"""Series as a cloud keeps them, with labels as exporters write them, and as the answer of a query that the decoder reads."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from loadfactor.base.errors import SourceError
from loadfactor.base.units import MS_PER_S

NAME: Final = "__name__"


class CloudSeries(NamedTuple):
    """One series. `points`: when each value's interval ends (ms since 1970 UTC), and the value in the units of its metric."""

    labels: Mapping[str, str]
    points: Sequence[tuple[int, float]]


def write_matrix(series: Iterable[CloudSeries]) -> bytes:
    """The answer that Prometheus would give: points of each series in the order of time, one at an instant.

    >>> write_matrix([CloudSeries({"gpu": "0"}, [(2000, 5.0), (1000, 4.0)])])[50:]
    b'"result":[{"metric":{"gpu":"0"},"values":[[1.0,"4.0"],[2.0,"5.0"]]}]}}'
    """
    result = [
        {"metric": dict(labels), "values": [[at / MS_PER_S, repr(v)] for at, v in sorted(dict(points).items())]}
        for labels, points in series
    ]
    answer = {"status": "success", "data": {"resultType": "matrix", "result": result}}
    return json.dumps(answer, separators=(",", ":")).encode()


def name_gpu(node: str, index: str, labels: Mapping[str, str]) -> dict[str, str]:
    """The labels of a GPU that is known by its node and number, with others; nvidia0, as the device file is called, is 0."""
    return {**labels, "hostname": node, "gpu": index.removeprefix("nvidia")}


def as_object(value: Any, what: str) -> dict[str, Any]:
    """A JSON object. Raises SourceError where it is none."""
    if not isinstance(value, dict):
        raise SourceError(f"{what} is no object; is it whole?")
    return value


def as_list(value: Any, what: str) -> list[Any]:
    """A JSON list, an empty one where there is none. Raises SourceError for anything else."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise SourceError(f"{what} is no list; is it whole?")
    return value


def split_documents(text: str) -> Iterator[Any]:
    """The JSON documents of a text, one after the other. Raises ValueError where something else is between them."""
    decoder, at = json.JSONDecoder(), 0
    while (at := next((i for i in range(at, len(text)) if not text[i].isspace()), -1)) >= 0:
        found, at = decoder.raw_decode(text, at)
        yield found
