"""Every command, endpoint, gauge, panel and section that shows money or hours stands in the table, or says here why not."""

import re
from datetime import UTC
from pathlib import Path

from tests.books.conftest import Write
from tests.identities.fleet import list_commands
from tests.identities.fleets import make_fleet
from tests.identities.metric_places import MEANT, NUMBERS, SELECTOR, list_queries
from tests.identities.table import IDENTITIES

from loadfactor.insight.alerts.rule import Threshold
from loadfactor.insight.alerts.rules import RULES
from loadfactor.interfaces.gauges.exposition import OF_WHOLE_JOBS, SPLITS, name_gauge
from loadfactor.interfaces.gauges.measured import WHOLE
from loadfactor.interfaces.gauges.rules import CONDITION, name_watched
from loadfactor.interfaces.plans.process import PLANS
from loadfactor.interfaces.reports.page import SECTIONS
from loadfactor.interfaces.server.app import NEEDS
from loadfactor.interfaces.web.pages import PAGES

PLACES = " · ".join(place for of in IDENTITIES for place in of.readers)
NO_NUMBER = "shows no money and no GPU-hours"
KEEPS = "writes or keeps the books, and counts rows, files or bytes"
TOKENS = "tokens, keys and pseudonyms"
MEASURED = "predictions beside measurements: numbers of papers and traces, that no other page shows"
COMMANDS_WITHOUT = {
    "init": NO_NUMBER,
    "demo": "prints `report` of a simulated fleet",
    "import": "counts rows; the control total of a bill is in tests/books/charging",
    "alerts silences": NO_NUMBER,
    "alerts silence": NO_NUMBER,
    "alerts unsilence": NO_NUMBER,
    "forecast": "weeks that are not there yet; the last one is compared with `show` in tests/interfaces/plans",
    "check": NO_NUMBER,
    "up": "serves what the endpoints below say",
    "mcp": "offers what the endpoints below say",
    "serve": "the pages of the server, which are in the table",
    "record": "prints `report --job` of what it ran",
    "agent": NO_NUMBER,
    "metrics": NO_NUMBER,
    "tables": NO_NUMBER,
    "settings": NO_NUMBER,
    "users": "metrics of `show --by user`, which it asks for, and the rule of [wasteful] (tests/insight/test_wasteful.py)",
    "digest": "metrics of `show`, steps of `waterfall`, parts of `why-changed`, which it asks for (tests/interfaces/digests)",
    "catalog": "list prices of the catalog as they are",
    "retag": KEEPS,
    "imports": KEEPS,
    "forget": KEEPS,
    "merge": KEEPS,
    "token create": TOKENS,
    "token list": TOKENS,
    "token revoke": TOKENS,
    "pseudonym make-key": TOKENS,
    "pseudonym of": TOKENS,
    "pseudonym reveal": TOKENS,
    "compact": KEEPS,
    "retain": KEEPS,
    "plan books": "what books take, which stands nowhere else",
    **dict.fromkeys(("ledger plan", "ledger book", "ledger publish", "rebuild"), KEEPS),
    "repair": KEEPS,
    "backup": KEEPS,
    "restore": KEEPS,
    "generate grafana": "writes the dashboards, which are in the table",
    "generate prometheus-rules": "writes the rules for Prometheus, which are in the table",
    "validate train": MEASURED,
    "validate memory": MEASURED,
    "validate rl": MEASURED,
    "validate serve": MEASURED,
    "validate mfu": MEASURED,
}
ENDPOINTS_WITHOUT = {
    "/health": NO_NUMBER,
    "/openapi.json": NO_NUMBER,
    "/api/v1/write": KEEPS,
    "/api/v1/progress": KEEPS,
    "/api/v1/imports": KEEPS,
    "/api/v1/coverage": "shares that were known, of the readings in the table",
    "/api/v1/metrics": NO_NUMBER,
    "/api/v1/jobs": NO_NUMBER,
    "/api/v1/devices": NO_NUMBER,
    "/api/v1/silences": NO_NUMBER,
    "/api/v1/silences/{id}": NO_NUMBER,
}
GAUGES_WITHOUT = {
    r"(loadfactor_server|process)_\w+": "how the server does",
    r"loadfactor_(books_end|samples_begin)_timestamp_seconds": "an instant",
    r"loadfactor_\w*coverage_ratio": "shares that were known, of the gauges in the table",
    r"loadfactor_\w*utilization_histogram_gpu_hours": "a list by activity, which no page shows as a number",
    r"loadfactor_budget_usd|loadfactor_budget_(forecast|burn)_ratio": "the budget as configured, and shares of it",
    CONDITION: "whether a rule holds",
    r"loadfactor_watched_\w+": "what rules compare; those of utilization are in the table",
}
SECTIONS_WITHOUT = {
    "build_requested_why": "`diagnose` and `savings`, in the table",
    "build_over_time": "days of metrics in the table, as `show --by day` says them",
    "build_waits": "metrics in the table",
    "build_unit_costs": "metrics in the table",
    "build_jobs": "the largest jobs, as `report --job` says them",
    "build_data_quality": "metrics and the balance of `doctor`, in the table",
    "build_targets": "metrics of a week, as `show` says them, beside what they are to be",
    "build_next_steps": "commands, with metrics in the table",
}
SECTIONS_WITH = {
    "build_waterfall": "`report`, from paid to useful",
    "build_useful": "`report`, from paid to useful",
    "build_groups": "`report`, cost by team",
    "build_chargeback": "`report`, who paid",
    "build_bridge": "`report`, from the bill to statements",
    "build_budget": "`report`, budgets",
    "build_energy": "`report`, energy and carbon, terminal",
}


PAGES_WITHOUT = {
    "/settings": NO_NUMBER,
    "/docs": NO_NUMBER,
    "/views": NO_NUMBER,
    "/sources": KEEPS,
    **{f"/plan/{of.name}": f"the document of `plan {of.name}`, whose numbers are in the table" for of in PLANS},
}
NEW_PAGE = (
    "a page of the server without a line in the table: add what it shows of metrics to WEB_PAGES (tests/identities/web_pages.py),"
    ' what else it shows to its quantity (tests/identities/table.py) as "page `/path`", or say in PAGES_WITHOUT why it shows'
    " none; then UPDATE_PAGES=1 pytest tests/identities -k printed"
)


def stands(place: str) -> bool:
    """Whether a place of these words, perhaps with options, is in the table."""
    return re.search(rf"`{re.escape(place)}(`| -)", PLACES) is not None


def check(
    there: set[str],
    known: set[str],
    exempt: set[str],
    words: str = "without a line in the table (tests/identities/table.py)",
) -> None:
    """Each one stands in the table, or is exempt, and nothing is exempt that there is not or that stands there."""
    assert sorted(there - known - exempt) == [], words
    assert sorted(exempt - there) == [], "exempt, and not there"
    assert sorted(exempt & known) == [], "exempt, and in the table"


def test_every_command_stands_in_the_table() -> None:
    """A new page is a line of the table."""
    there = {words for words, _ in list_commands()}
    check(there, {words for words in there if stands(words)}, {*COMMANDS_WITHOUT})


def test_every_endpoint_stands_in_the_table() -> None:
    """A new answer of the server is a line of the table."""
    there = {path for _, path in NEEDS}
    check(there, {path for path in there if f"GET {path}`" in PLACES or f"`{path}`" in PLACES}, {*ENDPOINTS_WITHOUT})


def test_every_page_of_the_server_stands_in_the_table() -> None:
    """A new page is a line of the table."""
    there = {page.path for page in PAGES}
    check(there, {path for path in there if f"page `{path}`" in PLACES}, {*PAGES_WITHOUT}, NEW_PAGE)


def test_every_section_of_the_report_stands_in_the_table() -> None:
    """A new section is a line of the table."""
    assert all(place in PLACES for place in SECTIONS_WITH.values())
    check({of.__name__ for of in SECTIONS}, {*SECTIONS_WITH}, {*SECTIONS_WITHOUT})


def test_every_gauge_stands_in_the_table(tmp_path: Path, write: Write) -> None:
    """What `/metrics` shows is a metric's gauge by a split, or one that the table names."""
    fleet = make_fleet(1, tmp_path / "fleet", write, UTC)
    try:
        there = set(fleet.gauges)
    finally:
        fleet.close()
    named = {split.name(of, "USD") for split in SPLITS for of in split.metrics if of.name in NUMBERS}
    named |= {name_gauge(of, "USD", ("job",), WHOLE) for of in OF_WHOLE_JOBS}
    named |= set(re.findall(r"loadfactor_\w+", PLACES))
    left = {name for name in there - named if not any(re.fullmatch(of, name) for of in GAUGES_WITHOUT)}
    assert not left, "without a line in the table (tests/identities/table.py)"
    shown = there | {name_watched(rule, "USD") for rule in RULES if isinstance(rule.condition, Threshold)} | named
    for pattern in GAUGES_WITHOUT:
        assert any(re.fullmatch(pattern, name) for name in shown | {CONDITION}), pattern


def test_every_panel_says_the_meaning_of_its_gauge() -> None:
    """An expression of Grafana names the gauge of the metric whose meaning stands beside it."""
    for words, query in list_queries():
        found, name = SELECTOR.search(query.expression), MEANT.get(query.about)
        if found is not None and name in NUMBERS:
            gauges = {split.name(of, "USD") for split in SPLITS for of in split.metrics if of.name == name}
            gauges |= {name_gauge(of, "USD", ("job",), WHOLE) for of in OF_WHOLE_JOBS if of.name == name}
            assert found[1] in gauges, (words, query)
