"""SIGHUP: a running server takes what it can of a changed configuration, and says in one line what waits for its next start."""

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext
from typing import Protocol

from loadfactor.base.errors import InputError, LoadfactorError, say_why
from loadfactor.collect.live import LiveService
from loadfactor.interfaces.server.alert_service import AlertService
from loadfactor.interfaces.server.digest_service import DigestService
from loadfactor.interfaces.server.log import write_line
from loadfactor.settings.config import CHOSEN, Settings, settings
from loadfactor.settings.reload import Changes, compare, digest_settings
from loadfactor.store.source_status import write_running


class Kept(Protocol):
    """What a server keeps current, by its settings."""

    service: LiveService
    alerts: AlertService
    digests: DigestService


class Reload:
    """The configuration that a server runs by. `check_access` raises InputError where nobody would check who asks."""

    def __init__(
        self,
        folder: Path,
        found: Settings,
        kept: Kept,
        check_access: Callable[[Settings], object],
        take_access: Callable[[Settings], object],
    ) -> None:
        """`check_access` and `take_access`: of who may ask."""
        self._folder, self._kept = folder, kept
        self._check_access, self._take_access = check_access, take_access
        self._tls = found.server.tls_cert, found.server.tls_key
        self._running = digest_settings(found)
        self._keep()

    def watch(self, tls: SSLContext | None) -> None:
        """Reload at each SIGHUP, on the running event loop. `tls`: what connections are encrypted by."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, partial(self.take, tls))

    def take(self, tls: SSLContext | None) -> None:
        """Take the configuration as it is in its file now, whole or, where something of it is wrong, not at all."""
        try:
            found = CHOSEN.read()
            self._check_access(found)
            check_certificate(*self._tls)
            alerts = self._kept.alerts.read(found)
            self._kept.digests.take(found)
            self._kept.service.take(found)
        except (LoadfactorError, OSError) as error:
            why = say_why(error) if isinstance(error, OSError) else str(error)
            write_line(level="error", event="the configuration is not taken", error=why)
            return
        certificate, key = self._tls
        if tls is not None and certificate is not None:
            tls.load_cert_chain(certificate, key)  # new connections have it
        self._kept.alerts.take(alerts)
        self._take_access(found)
        settings.cache_clear()
        with suppress(LoadfactorError):  # it was written again meanwhile: the next look takes it
            settings()
        now = digest_settings(found)
        changes = compare(self._running, now)
        self._running = now | {name: self._running[name] for name in changes.at_start}
        self._keep()
        level = "warning" if changes.at_start else "info"
        write_line(level=level, event="the configuration was read again", **describe(changes))

    def _keep(self) -> None:
        with suppress(OSError):
            write_running(self._folder, self._running)


def check_certificate(certificate: Path | None, key: Path | None) -> None:
    """Raise InputError where the files are no certificate and its key: what connections have would be half replaced by them."""
    if certificate is not None:
        try:
            SSLContext(PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
        except OSError as error:
            files = f"{certificate} and {key}" if key else f"{certificate}"
            raise InputError(
                f"{files} are no certificate with its key ({say_why(error)}); the one of before is served until they are"
            ) from error


def describe(changes: Changes) -> dict[str, object]:
    """Changes as fields of a line of the log."""
    return {"taken": list(changes.taken), "at_next_start": list(changes.at_start)}
