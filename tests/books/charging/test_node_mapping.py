"""The table of nodes ([billing] nodes): what is wrong in it is one line with its number, and what it says counts at its time."""

import pytest

from loadfactor.base.errors import InputError
from loadfactor.base.units import MS_PER_DAY
from loadfactor.books.charging.instances import BilledResource, NodeRules, find_nodes, read_mapping
from loadfactor.tables.schema import ALWAYS

WRONG = {
    "": "nodes.csv: the header is missing; write resource,node,from,to",
    "resource;node\ni-1;n1\n": "nodes.csv: the header is resource;node; write resource,node,from,to",
    "resource,from\ni-1,2026-10-01\n": "write resource,node,from,to",
    "resource,node,owner\ni-1,n1,me\n": "write resource,node,from,to",
    "resource,node\ni-1,n1\n,n2\n": "nodes.csv: line 3 names no resource and node",
    "resource,node\ni-1,\n": "nodes.csv: line 2 names no resource and node",
    "resource,node\ni-1,n1,x,y,z\n": "nodes.csv: line 2 names no resource and node",
    "resource,node,from\ni-1,n1,10/1/26\n": "nodes.csv: line 2",
    "resource,node,from,to\ni-1,n1,2026-10-02,2026-10-02\n": "`to` 2026-10-02 is not after `from` 2026-10-02",
    "resource,node,to\ni-1,n1,2026-10-02\nI-1,n2,\n": "nodes.csv: line 3: I-1 is two nodes at once; end the earlier row",
    "resource,node,node\ni-1,n1,n2\n": "nodes.csv: the header is resource,node,node; write resource,node,from,to",
}


@pytest.mark.parametrize("text", WRONG)
def test_bad_rows_are_named(text: str) -> None:
    """Header, cells, dates, rows that contradict each other: never read half."""
    with pytest.raises(InputError) as error:
        read_mapping(text, "nodes.csv")
    assert WRONG[text] in str(error.value)
    assert "\n" not in str(error.value)


def test_rows_count_at_their_time_and_the_ledger_knows_nodes_in_any_case() -> None:
    """A resource is the node of a row from its `from` until its `to`; outside the name of the resource decides."""
    text = "\ufeffresource, node, from, to\n\ni-1,GPU-1,1970-01-03,1970-01-05\ni-1,elsewhere,1970-01-05,\n"
    rules = NodeRules(mapping=read_mapping(text, "nodes.csv"))
    resource = BilledResource("arn:aws:ec2:us-east-1:1:instance/I-1", None)
    found = find_nodes([resource], rules, ["gpu-1.example", "i-1"])
    assert list(found[resource]) == [
        ((ALWAYS[0], 2 * MS_PER_DAY), "i-1"),
        ((2 * MS_PER_DAY, 4 * MS_PER_DAY), "gpu-1.example"),
        ((4 * MS_PER_DAY, ALWAYS[1]), "elsewhere"),
    ]
