"""Whatever stands in a file: rows, gaps or a SourceError of one line."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sources.kubernetes.objects import condition, container, decode, listed, node, owner, pod, workload

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import Gap, Input, ReadOptions
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
WHOLE = listed(
    node("n1", annotations=HAMI, spec=CORDON),
    workload("train", 1, [condition("Admitted", "True", 2), condition("Evicted", "False", 2)]),
    pod(
        "p",
        1,
        bound=2,
        ended=4,
        node="n1",
        owner=owner("Job", "train", "job-train"),
        labels={"a": "b"},
        containers=[container({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3})],
        spec=CLAIMS,
    ),
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
        assert len(list(decode_objects([Input("pods.json", [content[:9], content[9:]])], ReadOptions()))) == 1
