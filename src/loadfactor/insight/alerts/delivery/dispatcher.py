"""A dispatcher: notifies one receiver of what is pending, again where that did not work, and waits for no other receiver."""

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, Protocol, TypeVar

from loadfactor.base.clock import now_ms
from loadfactor.base.defects import DEFECTS
from loadfactor.base.health import Trouble
from loadfactor.base.units import MS_PER_S
from loadfactor.collect.http_fetch import RequestPool
from loadfactor.insight.alerts.delivery import pending as deliveries
from loadfactor.insight.alerts.delivery.outbox import Outbox
from loadfactor.insight.alerts.delivery.payloads import (
    Links,
    pack_alertmanager,
    pack_slack,
    pack_teams,
    pack_webhook,
    write_email,
)
from loadfactor.insight.alerts.delivery.pending import Pending, wait_ms
from loadfactor.insight.alerts.delivery.sending import DeliveryError, Sender, send_email
from loadfactor.insight.alerts.rule import Rule
from loadfactor.settings.alerts import (
    AlertmanagerReceiver,
    AlertReceiver,
    EmailReceiver,
    SlackReceiver,
    TeamsReceiver,
    WebhookReceiver,
)

LOOK_EVERY_S: Final = 2.0
"""So often it looks for silences that began or ended, and for what is due again."""
VALID_RESENDS: Final = 4
"""An alert is valid at an Alertmanager until so many times of sending it again were left out, as with Prometheus."""
AGAIN_S: Final = 10.0
"""After so long an Alertmanager that did not answer hears again what fires."""
MOST_ALERTS: Final = 500
"""Alerts in one request to an Alertmanager."""

FoundT = TypeVar("FoundT")


class Channel(Protocol):
    """How a receiver is notified. `takes_all`: it is sent everything that is due at once, not one batch."""

    takes_all: bool

    async def send(self, pending: Sequence[Pending]) -> None:
        """Send these. Raises DeliveryError where it did not work."""
        ...


class Dispatcher:
    """Notifies one receiver, on an event loop."""

    def __init__(self, receiver: AlertReceiver, outbox: Outbox, channel: Channel) -> None:
        self.name = receiver.label
        self._receiver, self._outbox, self._channel = receiver, outbox, channel
        self._threads = ThreadPoolExecutor(
            1, f"notify {self.name}"
        )  # of its own: a disk or server that hangs holds up nobody else
        self.trouble = Trouble()
        """Why the last thing did not work."""
        self.woken = asyncio.Event()

    async def run(self) -> None:
        """Send what is pending until cancelled; nothing that goes wrong ends it."""
        try:
            while True:
                self.woken.clear()
                try:
                    if await self._send_next():
                        continue
                    if isinstance(self._channel, AlertmanagerChannel) and await self._channel.remind(self._outbox):
                        self.trouble.note("")
                except Exception as error:  # a defect of ours must not keep others from being notified
                    self.trouble.note(DEFECTS.explain(f"receiver {self.name}", error))
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.woken.wait(), LOOK_EVERY_S)
        finally:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _send_next(self) -> bool:
        takes_all = self._channel.takes_all
        pending = await self._do(lambda: deliveries.take(self._outbox, self.name, now_ms(), takes_all))
        if not pending:
            return False
        try:
            await self._channel.send(pending)
        except DeliveryError as error:
            why, is_final = str(error), error.is_final
            self.trouble.note(why)
            await self._do(lambda: self._put_off(pending, why, is_final))
        else:
            self.trouble.note("")
            await self._do(lambda: deliveries.settle(self._outbox, self.name, pending, now_ms()))
        return True

    def _put_off(self, pending: Sequence[Pending], why: str, is_final: bool) -> None:
        """Try these again later, or never where it is to no avail or took too long."""
        if is_final:
            deliveries.refuse(self._outbox, self.name, pending, why)
            return
        now, longest_ms = now_ms(), self._receiver.give_up_after.s * MS_PER_S
        over = [item for item in pending if now - item.since_ms > longest_ms]
        deliveries.give_up(self._outbox, self.name, over, why, now)
        left = [item for item in pending if item not in over]
        if left:
            wait = wait_ms(min(item.attempts for item in left) + 1, random.random())
            deliveries.put_off(self._outbox, self.name, left, why, now + wait)

    async def _do(self, work: Callable[[], FoundT]) -> FoundT:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


class AlertmanagerChannel:
    """An Alertmanager: it is sent states, again and again while they last."""

    takes_all = True

    def __init__(self, receiver: AlertmanagerReceiver, rules: Mapping[str, Rule], links: Links) -> None:
        self._receiver, self._rules, self._links = receiver, rules, links
        self._sender, self._pool = Sender(receiver, "/api/v2/alerts"), RequestPool()
        self._remind_s = 0.0

    async def send(self, pending: Sequence[Pending]) -> None:
        """Send the latest state of each alert."""
        await self._send([*{item.alert.fingerprint: item.alert for item in pending}.values()])

    async def remind(self, outbox: Outbox) -> bool:
        """Say what fires, once in a while: what it is not sent again ends there by itself."""
        now_s = time.monotonic()
        if now_s < self._remind_s:
            return False
        self._remind_s = now_s + min(AGAIN_S, self._receiver.resend.s)  # where it does not answer
        await self._send(await asyncio.to_thread(deliveries.list_delivered, outbox, self._receiver.label))
        self._remind_s = now_s + self._receiver.resend.s
        return True

    async def _send(self, alerts: Sequence[object]) -> None:
        valid_ms = now_ms() + round(VALID_RESENDS * self._receiver.resend.s * MS_PER_S)
        for start in range(0, len(alerts), MOST_ALERTS):
            some = alerts[start : start + MOST_ALERTS]
            body = pack_alertmanager(some, self._rules, self._links, valid_ms)  # type: ignore[arg-type]
            await self._sender.send(body, {}, self._pool)


class WebhookChannel:
    """A webhook, of our own shape or of a chat: a request a batch, which of ours is one transition, with its key."""

    takes_all = False

    def __init__(
        self, receiver: WebhookReceiver | SlackReceiver | TeamsReceiver, rules: Mapping[str, Rule], links: Links
    ) -> None:
        self._receiver, self._rules, self._links = receiver, rules, links
        self._sender, self._pool = Sender(receiver), RequestPool()

    async def send(self, pending: Sequence[Pending]) -> None:
        """Send the message of the batch, or each transition."""
        if not isinstance(self._receiver, WebhookReceiver):
            pack = pack_slack if isinstance(self._receiver, SlackReceiver) else pack_teams
            await self._sender.send(pack(pending, self._rules, self._links), {}, self._pool)
            return
        for item in pending:
            body, key = pack_webhook(item, self._rules, self._links), {"Idempotency-Key": item.key}
            await self._sender.send(body, key, self._pool)


class EmailChannel:
    """E-mail: a message a rule and judgement."""

    takes_all = False

    def __init__(self, receiver: EmailReceiver, rules: Mapping[str, Rule], links: Links, password: str | None) -> None:
        self._receiver, self._rules, self._links, self._password = receiver, rules, links, password
        self._threads = ThreadPoolExecutor(1, "e-mail")

    async def send(self, pending: Sequence[Pending]) -> None:
        """Hand the message over; smtplib waits, so a thread does."""
        mail = write_email(pending, self._rules, self._links, self._receiver, now_ms())
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._threads, send_email, mail, self._receiver, self._password)


def make_dispatcher(
    receiver: AlertReceiver, outbox: Outbox, rules: Mapping[str, Rule], links: Links, password: str | None
) -> Dispatcher:
    """The dispatcher of a receiver. `password`: that of the environment for e-mail."""
    channel: Channel
    if isinstance(receiver, AlertmanagerReceiver):
        channel = AlertmanagerChannel(receiver, rules, links)
    elif isinstance(receiver, WebhookReceiver | SlackReceiver | TeamsReceiver):
        channel = WebhookChannel(receiver, rules, links)
    else:
        assert isinstance(receiver, EmailReceiver)
        channel = EmailChannel(receiver, rules, links, password)
    return Dispatcher(receiver, outbox, channel)
