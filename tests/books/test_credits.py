"""Credits that providers owe for outages: by hand, and beside a count of half hours of each GPU, in every kind of file."""

import csv
import json
import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from openpyxl import load_workbook
from pypdf import PdfReader
from tests.books.conftest import Write
from tests.commands import Run
from tests.long import rest_long

from loadfactor.base.errors import InputError
from loadfactor.books.books import Books
from loadfactor.settings.config import settings

CONTRACT = """
[[sla]]
provider = "Cloud A"
contract = "C-1"
pool = ["h*"]
availability = 0.995
exclude = ["maintenance*"]
credit = [{ below = 0.99, credit = 0.25 }, { below = 0.995, credit = 0.1 }]
[[sla.maintenance]]
from = 2026-10-05T00:00:00Z
to = 2026-10-05T06:00:00Z
[[sla]]
provider = "Cloud B"
availability = 0.99
per = "all"
credit = [{ below = 0.99, credit = 0.5 }]
"""
OUTAGES = """device_id,node,from_utc,to_utc,reason
,n1,2026-10-05T00:00Z,2026-10-06T00:00Z,failed
,n1,2026-10-05T12:00Z,2026-10-06T12:00Z,switch failed
g2,,2026-10-10T00:00Z,2026-10-10T05:00Z,Maintenance of disks
g3,,2026-10-11T00:00Z,2026-10-11T10:00Z,failed
,n3,2026-10-20T00:00Z,2026-10-20T07:26:24Z,
,n4,2026-10-22T00:00Z,2026-10-22T02:00Z,failed
"""


def fill(folder: Path, **tables: str) -> Books:
    """Four nodes of two GPUs at $2 over October, the last in a pool of its own; a job holds a GPU for two hours of its outage."""
    (folder / "tables").mkdir()
    rows = "".join(
        f"g{gpu},n{1 + gpu // 2},{'other' if gpu > 5 else 'h100'},2026-10-01T00:00Z,2026-11-01T00:00Z\n"
        for gpu in range(8)
    )
    files = {
        "devices": "device_id,node,pool,from_utc,to_utc\n" + rows,
        "prices": "basis,price_per_gpu_hour\ncontracted,2\n",
        "allocations": "job_id,device_id,from_utc,to_utc\nj,g3,2026-10-11T02:00Z,2026-10-11T04:00Z\n",
        "outages": OUTAGES,
    } | tables
    for name, text in files.items():
        (folder / "tables" / f"{name}.csv").write_text(text)
    books = Books(folder / "books")
    books.add("tables", [folder / "tables"])
    return books


def test_what_is_owed_by_hand(tmp_path: Path, write: Write) -> None:
    """Each node has 1,488 GPU-hours at $2: what is left of an outage after overlaps, maintenance and jobs is what counts.

    n1 36 hours × 2 less 6 × 2 that were announced; n2 8 of 10 hours of one GPU; n3 1 % of the month: not below 99 %.
    """
    write(CONTRACT)
    found = fill(tmp_path).credits()
    first, second = found.claims
    assert (found.month, found.basis, found.is_complete) == ("2026-10", "contracted", True)
    lines = {line.node: (line.counted_gpu_hours, line.availability, line.credit) for line in first.lines}
    assert lines == {
        "n1": (pytest.approx(60), Decimal("0.959677419"), Decimal("744.00")),
        "n2": (pytest.approx(8), Decimal("0.994623656"), Decimal("297.60")),
        "n3": (pytest.approx(14.88), Decimal("0.990000000"), Decimal("297.60")),
    }
    (whole,) = second.lines  # n4 alone: a GPU belongs to the first contract that covers it
    assert (whole.node, whole.counted_gpu_hours, whole.credit) == ("all", pytest.approx(4), Decimal("0.00"))
    assert (first.credit, found.credit) == (Decimal("1339.20"), Decimal("1339.20"))
    assert {line.node: line.unknown_gpu_hours for line in first.lines}["n1"] == pytest.approx(1488 - 72)
    proof = [(of.node, of.devices, of.start.day, of.gpu_hours, of.reasons, of.left_out) for of in first.outages]
    assert (
        "n1",
        ("g0", "g1"),
        5,
        pytest.approx(24),
        ("failed", "switch failed"),
        "",
    ) in proof  # noon to midnight, once
    assert ("n1", ("g0", "g1"), 5, pytest.approx(12), ("failed",), "announced maintenance") in proof
    assert ("n2", ("g2",), 10, pytest.approx(5), ("Maintenance of disks",), "its reason is excluded") in proof
    assert ("n2", ("g3",), 11, pytest.approx(2), ("failed",), "held or at work") in proof
    assert {of.sources for of in first.outages} == {("tables, import 1",)}


def test_the_statement_is_the_same_in_every_file(tmp_path: Path, write: Write, run: Run) -> None:
    """JSON, CSV, a spreadsheet with numbers, PDF, HTML and the terminal state one amount, and the page of one contract its own."""
    write(CONTRACT)
    fill(tmp_path)
    words = ("bill", "credits", "--store", tmp_path / "books", "--month", "2026-10")
    code, out, error = run(*words)
    assert (code, error) == (0, "")
    assert "Cloud A owes 1,339.20 USD of 2026-10, for 3 nodes of 3." in out
    assert json.loads(run(*words, "--json")[1])["credit"] == "1339.20"
    for kind in ("csv", "xlsx", "pdf", "html"):
        assert run(*words, "--sla", "Cloud A", "--output", tmp_path / f"c.{kind}")[0] == 0
    with (tmp_path / "c.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["owed, USD"] for row in rows] == ["744.00", "297.60", "297.60", "1339.20"]
    sheets = load_workbook(tmp_path / "c.xlsx")
    assert 1339.2 in [cell for sheet in sheets for row in sheet.values for cell in row]
    text = " ".join(page.extract_text() for page in PdfReader(tmp_path / "c.pdf").pages)
    for of in (text, (tmp_path / "c.html").read_text()):
        assert "1,339.20" in of
        assert "Cloud B" not in of
    assert "no contract called" in run(*words, "--sla", "Cloud C")[2]


def test_contracts_that_cannot_be_are_one_line(tmp_path: Path, write: Write) -> None:
    """Without a contract, with steps that fall, with a step above what was promised, and twice of one name."""
    books = fill(tmp_path)
    write("")
    with pytest.raises(InputError, match=r"\[\[sla\]\] with provider"):
        books.credits()
    for text, said in (
        ("credit = [{ below = 0.99, credit = 0.1 }, { below = 0.9, credit = 0.1 }]", "larger credit"),
        ("credit = [{ below = 0.999, credit = 0.1 }]", "0.99 is promised"),
        ("credit = [{ below = 0.9, credit = 0.1 }]\n[[sla]]\nprovider='x'\navailability=1\ncredit=[]", "sla"),
    ):
        write(f'[[sla]]\nprovider = "x"\navailability = 0.99\n{text}\n')
        with pytest.raises(InputError, match=said):
            settings()


# -- beside a count of half hours ----------------------------------------------------------------------------------

STEP = timedelta(minutes=30)
BEGIN = datetime(2026, 9, 29, tzinfo=UTC)
STEPS = 48 * 35
REASONS = ("failed", "drained: ours", "maintenance", "")
STEPS_OWED = ((Fraction(99, 100), Fraction(1, 10)), (Fraction(95, 100), Fraction(1, 4)), (Fraction(9, 10), Fraction(1)))


class Month:
    """A drawn fleet on a grid of half hours: presence, holders and outages of each GPU, and contracts."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.zone = ZoneInfo(draw.choice(["UTC", "Europe/Berlin", "Asia/Kolkata"]))
        self.end = draw.choice([STEPS, STEPS, 48 * 20])
        self.gpus: dict[str, tuple[str, int, int]] = {}
        self.held: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self.outages: list[tuple[str, str, int, int, str]] = []
        for number in range(14):
            node = f"n{number}"
            for gpu in range(draw.randint(1, 3)):
                first = 0 if number == 0 or draw.random() < 0.7 else draw.randrange(self.end // 2)
                last = self.end if number == 0 or draw.random() < 0.7 else draw.randrange(first + 1, self.end)
                name = f"{node}-g{gpu}"
                self.gpus[name] = (node, first, last)
                at = first + draw.randrange(200)
                while at < last:
                    until = min(last, at + draw.randint(1, 150))
                    self.held[name].append((at, until))
                    at = until + draw.randint(1, 200)
                if draw.random() < 0.4:
                    self.outages.append((name, "", *self._span(draw), draw.choice(REASONS)))
            for _ in range(draw.randint(0, 4)):
                self.outages.append(("", node, *self._span(draw), draw.choice(REASONS)))
        self.outages = list({of[:3]: of for of in self.outages}.values())
        self.maintenance = [(draw.choice(["n*", "n1*", "n3"]), *self._span(draw)) for _ in range(3)]
        self.least = draw.choice([0, 3])

    def _span(self, draw: random.Random) -> tuple[int, int]:
        since = draw.randrange(self.end - 1)
        return since, min(self.end, since + draw.choice([1, 2, 5, 20, 200]))

    @property
    def settings(self) -> str:
        """Two contracts: nodes n1*, each by itself, and all the others together."""
        closed = "".join(
            f'[[sla.maintenance]]\nnode = ["{node}"]\nfrom = {write_at(since)}\nto = {write_at(until)}\n'
            for node, since, until in self.maintenance
        )
        steps = ", ".join(f"{{ below = {float(below)}, credit = {float(share)} }}" for below, share in STEPS_OWED)
        least = f"{30 * self.least}min" if self.least else "0s"
        rest = f'availability = 0.99\nexclude = ["main*"]\nleast_outage = "{least}"\ncredit = [{steps}]\n'
        own = rest.replace('exclude = ["main*"]', 'reasons = ["fail*", "main*"]').replace("90min", "91min")
        return (
            f'[[sla]]\nprovider = "one"\nnode = ["n1*"]\n{own}{closed}'
            f'[[sla]]\nprovider = "all"\nper = "all"\n{rest}{closed}'
        )

    def write(self, folder: Path) -> None:
        """Write it as tables."""
        folder.mkdir()
        lines = {
            "devices": ["device_id,node,from_utc,to_utc"]
            + [f"{gpu},{node},{write_at(a)},{write_at(b)}" for gpu, (node, a, b) in self.gpus.items()],
            "allocations": ["job_id,device_id,from_utc,to_utc"]
            + [f"{gpu}-{a},{gpu},{write_at(a)},{write_at(b)}" for gpu, of in self.held.items() for a, b in of],
            "outages": ["device_id,node,from_utc,to_utc,reason"]
            + [f"{gpu},{node},{write_at(a)},{write_at(b)},{why}" for gpu, node, a, b, why in self.outages],
            "prices": ["basis,price_per_gpu_hour", "contracted,2.5"],
        }
        for name, of in lines.items():
            (folder / f"{name}.csv").write_text("\n".join(of) + "\n")

    def count(self) -> dict[str, dict[str, tuple[Fraction, Fraction, Decimal]]]:
        """By contract and line: counted GPU-hours, GPU-hours of the month, and what is owed, half hour by half hour."""
        start = round((datetime(2026, 10, 1, tzinfo=self.zone) - BEGIN) / STEP)
        after = round((datetime(2026, 11, 1, tzinfo=self.zone) - BEGIN) / STEP)
        hours: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
        for gpu, (node, first, last) in self.gpus.items():
            sla, line = ("one", node) if node.startswith("n1") else ("all", "all")
            counts = []
            for at in range(start, after):
                outside = at >= self.end and last == self.end
                there = first <= at < last
                hours[sla, line][1] += there or outside
                hours[sla, line][2] += there
                counts.append(there and self._counts(sla, gpu, node, at))
            least = {"one": 4, "all": 3}[sla] if self.least else 0  # 91 minutes are more than three half hours
            hours[sla, line][0] += sum(length for length in find_runs(counts) if length >= least)
        found: dict[str, dict[str, tuple[Fraction, Fraction, Decimal]]] = {"one": {}, "all": {}}
        for (sla, line), (counted, month, installed) in hours.items():
            if installed:
                share = max(
                    (of for below, of in STEPS_OWED if 1 - Fraction(counted, month) < below), default=Fraction(0)
                )
                cents = round(share * Fraction(installed, 2) * Fraction(5, 2) * 100)
                found[sla][line] = Fraction(counted, 2), Fraction(month, 2), Decimal(cents).scaleb(-2)
        return found

    def _counts(self, sla: str, gpu: str, node: str, at: int) -> bool:
        reasons = {why for of, on, a, b, why in self.outages if (of == gpu or on == node) and a <= at < b}
        if not reasons or any(a <= at < b for a, b in self.held[gpu]):
            return False
        if any(
            a <= at < b and (name in ("n*", node) or (name == "n1*" and node[:2] == "n1"))
            for name, a, b in self.maintenance
        ):
            return False
        return bool(reasons & {"failed", "maintenance"}) if sla == "one" else "maintenance" not in reasons


def find_runs(flags: list[bool]) -> list[int]:
    """Lengths of runs of what is true."""
    return [len(run) for run in "".join("x" if flag else " " for flag in flags).split()]


def write_at(step: int) -> str:
    """The instant of a step."""
    return f"{BEGIN + step * STEP:%Y-%m-%dT%H:%M:00Z}"


@pytest.mark.parametrize("seed", rest_long(range(12)))
def test_random_months_are_as_a_count_of_half_hours_says(tmp_path: Path, write: Write, seed: int) -> None:
    """Outages that overlap, of GPUs and nodes, held, announced, excluded, short, in zones, where the books end early."""
    month = Month(seed)
    write(month.settings)
    month.write(tmp_path / "tables")
    books = Books(tmp_path / "books")
    books.add("tables", [tmp_path / "tables"])
    found = books.credits("2026-10", month.zone)
    expected = month.count()
    assert any(hours for of in expected.values() for hours, _, _ in of.values())
    for claim in found.claims:
        lines = {
            line.node: (pytest.approx(line.counted_gpu_hours), pytest.approx(line.gpu_hours), line.credit)
            for line in claim.lines
        }
        assert lines == {of: tuple(map(_as_number, values)) for of, values in expected[claim.sla].items()}
        proven = sum(of.gpu_hours for of in claim.outages if not of.left_out)
        assert proven == pytest.approx(float(sum(hours for hours, _, _ in expected[claim.sla].values())))
    assert found.credit == sum(owed for of in expected.values() for _, _, owed in of.values())


def _as_number(value: Fraction | Decimal) -> float | Decimal:
    return value if isinstance(value, Decimal) else float(value)
