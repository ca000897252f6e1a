"""A cluster that is watched, with restarts between any two events; and odd objects, saved or live, which end in no traceback."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sources.kubernetes.objects import condition, container, decode, listed, ms, node, owned, owner, pod, workload

from loadfactor.base.errors import SourceError
from loadfactor.collect.payload_stream import pick_valid
from loadfactor.sources.base import Gap, Input, ReadOptions, Rows
from loadfactor.sources.kubernetes.fields import prune
from loadfactor.sources.kubernetes.live_decoder import LiveKubernetesDecoder
from loadfactor.sources.kubernetes.saved import decode_objects
from loadfactor.store.row_checks import validate_rows

ODD = st.one_of(
    *map(
        st.just,
        (None, True, [], {}, [None, 1], "2026-11-02T08:00:00Z", "9999-12-31T23:59:59Z", "\ud800", "1e400", -1, "-3"),
    ),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
)
HAMI = {"hami.io/node-nvidia-register": "GPU-1,10,40960,100,A,0,true:"}
CORDON = {"unschedulable": True, "taints": [{"key": "a", "effect": "NoSchedule"}]}
CLAIMS = {"initContainers": [container()], "resourceClaims": [{"name": "c", "resourceClaimName": "c"}]}
GIVEN = {"devices": {"results": [{"driver": "gpu.nvidia.com", "pool": "n1", "device": "g"}]}}
DEVICES = [{"name": "g", "attributes": {"profile": {"string": "1g.10gb"}}}]
PART = container({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3})
TRAIN = owner("Job", "train", "job-train")
WHOLE = listed(
    node("n1", annotations=HAMI, spec=CORDON),
    workload("train", 1, [condition("Admitted", "True", 2), condition("Evicted", "False", 2)]),
    pod("p", 1, bound=2, ended=4, node="n1", labels={"a": "b"}, containers=[PART], owner=TRAIN, spec=CLAIMS),
    {
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "team-a"},
        "status": {"allocation": GIVEN, "reservedFor": [{"resource": "pods"}]},
    },
    {
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": {"driver": "gpu.nvidia.com", "pool": {"name": "n1"}, "devices": DEVICES},
    },
)


def list_paths(found, path=()):
    items = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from list_paths(value, (*path, key))


def refuse(content):
    """Why a file is not taken, or that it is; its rows are such as the store takes."""
    try:
        for item in decode_objects([Input("pods.json", [content])], ReadOptions()):
            if not isinstance(item, Gap):
                validate_rows(item, 0)
    except SourceError as error:
        return str(error)
    return "pods.json was read"


PATHS = list(list_paths(WHOLE))


@pytest.mark.long
@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PATHS), ODD), max_size=4))
def test_odd_values_never_end_in_a_traceback(changes):
    """Any value in the place of any other, or nothing, gives rows that the store takes, or an error of one line."""
    document = json.loads(json.dumps(WHOLE))
    for path, value in changes:
        place = document
        try:
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = value
        except (KeyError, IndexError, TypeError):
            continue
    assert "\n" not in refuse(json.dumps(document).encode())


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 3000))
def test_any_bytes_make_rows_or_an_error(data, cut):
    """A file that is no JSON, or was cut, is refused with its name."""
    for content in (data, json.dumps(WHOLE).encode()[:cut]):
        message = refuse(content)
        assert message.startswith("pods.json")
        assert "\n" not in message


@pytest.mark.parametrize("document", [[listed()], {"kind": "PodList", "items": []}, "kind: Pod", 3, [[3]]])
def test_nothing_of_kubernetes_is_refused(document):
    """With what to save instead."""
    with pytest.raises(SourceError, match=r"-o json"):
        decode(document)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("apiVersion: v1\nkind: PodList\n", "line 1: YAML .*save `kubectl get pods,nodes -A -o json`"),
        ("NAME   READY   STATUS\n", "line 1: a table of kubectl"),
        ('{"jobs": [], "meta": {}}', "JSON of Slurm; import it with `loadfactor import slurm`"),
        ('{"status": "success", "data": {}}', "an answer of Prometheus; import it with"),
        ("{}", "no object of Kubernetes in it; save `kubectl get pods,nodes -A -o json`"),
    ],
)
def test_another_kind_of_file_is_named(text, message):
    """With the command that gives what is needed."""
    with pytest.raises(SourceError, match=message):
        list(decode_objects([Input("saved", [text.encode()])], ReadOptions()))


def test_forms_of_a_file():
    """A list of one kind, a single object, several documents, a byte order mark and UTF-16 are the same."""
    one, there = pod("p", 1, bound=2, ended=4, node="n1"), node("n1")
    bare = {k: v for k, v in one.items() if k not in ("kind", "apiVersion")}
    wanted = decode(there, one)
    assert wanted["allocations"]
    assert decode(listed(there, one)) == wanted
    assert decode({"kind": "NodeList", "items": [there]}, {"kind": "PodList", "items": [bare]}) == wanted
    for encoding in ("utf-8-sig", "utf-16"):
        content = json.dumps(listed(there, one)).encode(encoding)
        assert (
            len(list(decode_objects([Input("pods.json", [content[:9], content[9:]])], ReadOptions()))) == 2
        )  # and devices


SEVENTH = [container({"nvidia.com/mig-1g.10gb": 1})]
PENDING = condition("QuotaReserved", "False", 1, "Pending", "insufficient quota")
EVICTED = condition("Evicted", "True", 4, "Preempted")
ADMITTED = [condition("QuotaReserved", "True", 2), condition("Admitted", "True", 2)]
RAN = pod("train-0", 2, bound=2, node="n1", uid="t", owner=TRAIN)
SAID = [
    (0, "Node", "LISTING", None),
    (0, "Node", "ADDED", node("n1", labels={"nvidia.com/gpu.replicas": "4"})),
    (0, "Node", "LISTED", None),
    (0, "Workload", "ADDED", workload("train", 1, [PENDING])),
    (2, "Workload", "MODIFIED", workload("train", 1, ADMITTED)),
    (2, "Pod", "LISTING", None),
    (2, "Job", "ADDED", owned("Job", "train", "job-train", labels={"experiment": "e1"})),
    (2, "Pod", "ADDED", RAN),
    (2, "Pod", "ADDED", pod("waits", 2, uid="w", containers=SEVENTH)),
    (2, "Pod", "ADDED", pod("ghost", 1, bound=2, node="n1", uid="g")),
    (2, "Pod", "LISTED", None),
    (3, "Node", "MODIFIED", node("n1", ready=condition("Ready", "Unknown", 3, "NodeStatusUnknown"))),
    (4, "Pod", "DELETED", {**RAN, "metadata": {**RAN["metadata"], "deletionTimestamp": "2026-11-02T04:00:00Z"}}),
    (4, "Workload", "MODIFIED", workload("train", 1, [PENDING, EVICTED])),
    (5, "Node", "MODIFIED", node("n1", ready=condition("Ready", "True", 5))),
    (6, "Pod", "ALIVE", None),
    (7, "Pod", "LISTING", None),
    (7, "Pod", "ADDED", pod("waits", 2, bound=6, ended=7, node="n1", uid="w", containers=SEVENTH)),
    (7, "Pod", "LISTED", None),
]  # fmt: skip
EVENTS = [[ms(hour), kind, what, None if found is None else prune(kind, found)] for hour, kind, what, found in SAID]


def gather(decoder, rows, gaps):
    """Take what is there; of rows with one key the later one counts."""
    for item in decoder.drain():
        if isinstance(item, Gap):
            gaps.append(item.what)
            continue
        for row in validate_rows(item, 0).to_pylist():
            key = [row.get(name) for name in ("job_id", "node", "event", "at_utc", "from_utc")]
            rows[item.table, json.dumps(key)] = row


def run(*cuts):
    decoder, rows, gaps = LiveKubernetesDecoder("prod"), {}, []
    for place, event in enumerate(EVENTS):
        decoder.feed([event])
        gather(decoder, rows, gaps)
        if place in cuts:
            decoder = LiveKubernetesDecoder("prod", decoder.state())
    return rows, gaps


def test_the_story():
    """A preempted pod whose deletion is told first, a wait that ends, a node that comes back, and a pod that vanishes."""
    rows, gaps = run()
    held = {row["job_id"]: row for (table, _), row in rows.items() if table == "allocations"}
    assert {job: (row["end_state"], row["to_utc"]) for job, row in held.items()} == {
        "team-a/train-0": ("preempted", ms(4)),
        "team-a/waits": ("completed", ms(7)),
        "team-a/ghost": ("vanished", ms(6)),
    }
    assert json.loads(held["team-a/train-0"]["tags"])["label.experiment"] == "e1"
    assert held["team-a/train-0"]["share"] == 0.25
    (down,) = [row for (table, _), row in rows.items() if table == "outages"]
    assert (down["from_utc"], down["to_utc"]) == (ms(3), ms(5))
    assert gaps == ["pods that ended while nobody watched: they end when they were seen last"]


@pytest.mark.long
@pytest.mark.parametrize("cut", [place for place, event in enumerate(EVENTS) if event[1] != "Job"])
def test_a_restart_changes_nothing(cut):
    """Wherever it falls: the state is all that is needed. An owner comes in one body with the pod for which it was asked."""
    assert run(cut) == run()


def test_what_was_told_is_not_told_again():
    """A list after a restart that says nothing new makes no row."""
    decoder = LiveKubernetesDecoder("prod")
    decoder.feed(EVENTS[:11])
    assert list(decoder.drain())
    decoder = LiveKubernetesDecoder("prod", decoder.state())
    decoder.feed(EVENTS[5:11])
    assert not list(decoder.drain())


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PATHS), ODD), max_size=4), st.sampled_from(["ADDED", "DELETED"]))
def test_odd_objects_are_pruned_and_decoded(changes, what):
    """Any value in the place of any other: rows that the store takes, and a state that can be read."""
    document = json.loads(json.dumps(WHOLE))
    for path, value in changes:
        place = document
        try:
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = value
        except (KeyError, IndexError, TypeError):
            continue
    items = document.get("items") if isinstance(document, dict) else None
    decoder = LiveKubernetesDecoder("prod")
    there = items if isinstance(items, list) else ()
    for kind, found in zip(("Node", "Workload", "Pod", "ResourceClaim", "ResourceSlice"), there, strict=False):
        if isinstance(found, dict):
            decoder.feed([[ms(9), kind, "ADDED", prune(kind, found)], [ms(9), kind, what, prune(kind, found)]])
    for item in decoder.drain():
        for rows in pick_valid(item, lambda _gap: None) if isinstance(item, Rows) else ():
            validate_rows(rows, 0)  # as live: a count beyond what there can be is left out by itself
    LiveKubernetesDecoder("prod", decoder.state())


@pytest.mark.parametrize("state", [b"x", b"\x78\x9c\x03\x00\x00\x00\x00\x01"])
def test_a_state_that_is_none_is_refused(state):
    """In one line."""
    with pytest.raises(SourceError, match="state of a cluster"):
        LiveKubernetesDecoder("prod", state)
