"""A process of a test that judges by a script and tells receivers; it may be killed at any moment and started again.

    python -m tests.insight.alerts.delivery.teller FOLDER SETTINGS STEPS

Step k of the script is judged once, in order: jobs fire and end as `list_told` says. It prints "done" when everything is told.
What failed is told again after a fiftieth of the usual time, so that a message that fails eight times costs seconds.
"""

import asyncio
import random
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import loadfactor.insight.alerts.delivery.dispatcher as dispatcher_module
import loadfactor.insight.alerts.delivery.pending as pending
from loadfactor.base.units import MS_PER_S
from loadfactor.insight.alerts.alert import Alert, Transition
from loadfactor.insight.alerts.delivery.dispatcher import make_dispatcher
from loadfactor.insight.alerts.delivery.outbox import Judged, Outbox, read_outbox
from loadfactor.insight.alerts.delivery.payloads import Links
from loadfactor.insight.alerts.delivery.pending import count_backlogs
from loadfactor.settings.alerts import AlertsTable, Receiver
from loadfactor.settings.config import read_settings

START_MS = 1_790_000_040_000
MINUTE_MS = 60_000


def fire(job: str = "j1", rule: str = "job_became_idle", minute: int = 0, **holder: str) -> Transition:
    """A job's alert that began at a minute, and fired ten minutes later."""
    start = START_MS + minute * MINUTE_MS
    by: Mapping[str, str] = {"job": job} if job else {}
    alert = Alert(
        rule, by, "warning", "idle", "firing", start, start + 10 * MINUTE_MS, None, 0.02, "share",
        ("GPU activity 2 % over the last 30 min, below 5 %",), holder=holder or {"user": "ann", "team": "red"},
    )  # fmt: skip
    return Transition(alert, start + 10 * MINUTE_MS)


def end(fired: Transition, minutes: int = 30) -> Transition:
    """The same alert so many minutes after it began."""
    alert = fired.alert
    at = alert.start_ms + minutes * MINUTE_MS
    ended = Alert(
        **{**vars(alert), "state": "resolved", "end_ms": at, "ended_because": "the condition holds no longer"}
    )
    return Transition(ended, at)


def read_receivers(*tables: Mapping[str, Any]) -> tuple[Receiver, ...]:
    """Receivers as loadfactor.toml has them."""
    return AlertsTable.model_validate({"receiver": tables}).receiver


SOONER = 50
JOBS = 12
EVERY = 7
"""A job's alert fires for so many steps, then rests for one."""


def list_told(step: int) -> tuple[list[Transition], list[Transition]]:
    """What changes at a step, and what fires after it: each job fires and ends again and again, shifted against the others."""
    changed, alive = [], []
    for job in range(JOBS):
        place = (step + job) % (EVERY + 1)
        fired = fire(f"job-{job}", minute=step - place)
        if place == 0:
            changed.append(fired)
        elif place == EVERY:
            changed.append(end(fire(f"job-{job}", minute=step - EVERY), EVERY))
        if place != EVERY:
            alive.append(fired)
    return changed, alive


def list_keys(steps: int) -> list[str]:
    """The keys of all transitions of a run, in order: what ends was told before."""
    told: set[str] = set()
    keys = []
    for step in range(steps):
        changed, alive = list_told(step)
        for transition in (*changed, *alive):
            alert = transition.alert
            if alert.state == "firing" and alert.fingerprint not in told:
                told.add(alert.fingerprint)
                keys.append(transition.key)
            elif alert.state == "resolved" and alert.fingerprint in told:
                keys.append(transition.key)
    return keys


async def tell(folder: Path, settings_file: Path, steps: int) -> None:
    """Go on where the outbox says, until every step is judged and every receiver was told."""
    table = read_settings(settings_file).alerts
    with closing(Outbox(folder)) as outbox:
        outbox.begin(table.receiver, int(time.time() * MS_PER_S))
        dispatchers = [make_dispatcher(receiver, outbox, {}, Links("http://here"), None) for receiver in table.receiver]
        _running = [asyncio.create_task(dispatcher.run()) for dispatcher in dispatchers]
        state = outbox.read_state() or {"step": 0}
        for step in range(state["step"], steps):
            changed, alive = list_told(step)
            judged = Judged(START_MS + step * MINUTE_MS, {"step": step + 1}, [t.alert for t in alive])
            outbox.keep(judged, changed, table.receiver, int(time.time() * MS_PER_S))
            for dispatcher in dispatchers:
                dispatcher.woken.set()
            await asyncio.sleep(random.uniform(0, 0.05))
        while True:
            with read_outbox(folder) as connection:
                assert connection is not None
                backlogs = count_backlogs(connection)
            if not any(one.pending for one in backlogs.values()):
                break
            await asyncio.sleep(0.1)
        print("done", flush=True)
        await asyncio.sleep(3600)


if __name__ == "__main__":
    vars(pending)["FIRST_WAIT_S"] /= SOONER
    vars(dispatcher_module)["LOOK_EVERY_S"] /= SOONER
    asyncio.run(tell(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))
