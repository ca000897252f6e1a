"""A number is the same wherever it appears: all readers of every quantity of the table, on random fleets, in two zones."""

from datetime import UTC, tzinfo
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from tests.books.conftest import Write
from tests.identities.fleets import make_fleet
from tests.identities.table import IDENTITIES, Quantity, Value
from tests.long import rest_long

ZONES = (UTC, ZoneInfo("Europe/Berlin"))
HOURS = 1e-6


def differs(quantity: Quantity, one: Value, other: Value) -> bool:
    """True where two values of a quantity are not the same."""
    if one is None or other is None or quantity.is_money:
        return one != other
    return abs(Decimal(str(one)) - Decimal(str(other))) > Decimal(str(HOURS))


@pytest.mark.parametrize("zone", ZONES, ids=str)
@pytest.mark.parametrize("seed", rest_long(range(2)))
def test_a_quantity_is_the_same_wherever_it_appears(seed: int, zone: tzinfo, tmp_path: Path, write: Write) -> None:
    """All readers of each quantity agree with its first one, money to the cent."""
    fleet = make_fleet(seed, tmp_path / "fleet", write, zone)
    found = []
    for quantity in IDENTITIES:
        values = {place: read(fleet) for place, read in quantity.readers.items()}
        place, first = next(iter(values.items()))
        for other, of_other in values.items():
            for key in {*first, *of_other}:
                if differs(quantity, first.get(key), of_other.get(key)):
                    found.append(
                        f"{quantity.name} of {key or 'all'}: {place} {first.get(key)}, {other} {of_other.get(key)}"
                    )
    assert not found, "\n".join(found)
