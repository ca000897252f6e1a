"""Exporters found in lists, in files of file_sd and in DNS; what is broken keeps what was there before, and is said."""

import asyncio
import json
import os
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dns.message
import dns.rrset
import pytest
from dns.asyncresolver import Resolver

from loadfactor.base.errors import InputError
from loadfactor.collect.exporters import (
    FileTargets,
    FoundTargets,
    NamedTargets,
    Target,
    TargetDefaults,
    TargetFinder,
    drop_repeated,
    split_address,
)

DCGM = TargetDefaults(9400, job="gpus")
NAME = "_dcgm._tcp.example."


def find(finder: TargetFinder) -> FoundTargets:
    """Targets that are found now."""
    return asyncio.run(finder.find())


def names(found: FoundTargets) -> list[str]:
    """Names of the exporters."""
    return [target.name for target in found.targets]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("node-1:9400", ("node-1", 9400)),
        ("node-1", ("node-1", 9400)),
        ("10.0.0.7:80", ("10.0.0.7", 80)),
        ("[fd00::1]:9400", ("fd00::1", 9400)),
        ("[::1]", ("::1", 9400)),
    ],
)
def test_addresses(address: str, expected: tuple[str, int]) -> None:
    """Host and port as people write them, and the usual port where none is said."""
    assert split_address(address, 9400) == expected


@pytest.mark.parametrize(
    "address",
    [
        "",
        ":9400",
        "http://node-1:9400",
        "node-1:0",
        "node-1:99999",
        "node-1:x",
        "::1",
        "a b:1",
        "u@h:1",
        "n:1/m",
        "n\r\nX: y:1",
    ],
)
def test_what_is_no_address(address: str) -> None:
    """Anything else is refused in one line that shows how it is written."""
    with pytest.raises(InputError, match="write host:port"):
        split_address(address, 9400)


def test_a_port_must_be_said_where_there_is_no_usual_one() -> None:
    """Exporters of any kind have no usual port."""
    with pytest.raises(InputError):
        split_address("node-1")


def test_what_a_target_is_told() -> None:
    """Its address is the instance, its host the node, the name of the group the job."""
    target = DCGM.read("10.0.0.7")
    assert target == Target(
        "10.0.0.7", 9400, labels=(("instance", "10.0.0.7:9400"), ("job", "gpus"), ("node", "10.0.0.7"))
    )
    assert (target.name, target.url) == ("10.0.0.7:9400", "http://10.0.0.7:9400/metrics")
    assert names(FoundTargets(drop_repeated([target, DCGM.read("b"), DCGM.read("10.0.0.7:9400")]))) == [
        "10.0.0.7:9400",
        "b:9400",
    ]


def test_files_of_both_kinds(tmp_path: Path) -> None:
    """JSON and YAML say the same; labels that help are kept, those of the exporter's pod are not; scheme and path are obeyed."""
    (tmp_path / "a.json").write_text(
        json.dumps([{"targets": ["n1:9400", "n2"], "labels": {"job": "dcgm", "pod": "exporter-x"}}])
    )
    (tmp_path / "b.yml").write_text(
        "- targets: ['n3:8443', 'n1:9400']\n  labels: {__scheme__: https, __metrics_path__: /gpus, node: r3, team: 7}\n"
    )
    found = find(FileTargets((f"{tmp_path}/*.json", f"{tmp_path}/*.yml"), DCGM))
    assert found.error == ""
    assert [target.url for target in found.targets] == [
        "http://n1:9400/metrics",
        "http://n2:9400/metrics",
        "https://n3:8443/gpus",
        "https://n1:9400/gpus",
    ]
    assert dict(found.targets[1].labels) == {"instance": "n2:9400", "job": "dcgm", "node": "n2"}
    assert dict(found.targets[2].labels) == {"instance": "n3:8443", "job": "gpus", "node": "r3"}
    assert found.targets[2].name == "n3:8443/gpus"


def test_a_file_that_changes_and_breaks(tmp_path: Path) -> None:
    """Changes are read; a broken file keeps its last good list; one that is gone takes its exporters along."""
    file = tmp_path / "a.json"
    finder = FileTargets((f"{tmp_path}/*.json", f"{tmp_path}/*.yaml"), DCGM)
    nothing = find(finder)
    assert names(nothing) == []
    assert "no file is called" in nothing.error
    for text, expected, said in (
        ('[{"targets": ["n1"]}]', ["n1:9400"], ""),
        ('[{"targets": ["n1", "n2"]}]', ["n1:9400", "n2:9400"], ""),
        ('[{"targets": ["n1", "n', ["n1:9400", "n2:9400"], "no JSON"),
        ('{"targets": ["n1"]}', ["n1:9400", "n2:9400"], "not the format of file_sd"),
        ('[{"targets": ["http://n1"]}]', ["n1:9400", "n2:9400"], "no address of an exporter"),
        ('[{"targets": "n1"}]', ["n1:9400", "n2:9400"], "not a list"),
        ('[{"targets": ["n1"], "labels": {"__metrics_path__": "a b"}}]', ["n1:9400", "n2:9400"], "no path"),
        ('[{"targets": ["n3"]}]', ["n3:9400"], ""),
    ):
        file.write_text(text)
        for _ in range(2):  # what is wrong is said as long as it is there
            found = find(finder)
            assert names(found) == expected
            assert said in found.error if said else not found.error
            assert not said or "its last good list stays" in found.error
    (tmp_path / "b.yaml").write_text("- targets: [n4\n")
    found = find(finder)
    assert names(found) == ["n3:9400"]
    assert "b.yaml: no YAML" in found.error
    (tmp_path / "b.yaml").unlink()
    os.replace(file, tmp_path / "c.json")
    assert names(find(finder)) == ["n3:9400"]
    (tmp_path / "c.json").unlink()
    assert names(find(finder)) == []


def test_an_address_in_dns() -> None:
    """Every address is an exporter, of IPv4 where there is one: localhost is one exporter, not two. None is the name of a node."""
    found = find(NamedTargets("localhost:9400", DCGM))
    assert names(found) == ["127.0.0.1:9400"]
    assert "node" not in dict(found.targets[0].labels)
    assert names(find(NamedTargets("[::1]", DCGM))) == ["[::1]:9400"]


@contextmanager
def serve_dns(records: list[str]) -> Iterator[Resolver]:
    """A server of DNS that knows the SRV records of one name: whatever the list holds when it is asked."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            data, socket = self.request
            query = dns.message.from_wire(data)
            answer = dns.message.make_response(query)
            if query.question[0].name.to_text() == NAME and records:
                answer.answer.append(dns.rrset.from_text(NAME, 1, "IN", "SRV", *records))
            else:
                answer.set_rcode(dns.rcode.NXDOMAIN)
            socket.sendto(answer.to_wire(), self.client_address)

    with socketserver.ThreadingUDPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        resolver = Resolver(configure=False)
        resolver.nameservers, resolver.port, resolver.lifetime = ["127.0.0.1"], server.server_address[1], 3.0
        yield resolver
        server.shutdown()


def test_services_in_dns() -> None:
    """SRV records give host and port; a name that is gone keeps its last exporters, and is said."""
    records = ["0 0 9401 node-2.example.", "0 0 9400 node-1.example."]
    with serve_dns(records) as resolver:
        finder = NamedTargets(NAME.rstrip("."), DCGM, resolver)
        found = find(finder)
        assert names(found) == ["node-1.example:9400", "node-2.example:9401"]
        assert dict(found.targets[0].labels)["node"] == "node-1.example"
        records.pop()
        assert names(find(finder)) == ["node-2.example:9401"]
        records.clear()
        gone = find(finder)
    assert names(gone) == ["node-2.example:9401"]
    assert "not found in DNS" in gone.error
    assert "NXDOMAIN" in gone.error


def test_a_name_that_nobody_knows() -> None:
    """It is said, and nothing is asked."""
    found = find(NamedTargets("no-such-name.invalid:9400", DCGM))
    assert found.targets == ()
    assert "not found in DNS" in found.error
