"""Two importers and a reader at one bucket, killed again and again: every acknowledged import is there once, no question fails."""

import random
import time
from collections import Counter
from pathlib import Path

from tests.object_stores.conftest import ROUNDS
from tests.object_stores.importers import Importer, count_imports
from tests.waiting import wait_until

IMPORTERS = 2


def test_kills_lose_and_repeat_nothing(prefix: str, tmp_path: Path) -> None:
    """In each round both import what they can until one is killed; what they acknowledged counts once, and nothing counts twice."""
    url, rnd = f"{prefix}/rounds", random.Random(1)
    acknowledged: set[str] = set()
    with Importer("reader", url, tmp_path) as reader:
        for round_ in range(ROUNDS):
            both = [Importer(f"{round_}-{number}", url, tmp_path) for number in range(IMPORTERS)]
            try:
                wait_until(lambda: any(one.list_done() for one in both))  # noqa: B023 (called at once)
                time.sleep(rnd.uniform(0, 0.4))  # somewhere in the next imports
                rnd.choice(both).kill()
            finally:
                for one in both:
                    one.end()
            acknowledged.update(name for one in both for name in one.list_done())
        assert reader.is_running(), reader.said()
        read = len(reader.list_done())
    found = Counter(count_imports(url))
    assert set(found.values()) == {1}
    assert acknowledged <= set(found)
    begun = len(found) - len(acknowledged)
    print(
        f"{url}: {ROUNDS} kills, {len(acknowledged)} imports acknowledged, {begun} more published; asked {read} times"
    )
    assert begun <= ROUNDS * IMPORTERS
    assert read > ROUNDS
