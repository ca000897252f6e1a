"""A process of a test that judges by a script and tells receivers; it may be killed at any moment and started again.

    python -m tests.insight.alerts.delivery.teller FOLDER SETTINGS STEPS

Step k of the script is judged once, in order: jobs fire and end as `list_told` says. It prints "done" when everything is told.
What failed is told again after a fiftieth of the usual time, so that a message that fails eight times costs seconds.
"""

import asyncio
import random
import sys
import time
from contextlib import closing
from pathlib import Path

from tests.insight.alerts.delivery.alerts_of_tests import MINUTE_MS, START_MS, end, fire

import loadfactor.insight.alerts.delivery.dispatcher as dispatcher_module
import loadfactor.insight.alerts.delivery.pending as pending
from loadfactor.base.units import MS_PER_S
from loadfactor.insight.alerts.alert import Transition
from loadfactor.insight.alerts.delivery.dispatcher import make_dispatcher
from loadfactor.insight.alerts.delivery.outbox import Judged, Outbox, read_outbox
from loadfactor.insight.alerts.delivery.payloads import Links
from loadfactor.insight.alerts.delivery.pending import count_backlogs
from loadfactor.settings.config import read_settings

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
