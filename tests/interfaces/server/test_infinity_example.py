"""The dashboard of examples/ for Grafana's Infinity data source finds what it names in the answers of the server."""

import json
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.interfaces.server.conftest import HOUR, HOURS, START, serve

from loadfactor.books.books import Books
from loadfactor.interfaces.server.models import AlertAnswer

DASHBOARD = json.loads((Path(__file__).parents[3] / "examples" / "grafana-infinity.json").read_text())
KINDS = {"number": float, "string": str, "timestamp": str}


def ask(client: TestClient, target: dict[str, Any]) -> list[list[Any]]:
    """The rows that Infinity shows of a query: the list at the root, and of each item what the columns select."""
    url = target["url"]
    for name, at_ms in (("from", START), ("to", START + HOURS * HOUR)):
        url = url.replace(f"${{__{name}:date:iso}}", datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()[:19] + "Z")
    assert "$" not in url
    answer = client.get(url)
    assert answer.status_code == 200, answer.text
    items = answer.json()[target["root_selector"]]
    selectors = [column["selector"].split(".") for column in target["columns"]]
    return [[reduce(lambda found, part: found[part], path, item) for path in selectors] for item in items]


@pytest.mark.parametrize("panel", DASHBOARD["panels"], ids=lambda panel: panel["title"])
def test_a_panel_finds_its_columns(panel: dict[str, Any], team_books: Books) -> None:
    """Each query is answered, with every column of its kind."""
    (target,) = panel["targets"]
    with serve(team_books) as client:
        rows = ask(client, target)
    if target["root_selector"] == "alerts":  # of a healthy fleet there are none
        assert {column["selector"] for column in target["columns"]} <= AlertAnswer.model_json_schema()[
            "properties"
        ].keys()
        return
    assert rows
    for row in rows:
        for column, value in zip(target["columns"], row, strict=True):
            assert isinstance(value, KINDS[column["type"]]), (column, value)
    if target["format"] == "timeseries":
        assert any(column["type"] == "timestamp" for column in target["columns"])
