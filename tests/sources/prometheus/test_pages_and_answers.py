"""Pages of metrics and answers to queries as points: the rows of an import of the same text, and anything else is refused."""

import json
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.live.fake_dcgm_exporter import FleetTruth, expose
from tests.sources.dcgm.expositions import LABEL_VALUES, NAMES, ODD_LINES, TIMES, VALUES
from tests.sources.prometheus.streams import AT_MS, STEP_MS, Booked

from loadfactor.base.errors import SourceError
from loadfactor.base.units import MS_PER_S
from loadfactor.sources.base import Gap, Input, ReadOptions, Rows, Skip
from loadfactor.sources.dcgm.decoder import decode_scrapes
from loadfactor.sources.prometheus.decoder import PrometheusDecoder
from loadfactor.sources.prometheus.metrics_page import PageReader, TargetLabels
from loadfactor.sources.prometheus.query_answers import decode_answers, read_answer

TARGET: TargetLabels = (("instance", "n1:9400"), ("job", "gpus"), ("node", "n1"))


def util(gpu: int = 1, **labels: str) -> str:
    """Name and labels of the utilization of a GPU."""
    said = {"UUID": f"GPU-{gpu}", "gpu": str(gpu), **labels}
    return "DCGM_FI_DEV_GPU_UTIL{" + ",".join(f'{name}="{value}"' for name, value in said.items()) + "}"


def book(*pages: str, target: TargetLabels = TARGET, restarts: bool = False) -> tuple[Booked, PrometheusDecoder]:
    """The rows of pages of one exporter, a step apart; with `restarts` each page meets a decoder made from the last one's state."""
    booked, decoder = Booked(), PrometheusDecoder()
    reader = PageReader(decoder.identify, [].append)
    for number, page in enumerate(pages):
        if restarts:
            decoder = PrometheusDecoder(decoder.state())
            reader = PageReader(decoder.identify, [].append)
        decoder.feed(reader.read(page.encode(), target, AT_MS + number * STEP_MS), number + 1, float(number))
        booked.take(decoder)
    return booked, decoder


def names(page: str, target: TargetLabels = TARGET) -> dict[str, float]:
    """The value of each series of a page, by its name as the decoder hears it."""
    labels: list[str] = []

    def identify(found: dict[str, str]) -> int:
        labels.append(found["__name__"])
        return len(labels) - 1

    points = PageReader(identify, [].append).read(page.encode(), target, AT_MS)
    return {labels[s]: v for s, v in zip(points.series.tolist(), points.value.tolist(), strict=True)}


@pytest.mark.parametrize("restarts", [False, True])
def test_scraped_pages_and_imported_ones_are_the_same_rows(restarts: bool) -> None:
    """What the import of files makes of the pages of a fleet, scraping them makes of them, also across restarts."""
    truth = FleetTruth(gpus=24, began_s=AT_MS / MS_PER_S)
    pages = [expose(truth, (AT_MS + k * STEP_MS) / MS_PER_S) for k in range(8)]
    scraped = book(*pages, restarts=restarts)[0]
    timed = "".join(expose(truth, (AT_MS + k * STEP_MS) / MS_PER_S, timed=True) for k in range(8))
    imported: dict[str, list[dict[str, object]]] = {}
    for rows in decode_scrapes([Input("all.prom", [timed.encode()])], ReadOptions()):
        if isinstance(rows, Rows):
            imported.setdefault(rows.table, []).extend(rows.data.to_pylist())
    for table, key in (("samples", ("device_id", "to_utc")), ("device_events", ("device_id", "at_utc", "kind"))):
        columns = {name for row in imported[table] for name in row} - {"source", "from_utc", "severity"}
        ours = {tuple(row[k] for k in key): row for row in scraped.list(table)}
        theirs = {tuple(row[k] for k in key): row for row in imported[table]}
        assert ours.keys() == theirs.keys()
        for at, row in theirs.items():
            assert {c: ours[at].get(c) for c in columns} == {c: row.get(c) for c in columns}, at


def test_a_target_says_what_its_page_does_not() -> None:
    """Labels of the page come before those of the target; the node is the one that the exporter names, else the target's host."""
    page = f"{util(1, Hostname='own')} 5\n{util(2)} 5\n"
    booked = book(page)[0]
    of = {row["device_id"]: row["node"] for row in booked.list("devices")}
    assert of == {"GPU-1": "own", "GPU-2": "n1"}
    assert {source for source, *_ in booked.rows["samples"]} == {"dcgm:gpus"}
    address = (("instance", "10.0.0.7:9400"), ("node", "10.0.0.7"))
    assert book('DCGM_FI_DEV_GPU_UTIL{gpu="3"} 5\n', target=address)[0].list("samples")[0]["device_id"] == "10.0.0.7/3"


def test_every_exporter_that_is_understood() -> None:
    """AMD's, and nvidia_gpu_exporter's and node-exporter's pages become rows as they do behind a Prometheus."""
    booked = book(
        'gpu_gfx_activity{gpu_uuid="a",gpu_id="0",hostname="amd-1"} 50\n',
        'nvidia_smi_utilization_gpu_ratio{uuid="0ab2fa2c-0a01-4a4a-a66a-4a4a4a4a4a4a"} 0.25\nnode_load1 3\n',
        "node_memory_MemTotal_bytes 5.12e11\nnode_memory_MemAvailable_bytes 5e11\n",
    )[0]
    found = {source: row["busy_share"] for (source, *_), row in booked.rows["samples"].items()}
    assert found == {"amd:gpus": 0.5, "nvidia-gpu-exporter:gpus": 0.25}
    assert [(row["node"], row["mem_used_bytes"]) for row in booked.list("node_samples")] == [("n1", 12e9)]


@pytest.mark.parametrize(
    ("title", "name", "expected"),
    [
        (
            "# TYPE DCGM_FI_PROF_PCIE_TX_BYTES counter\n",
            "DCGM_FI_PROF_PCIE_TX_BYTES",
            "DCGM_FI_PROF_PCIE_TX_BYTES_TOTAL",
        ),
        ("# TYPE DCGM_FI_PROF_PCIE_TX_BYTES gauge\n", "DCGM_FI_PROF_PCIE_TX_BYTES", "DCGM_FI_PROF_PCIE_TX_BYTES"),
        ("", "DCGM_FI_PROF_PCIE_TX_BYTES", "DCGM_FI_PROF_PCIE_TX_BYTES"),
        ("", "DCGM_FI_PROF_NVLINK_RX_BYTES_total", "DCGM_FI_PROF_NVLINK_RX_BYTES_TOTAL"),
    ],
)
def test_a_rate_or_a_total_as_its_title_says(title: str, name: str, expected: str) -> None:
    """dcgm-exporter writes rates and totals under one name; the title of the page tells them apart."""
    assert names(f'{title}{name}{{UUID="GPU-1"}} 7\n') == {expected: 7.0}


def test_a_title_that_changes() -> None:
    """An exporter that was a rate before its restart and is a total after it, is each in its time."""
    heard: list[str] = []
    reader = PageReader(lambda labels: heard.append(labels["__name__"]) or len(heard) - 1, [].append)  # type: ignore[func-returns-value]
    for kind in ("gauge", "counter", "gauge"):
        page = f'# TYPE DCGM_FI_PROF_PCIE_TX_BYTES {kind}\nDCGM_FI_PROF_PCIE_TX_BYTES{{UUID="GPU-1"}} 7\n'
        reader.read(page.encode(), TARGET, AT_MS)
    assert heard == ["DCGM_FI_PROF_PCIE_TX_BYTES", "DCGM_FI_PROF_PCIE_TX_BYTES_TOTAL"]


def test_times_of_its_own() -> None:
    """A line with a time keeps it, in milliseconds or in OpenMetrics' seconds; one that cannot be is left out."""
    page = f"{util(1)} 5 {AT_MS - 7}\r\n{util(2)} 5 1700000000.5\n{util(3)} 5 9\n{util(4)} five\n"
    assert [row["to_utc"] for row in book(page)[0].list("samples")] == [AT_MS - 7, 1_700_000_000_500]
    skipped: list[Skip] = []
    PageReader(lambda _labels: 0, skipped.append).read(page.encode(), TARGET, AT_MS)
    assert [(skip.reason, skip.count, skip.is_read) for skip in skipped] == [
        ("no_instant", 1, True),
        ("unreadable", 1, True),
    ]


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("<html>\n<body>no</body>\n", "no page of metrics"),
        ('{"status": "success"}\n', "no page of metrics"),
        (f"{util(1)} 50\n{util(2)} 5", "middle of a line"),
    ],
)
def test_what_is_no_page(page: str, said: str) -> None:
    """Something else, or half a page, is refused in one line."""
    with pytest.raises(SourceError, match=said):
        names(page)


def test_a_page_of_nothing() -> None:
    """An exporter that has no GPU yet gives a page without a line, which is no mistake."""
    assert names("") == names("# HELP a b\n") == {}


def test_anything_is_read_or_refused() -> None:
    """Random lines, right and wrong ones, raise nothing but SourceError, and what is right among them is found."""
    r = Random(7)
    for _ in range(400):
        lines = [f"{util()} {r.randrange(100)}\n"]
        for _ in range(r.randrange(30)):
            label = r.choice([f"GPU-{r.randrange(3)}", *LABEL_VALUES[:-2]])
            line = f'DCGM_FI_{r.choice(NAMES)}{{UUID="{label}"}} {r.choice(["5", *VALUES])}{r.choice(["", *TIMES])}\n'
            lines.append(r.choice([line, r.choice(ODD_LINES), line[: r.randrange(len(line))] + "\n"]))
        decoder = PrometheusDecoder()
        reader = PageReader(decoder.identify, [].append)
        right = reader.read(lines[0].encode(), TARGET, AT_MS)
        r.shuffle(lines)
        found = reader.read("".join(lines).encode(), TARGET, AT_MS)
        assert set(zip(*right, strict=True)) <= set(zip(*found, strict=True))


def test_forgotten_heads_are_learnt_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where pods come and go the reader forgets what it knew, and reads on the same."""
    monkeypatch.setattr("loadfactor.sources.prometheus.metrics_page.KNOWN_MAX", 3)
    pages = [f"{util(pod=f'p{k}')} {k}\n" for k in range(9)]
    assert [row["busy_share"] for row in book(*pages)[0].list("samples")] == [k / 100 for k in range(9)]


def matrix(*result: object) -> bytes:
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()


def identify(labels: dict[str, str]) -> int:
    """Understands series that are called by a number."""
    return int(labels["__name__"]) if labels["__name__"].isdigit() else -1


def test_holders_are_known_until_the_last_sample():
    """And the import says until when: a pod that the last sample names may go on."""
    labels = {
        "gpu": "0",
        "UUID": "GPU-00000000-0000-0000-0000-000000000001",
        "Hostname": "n1",
        "modelName": "NVIDIA H100 80GB HBM3",
    }
    labels |= {"__name__": "DCGM_FI_DEV_GPU_UTIL", "pod": "p", "namespace": "team-a", "container": "main"}
    values = [[1700000000 + 30 * number, "50"] for number in range(5)]
    answer = Input("answer.json", [matrix({"metric": labels, "values": values})])
    (gap,) = (
        item for item in decode_answers([answer], ReadOptions()) if isinstance(item, Gap) and "last sample" in item.what
    )
    assert (gap.what[-23:], gap.count) == ("2023-11-14 22:15:20 UTC", 1)


def test_values_of_understood_series():
    """Values are text, NaN and infinite ones too; times are seconds with fractions; unknown series are left out."""
    answer = matrix(
        {"metric": {"__name__": "7"}, "values": [[1700000000, "1.5"], [1700000030.001, "NaN"], [1700000060.5, "+Inf"]]},
        {"metric": {"__name__": "up"}, "values": [[1700000000, "1"]]},
        {"metric": {"__name__": "2"}, "values": [[1700000000.125, "-Inf"]]},
    )
    points = read_answer(answer, identify, [].append)
    assert points.series.tolist() == [7, 7, 7, 2]
    assert points.at_ms.tolist() == [1700000000000, 1700000030001, 1700000060500, 1700000000125]
    assert np.array_equal(points.value, [1.5, np.nan, np.inf, -np.inf], equal_nan=True)
    assert len(read_answer(matrix(), identify, [].append).value) == 0


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"<html>", "no JSON"),
        (b'{"status":"error","errorType":"bad_data","error":"parse\\nerror"}', "with an error: parse"),
        (b"[]", "none of a Prometheus"),
        (b'{"status":"success"}', "range selector"),
        (b'{"status":"success","data":{"resultType":"scalar","result":[]}}', "resultType scalar"),
        (b'{"status":"success","data":{"resultType":"matrix"}}', "range selector"),
        (matrix(5), "without its labels"),
        (matrix({"metric": {"__name__": 7}, "values": []}), "without its labels"),
    ],
)
def test_what_is_no_answer(answer, says):
    """An error of one line says what was wrong."""
    with pytest.raises(SourceError, match=says) as error:
        read_answer(answer, identify, [].append)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("odd", "reason"),
    [([1], "unreadable"), ([1.7e9, "x"], "unreadable"), ([1e300, "1"], "no_instant"), ([0, "1"], "no_instant")],
)
def test_an_odd_sample_of_an_answer_costs_its_neighbours_nothing(odd: list[object], reason: str) -> None:
    """It is skipped and counted; its series, the others and what follows are kept."""
    skipped: list[Skip] = []
    values = [[1.7e9, "1"], odd, [1.7e9 + 1, "2"]]
    answer = matrix({"metric": {"__name__": "7"}, "values": values}, 5, {"metric": {"__name__": "2"}, "values": values})
    points = read_answer(answer, identify, skipped.append)
    assert (points.series.tolist(), points.value.tolist()) == ([7, 7, 2, 2], [1, 2, 1, 2])
    assert [(skip.reason, skip.count) for skip in skipped] == [("unreadable", 1), (reason, 1), (reason, 1)]


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
        said = str(len(read_answer(answer, len, [].append).value))
    except SourceError as error:
        said = str(error)
    assert "\n" not in said
