"""Bills in a store: deliveries replace, sub accounts stand beside one another, forgetting brings back, and nothing counts twice."""

import csv
from decimal import Decimal
from pathlib import Path

import pytest

from loadfactor.base.errors import SourceError
from loadfactor.books.books import Books
from loadfactor.sources.base import ReadOptions
from loadfactor.store.deliveries import Delivery

SEPTEMBER, OCTOBER = "2024-09-01T00:00:00Z", "2024-10-01T00:00:00Z"
DAY = 86_400_000


def row(cost: str, sub: str = "a", start: str = SEPTEMBER, **more: str) -> dict[str, str]:
    """A row of a FOCUS bill."""
    months = {SEPTEMBER: OCTOBER, OCTOBER: "2024-11-01T00:00:00Z"}
    return {
        "ProviderName": "AWS",
        "BillingAccountId": "1",
        "SubAccountId": sub,
        "BillingCurrency": "USD",
        "BillingPeriodStart": start,
        "BillingPeriodEnd": months.get(start, "2024-10-15T00:00:00Z"),
        "ChargePeriodStart": start,
        "BilledCost": cost,
        "EffectiveCost": cost,
        "Tags": "",
    } | more


def add(books: Books, name: str, *rows: dict[str, str]) -> list[str]:
    """Import these rows as a bill; what was said."""
    path = books.store.folder.parent / f"{name}.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return [gap.what for gap in books.add("focus", [path]).gaps if gap.where == "charges"]


def total(books: Books, where: str = "true") -> Decimal:
    """The BilledCost of the books."""
    with books.store.read() as session:
        session.view_table("charges", "charges")
        return session.fetch_one(f"SELECT coalesce(sum(BilledCost), 0) FROM charges WHERE {where}")[0]


@pytest.fixture
def books(tmp_path: Path) -> Books:
    return Books.open(tmp_path / "store", create=True)


def test_a_later_delivery_of_a_period_replaces_and_says_so(books: Books) -> None:
    """The month grows and is corrected: the last one counts, the month beside it stays."""
    add(books, "one", row("1.10"), row("5", start=OCTOBER))
    said = add(books, "two", row("2.20"), row("0.30"))
    assert said == ["import 1 brought 2024-09-01 to 2024-10-01 before: its rows are replaced"]
    assert total(books) == Decimal("7.50")
    books.compact()
    assert total(books) == Decimal("7.50")


def test_forgetting_brings_back_what_was_replaced(books: Books) -> None:
    """As if the import had never been; without any import there are no charges."""
    add(books, "one", row("1"))
    add(books, "two", row("2"))
    add(books, "three", row("4"))
    books.forget(2)
    assert total(books) == Decimal(4)
    books.forget(3)
    assert total(books) == Decimal(1)
    books.forget(1)
    assert total(books) == Decimal(0)


def test_the_same_file_twice_is_one_import(books: Books) -> None:
    """Nothing is added, and the receipt says that it is there."""
    add(books, "one", row("1"))
    again = books.add("focus", [books.store.folder.parent / "one.csv"])
    assert again.already
    assert total(books) == Decimal(1)


def test_exports_of_two_sub_accounts_add(books: Books) -> None:
    """Each replaces its own rows alone, also those that came in an export of several."""
    add(books, "a", row("1", "a"))
    assert add(books, "b", row("2", "b")) == []
    assert total(books) == Decimal(3)
    add(books, "a2", row("10", "a"))
    assert total(books) == Decimal(12)
    add(books, "both", row("5", "a"), row("7", "b"))
    assert total(books) == Decimal(12)
    said = add(books, "b2", row("100", "b"))
    assert total(books) == Decimal(105)
    assert said == ["import 4 brought 2024-09-01 to 2024-10-01 before: its rows are replaced"]
    books.forget(5)
    assert total(books) == Decimal(12)


def test_a_sub_account_that_a_delivery_no_longer_has_is_said(books: Books) -> None:
    """An account's export replaces whole; whose rows went without being named is told."""
    add(books, "one", row("1", "a"), row("2", "b"), row("4", "c"))
    said = add(books, "two", row("10", "a"), row("20", "b"))
    assert total(books) == Decimal(30)
    assert said[1] == "rows of sub account c of import 1 are replaced, and this bill has none of them"


def test_a_bill_without_sub_accounts_and_one_with_them_do_not_add(books: Books) -> None:
    """One that names none may be of any."""
    add(books, "one", row("1", ""), row("2", ""))
    add(books, "two", row("3", "a"), row("4", "b"))
    assert total(books) == Decimal(7)


def test_a_cloud_that_is_called_otherwise_is_the_same(books: Books) -> None:
    """A cost and usage report and a FOCUS export of one account and month are two deliveries of it."""
    add(books, "one", row("1"))
    add(books, "two", row("3", ProviderName="Amazon Web Services"))
    assert total(books) == Decimal(3)


def test_periods_that_overlap_are_refused(books: Books) -> None:
    """Nobody can tell which rows of half a month are in the whole one: nothing is added."""
    add(books, "one", row("1"))
    with pytest.raises(SourceError, match="rows could count twice; `loadfactor forget 1` first"):
        add(books, "two", row("1", start="2024-09-15T00:00:00Z"))
    assert total(books) == Decimal(1)


def test_two_deliveries_in_one_import_are_refused(books: Books) -> None:
    """A folder with a month, and the same month grown and corrected: nothing says which counts. Parts of a bill add up."""
    folder = books.store.folder.parent / "bills"
    folder.mkdir()
    rows = [row(f"{n}.5", ResourceId=f"i-{n}") for n in range(10)]
    for name, some in (("a", rows), ("b", [*rows[:8], row("100", ResourceId="i-8"), row("7", ResourceId="i-9")])):
        add(Books.open(folder.parent / f"store-{name}", create=True), f"bills/{name}", *some)
    with pytest.raises(SourceError, match=r"a\.csv and .*b\.csv hold mostly the same rows"):
        books.add("focus", [folder])
    assert total(books) == 0
    (folder / "b.csv").unlink()
    add(Books.open(folder.parent / "store-c", create=True), "bills/c", row("1", ResourceId="j"), rows[0])
    books.add("focus", [folder])
    assert total(books) == Decimal("51.5")


def test_a_currency_is_three_letters(books: Books) -> None:
    """What --currency says is checked before anything is read."""
    add(books, "one", row("1"))
    with pytest.raises(SourceError, match="'usd' is no currency"):
        books.add("focus", [books.store.folder.parent / "one.csv"], ReadOptions(currency="usd"))


def test_tags_say_who_pays_and_rules_of_today_can_say_otherwise(
    books: Books, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys in any case fill the columns; rules look at tags and the account; tagging anew keeps what was said."""
    monkeypatch.chdir(tmp_path)
    tags = '{"Team":"red","owner":"ann","cost-center":"42","experiment":"e1"}'
    add(books, "one", row("1", Tags=tags), row("2", "b"))
    add(books, "two", row("1", Tags=tags), row("2", "b"), row("4", "b", Tags='{"team":"blue"}'))
    assert total(books, "team = 'red' AND \"user\" = 'ann'") == Decimal(1)
    of_tag = '[[tag]]\nmatch = { "tag.cost-center" = "42" }\nteam = "green"\nexperiment = "e2"\n'
    rules = of_tag + '[[tag]]\nmatch = { account = "b" }\nproject = "p"\n'
    Path("loadfactor.toml").write_text(rules)
    assert books.retag().rows == {"charges": 5}
    assert total(books, "team = 'green' AND experiment_id = 'e2'") == Decimal(1)
    assert total(books, "project = 'p'") == Decimal(6)
    Path("loadfactor.toml").unlink()
    books.retag()
    assert total(books, "team = 'red' AND experiment_id = 'e1'") == Decimal(1)
    books.forget(2)
    assert total(books, "team = 'red'") == Decimal(1)


def test_repair_finds_what_counts_without_a_manifest(books: Books) -> None:
    """Files say what they are, and which of them count follows from them."""
    add(books, "one", row("1", "a"), row("2", "b"))
    add(books, "two", row("3", "a"))
    (books.store.folder / "manifest.json").unlink()
    books.repair()
    assert total(books) == Decimal(5)
    books.forget(2)
    assert total(books) == Decimal(3)


def test_data_sets_of_a_period_stand_beside_one_another() -> None:
    """Azure's actual and amortized exports do not replace each other; one that tells neither may be either."""

    def of(number: int, dataset: str | None) -> Delivery:
        return Delivery(number, "Microsoft", "1", 0, 30 * DAY, dataset, frozenset({"a"}))

    assert not of(2, "actual").replaces(of(1, "amortized"))
    assert of(2, "actual").replaces(of(1, None))
    assert of(2, None).replaces(of(1, "actual"))
