"""Backups of a server by its schedule, as a source among others: when the newest was made, and why there is none of now."""

from collections.abc import Callable, Mapping
from typing import Final

from loadfactor.collect.polling import PolledSource
from loadfactor.settings.server import BackupSettings
from loadfactor.store.source_status import SourceStatus

LOOK_EVERY_S: Final = 300.0
"""So often it looks whether a backup is due, or tries again."""


class ScheduledBackups(PolledSource):
    """Makes backups as they are due."""

    def __init__(
        self, backup: BackupSettings, back_up: Callable[[BackupSettings], int], before: Mapping[str, SourceStatus]
    ) -> None:
        """`back_up` makes one where it is due, and gives when the newest was made; it raises what hinders it."""
        super().__init__(f"backup {backup.to}", ("",), LOOK_EVERY_S, None, before)
        self._backup, self._back_up = backup, back_up

    def poll(self) -> None:
        newest_ms = self._back_up(self._backup)
        self._status[""] = self._status[""].succeed(last_ms=newest_ms)
