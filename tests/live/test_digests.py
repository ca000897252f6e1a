"""A server sends each digest once, over kills around its hour, and says in GET /health what became of it."""

import os
import random
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.interfaces.digests.mail_server import receive
from tests.live.up_process import UpProcess

from loadfactor.base.units import MS_PER_DAY
from loadfactor.books.books import Books
from loadfactor.interfaces.digests.post import Post
from loadfactor.settings.config import read_settings

ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "3"))


@pytest.mark.long
def test_digests_outlast_kills(tmp_path: Path) -> None:
    """Yesterday's digest for the fleet and for each of two users comes, each of them once but for what a kill cut off."""
    now = datetime.now(UTC)
    ahead_h = 12 - now.hour  # of a zone in which it is noon: no day ends meanwhile
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(hours=now.hour - 12)
    zone = f"Etc/GMT{-ahead_h:+d}"
    start, end = (f"{at:%Y-%m-%dT%H:%MZ}" for at in (midnight - timedelta(days=1), midnight))
    tables = {
        "devices": f"device_id,from_utc,to_utc\ng0,{start},{end}\ng1,{start},{end}\n",
        "allocations": f"job_id,device_id,user,from_utc,to_utc\n1,g0,ann,{start},{end}\n2,g1,bob,{start},{end}\n",
        "samples": f"device_id,from_utc,to_utc,sm_active_share\ng0,{start},{end},0.5\ng1,{start},{end},0\n",
    }
    for name, text in tables.items():
        (tmp_path / f"{name}.csv").write_text(text)
    folder, config = tmp_path / "books", tmp_path / "loadfactor.toml"
    Books(folder).add("tables", [tmp_path / f"{name}.csv" for name in tables])
    with receive() as (mailbox, server):
        config.write_text(
            f'timezone = "{zone}"\n'
            f'[mail]\nhost = "127.0.0.1"\nport = {server.port}\ntls = "none"\nfrom = "lf@here.example"\n'
            '[[digest]]\nname = "day"\nevery = "day"\nat = "00:00"\nto = ["cto@here.example"]\n'
            '[[digest]]\nname = "own"\nevery = "day"\nat = "00:00"\nuser = "*"\nto = ["{user}@here.example"]\n'
        )
        before_ms = round(midnight.timestamp() * 1000) - MS_PER_DAY // 2
        assert Post(Books(folder), read_settings(config), lambda: before_ms).look() == []  # as if it ran the day before
        chance = random.Random(4)
        with UpProcess(folder, config=config) as up:
            for _ in range(ROUNDS):
                time.sleep(chance.uniform(0, 3))
                up.kill()
                up.start()
            health = up.wait_for_health(lambda said: said["digests"]["letters"]["sent"] >= 3)["digests"]
            assert health == {"letters": {"pending": 0, "sent": 3, "refused": 0, "given up": 0}, "error": None}
            up.kill()
            up.start()
            assert up.stop() == 0
    came = {(to, mail["Message-ID"]) for to, mail in mailbox.mails}
    assert sorted(to for to, _ in came) == [("ann@here.example",), ("bob@here.example",), ("cto@here.example",)]
    assert len(mailbox.mails) <= len(came) + ROUNDS
