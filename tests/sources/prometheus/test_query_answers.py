"""Answers to queries: raw samples become points, and whatever else a server sends is refused in one line."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadfactor.base.errors import SourceError
from loadfactor.sources.prometheus.query_answers import read_answer


def matrix(*result: object) -> bytes:
    """An answer that succeeded."""
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()


def identify(labels: dict[str, str]) -> int:
    """Understands series that are called by a number."""
    return int(labels["__name__"]) if labels["__name__"].isdigit() else -1


def test_values_of_understood_series():
    """Values are text, NaN and infinite ones too; times are seconds with fractions; unknown series are left out."""
    answer = matrix(
        {"metric": {"__name__": "7"}, "values": [[1700000000, "1.5"], [1700000030.001, "NaN"], [1700000060.5, "+Inf"]]},
        {"metric": {"__name__": "up"}, "values": [[1700000000, "1"]]},
        {"metric": {"__name__": "2"}, "values": [[1700000000.125, "-Inf"]]},
    )
    points = read_answer(answer, identify)
    assert points.series.tolist() == [7, 7, 7, 2]
    assert points.at_ms.tolist() == [1700000000000, 1700000030001, 1700000060500, 1700000000125]
    assert np.array_equal(points.value, [1.5, np.nan, np.inf, -np.inf], equal_nan=True)
    assert len(read_answer(matrix(), identify).value) == 0


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"<html>", "no JSON"),
        (b'{"status":"error","errorType":"bad_data","error":"parse\\nerror"}', "with an error: parse"),
        (b"[]", "with an error"),
        (b'{"status":"success"}', "range selector"),
        (b'{"status":"success","data":{"resultType":"vector","result":[]}}', "resultType vector"),
        (b'{"status":"success","data":{"resultType":"matrix"}}', "range selector"),
        (matrix(5), "without its labels"),
        (matrix({"metric": {"__name__": 7}, "values": []}), "without its labels"),
        (matrix({"metric": {"__name__": "7"}, "values": [[1]]}), "not a time and a value"),
        (matrix({"metric": {"__name__": "7"}, "values": [[1700000000, "x"]]}), "not a time and a value"),
        (matrix({"metric": {"__name__": "7"}, "values": [[1e300, "1"]]}), "cannot be"),
        (matrix({"metric": {"__name__": "7"}, "values": [[None, "1"]]}), "cannot be|not a time"),
    ],
)
def test_what_is_no_answer(answer, says):
    """An error of one line says what was wrong."""
    with pytest.raises(SourceError, match=says) as error:
        read_answer(answer, identify)
    assert "\n" not in str(error.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5) | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["status", "data", "result", "resultType", "metric", "values", "__name__"]), inner
        )
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(
    st.binary(max_size=40)
    | JSON.map(lambda x: json.dumps(x).encode())
    | st.lists(JSON, max_size=3).map(lambda x: matrix(*x))
)
def test_any_answer(answer):
    """Points or an error of one line, whatever a server sends."""
    try:
        said = str(len(read_answer(answer, len).value))
    except SourceError as error:
        said = str(error)
    assert "\n" not in said
