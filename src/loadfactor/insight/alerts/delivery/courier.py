"""A courier: tells one receiver what it is owed, again where that did not work, and waits for no other receiver."""

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, Protocol, TypeVar

from loadfactor.base.errors import LoadfactorError
from loadfactor.base.units import MS_PER_S
from loadfactor.collect.http_fetch import RequestPool
from loadfactor.insight.alerts.delivery import deliveries
from loadfactor.insight.alerts.delivery.deliveries import Owed
from loadfactor.insight.alerts.delivery.message import Links
from loadfactor.insight.alerts.delivery.outbox import Outbox
from loadfactor.insight.alerts.delivery.payloads import pack_alertmanager, pack_slack, pack_webhook, write_email
from loadfactor.insight.alerts.delivery.routing import wait_ms
from loadfactor.insight.alerts.delivery.sending import Door, NotTakenError, send_email
from loadfactor.insight.alerts.rule import Rule
from loadfactor.settings.alerts import (
    AlertmanagerReceiver,
    AlertReceiver,
    EmailReceiver,
    SlackReceiver,
    WebhookReceiver,
)

LOOK_EVERY_S: Final = 2.0
"""So often it looks for silences that began or ended, and for what is due again."""
VALID_RESENDS: Final = 4
"""An alert is valid at an Alertmanager until so many times of telling it again were left out, as with Prometheus."""
AGAIN_S: Final = 10.0
"""After so long an Alertmanager that did not answer hears again what fires."""
MOST_ALERTS: Final = 500
"""Alerts in one request to an Alertmanager."""

FoundT = TypeVar("FoundT")


def now_ms() -> int:
    """The clock."""
    return int(time.time() * MS_PER_S)


class Way(Protocol):
    """How a receiver is told. `takes_all`: it is sent everything that is due at once, not one batch."""

    takes_all: bool

    async def tell(self, owed: Sequence[Owed]) -> None:
        """Tell these. Raises NotTakenError where it did not work."""
        ...

    async def remind(self, outbox: Outbox) -> bool:
        """Say again what fires, where the receiver needs that; whether it was told. Raises NotTakenError where it was not."""
        ...


class Courier:
    """Tells one receiver, on an event loop."""

    def __init__(self, receiver: AlertReceiver, outbox: Outbox, way: Way) -> None:
        self.name = receiver.label
        self._receiver, self._outbox, self._way = receiver, outbox, way
        self._threads = ThreadPoolExecutor(
            1, f"tell {self.name}"
        )  # of its own: a disk or server that hangs holds up nobody else
        self.error = ""
        """Why the last thing did not work; empty where it did."""
        self.woken = asyncio.Event()

    async def run(self) -> None:
        """Tell what there is until cancelled; nothing that goes wrong ends it."""
        try:
            while True:
                self.woken.clear()
                try:
                    if await self._tell_next():
                        continue
                    if await self._way.remind(self._outbox):
                        self.error = ""
                except LoadfactorError as error:
                    self.error = str(error)
                except Exception as error:  # a defect of ours must not keep others from being told
                    self.error = f"{type(error).__name__}: {error}"
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.woken.wait(), LOOK_EVERY_S)
        finally:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _tell_next(self) -> bool:
        """Tell what is due; whether there was something."""
        takes_all = self._way.takes_all
        owed = await self._do(lambda: deliveries.take(self._outbox, self.name, now_ms(), takes_all))
        if not owed:
            return False
        try:
            await self._way.tell(owed)
        except NotTakenError as error:
            why, is_final = str(error), error.is_final
            self.error = why
            await self._do(lambda: self._put_off(owed, why, is_final))
        else:
            self.error = ""
            await self._do(lambda: deliveries.settle(self._outbox, self.name, owed, now_ms()))
        return True

    def _put_off(self, owed: Sequence[Owed], why: str, is_final: bool) -> None:
        """Try these again later, or never where it is to no avail or took too long."""
        now, longest_ms = now_ms(), self._receiver.give_up_after.s * MS_PER_S
        over = [one for one in owed if is_final or now - one.since_ms > longest_ms]
        deliveries.give_up(self._outbox, self.name, over, why)
        left = [one for one in owed if one not in over]
        if left:
            wait = wait_ms(min(one.attempts for one in left) + 1, random.random())
            deliveries.put_off(self._outbox, self.name, left, why, now + wait)

    async def _do(self, work: Callable[[], FoundT]) -> FoundT:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


class AlertmanagerWay:
    """An Alertmanager: it is told states, again and again while they last."""

    takes_all = True

    def __init__(self, receiver: AlertmanagerReceiver, rules: Mapping[str, Rule], links: Links) -> None:
        self._receiver, self._rules, self._links = receiver, rules, links
        self._door, self._pool = Door(receiver, "/api/v2/alerts"), RequestPool()
        self._remind_s = 0.0

    async def tell(self, owed: Sequence[Owed]) -> None:
        """Tell the latest state of each alert."""
        await self._send([*{one.alert.fingerprint: one.alert for one in owed}.values()])

    async def remind(self, outbox: Outbox) -> bool:
        """Say what fires, once in a while: what it is not told again ends there by itself."""
        now_s = time.monotonic()
        if now_s < self._remind_s:
            return False
        self._remind_s = now_s + min(AGAIN_S, self._receiver.resend.s)  # where it does not answer
        await self._send(await asyncio.to_thread(deliveries.list_told, outbox, self._receiver.label))
        self._remind_s = now_s + self._receiver.resend.s
        return True

    async def _send(self, alerts: Sequence[object]) -> None:
        valid_ms = now_ms() + round(VALID_RESENDS * self._receiver.resend.s * MS_PER_S)
        for start in range(0, len(alerts), MOST_ALERTS):
            some = alerts[start : start + MOST_ALERTS]
            body = pack_alertmanager(some, self._rules, self._links, valid_ms)  # type: ignore[arg-type]
            await self._door.send(body, {}, self._pool)


class WebhookWay:
    """A webhook of our own shape: a request a transition, with its key."""

    takes_all = False

    def __init__(self, receiver: WebhookReceiver, rules: Mapping[str, Rule], links: Links) -> None:
        self._rules, self._links = rules, links
        self._door, self._pool = Door(receiver), RequestPool()

    async def tell(self, owed: Sequence[Owed]) -> None:
        """Send the transition; a batch has one alone."""
        for one in owed:
            await self._door.send(pack_webhook(one, self._rules, self._links), {"Idempotency-Key": one.key}, self._pool)

    async def remind(self, outbox: Outbox) -> bool:  # noqa: ARG002 (the protocol's)
        """Nothing: it is told once."""
        return False


class SlackWay:
    """A Slack-compatible webhook: a message a rule and judgement."""

    takes_all = False

    def __init__(self, receiver: SlackReceiver, rules: Mapping[str, Rule], links: Links) -> None:
        self._rules, self._links = rules, links
        self._door, self._pool = Door(receiver), RequestPool()

    async def tell(self, owed: Sequence[Owed]) -> None:
        """Send the message."""
        await self._door.send(pack_slack(owed, self._rules, self._links), {}, self._pool)

    async def remind(self, outbox: Outbox) -> bool:  # noqa: ARG002 (the protocol's)
        """Nothing: it is told once."""
        return False


class EmailWay:
    """E-mail: a message a rule and judgement."""

    takes_all = False

    def __init__(self, receiver: EmailReceiver, rules: Mapping[str, Rule], links: Links, password: str | None) -> None:
        self._receiver, self._rules, self._links, self._password = receiver, rules, links, password
        self._threads = ThreadPoolExecutor(1, "e-mail")

    async def tell(self, owed: Sequence[Owed]) -> None:
        """Hand the message over; smtplib waits, so a thread does."""
        mail = write_email(owed, self._rules, self._links, self._receiver, now_ms())
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._threads, send_email, mail, self._receiver, self._password)

    async def remind(self, outbox: Outbox) -> bool:  # noqa: ARG002 (the protocol's)
        """Nothing: it is told once."""
        return False


def make_courier(
    receiver: AlertReceiver, outbox: Outbox, rules: Mapping[str, Rule], links: Links, password: str | None
) -> Courier:
    """What tells a receiver. `password`: that of the environment for e-mail."""
    way: Way
    if isinstance(receiver, AlertmanagerReceiver):
        way = AlertmanagerWay(receiver, rules, links)
    elif isinstance(receiver, WebhookReceiver):
        way = WebhookWay(receiver, rules, links)
    elif isinstance(receiver, SlackReceiver):
        way = SlackWay(receiver, rules, links)
    else:
        assert isinstance(receiver, EmailReceiver)
        way = EmailWay(receiver, rules, links, password)
    return Courier(receiver, outbox, way)
