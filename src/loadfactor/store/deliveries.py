"""Deliveries of bills: what each file of charges holds, and which of two deliveries of one period replaces what of the other.

What a cloud delivers of a period replaces what it delivered before, never adds to it. A delivery is identified by provider,
account, start of the period and data set. Sub accounts are no part of that: rows of a sub account that an account's next delivery
no longer has would stay. But exports of single sub accounts (as of Azure's subscriptions) stand beside one another.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from loadfactor.base.errors import SourceError
from loadfactor.base.units import MS_PER_S
from loadfactor.sources.parsing.cells import quote
from loadfactor.store.manifest import StoredFile

_PROVIDERS: Final = {
    **dict.fromkeys(("aws", "amazon", "amazonaws", "amazonwebservices"), "aws"),
    **dict.fromkeys(("microsoft", "azure", "microsoftazure"), "microsoft"),
    **dict.fromkeys(("google", "gcp", "googlecloud", "googlecloudplatform"), "google"),
}
"""Providers that exports write in several ways."""

SubAccounts = frozenset[str | None]


@dataclass(frozen=True)
class Delivery:
    """Rows that one import brought of one period of an account. Cells as in the rows; `end` is the end of the period, ms."""

    number: int  # of the import
    provider: str | None
    account: str | None
    start: int | None
    end: int | None
    dataset: str | None
    sub_accounts: SubAccounts

    def is_of(self, other: "Delivery") -> bool:
        """Whether both are of one provider, account and data set. A file that does not say which data set it is may be either."""
        same = fold_provider(self.provider) == fold_provider(other.provider) and self.account == other.account
        return same and (self.dataset == other.dataset or None in (self.dataset, other.dataset))

    def meets(self, other: "Delivery") -> bool:
        """Whether some of their rows may be of the same sub account; one that names none may be of any."""
        both = self.sub_accounts & other.sub_accounts
        return bool(both) or {None} in (self.sub_accounts, other.sub_accounts)

    def replaces(self, other: "Delivery") -> bool:
        """Whether it counts in place of an earlier one, or, `in_part`, of some of its rows."""
        return self.number > other.number and self.is_of(other) and self.start == other.start and self.meets(other)

    def in_part(self, other: "Delivery") -> bool:
        """Whether it replaces only the rows of its one sub account, because the other is of several."""
        return len(self.sub_accounts) == 1 and None not in self.sub_accounts and len(other.sub_accounts) > 1

    def overlaps(self, other: "Delivery") -> bool:
        """Whether both are of the same days though their periods begin at different times: nobody can tell which row is which."""
        if self.start is None or self.end is None or other.start is None or other.end is None:
            return False
        both = self.start != other.start and self.start < other.end and other.start < self.end
        return both and self.is_of(other) and self.meets(other)


@dataclass(frozen=True)
class ChargeFile:
    """A file of charges: the rows of a delivery, or those of them that count or do not count any more."""

    stored: StoredFile
    delivery: Delivery  # with the sub accounts of this file alone


def fold_provider(name: str | None) -> str:
    """A provider's name without what differs between exports.

    >>> fold_provider("Amazon Web Services"), fold_provider("AWS"), fold_provider("Nebius")
    ('aws', 'aws', 'nebius')
    """
    folded = re.sub(r"[^\w]|_", "", (name or "").lower())
    return _PROVIDERS.get(folded, folded)


def find_counting(files: list[ChargeFile]) -> set[str]:
    """Names of the files whose rows no later delivery replaces."""
    whole = join_parts(files)
    return {
        f.stored.name
        for f in files
        if not any(_covers(later, f.delivery, whole[_key(f.delivery)]) for later in whole.values())
    }


def join_parts(files: list[ChargeFile]) -> dict[tuple[object, ...], Delivery]:
    """The deliveries whose rows lie in these files, each with all of its sub accounts."""
    found: dict[tuple[object, ...], Delivery] = {}
    for file in files:
        of = file.delivery
        known = found.get(_key(of), of)
        found[_key(of)] = Delivery(
            of.number, of.provider, of.account, of.start, max(of.end or 0, known.end or 0) or None, of.dataset,
            known.sub_accounts | of.sub_accounts,
        )  # fmt: skip
    return found


def check_periods(new: Delivery, files: list[ChargeFile]) -> None:
    """SourceError where a delivery is of days that another one that counts bills in a period that begins at another time."""
    counting = find_counting(files)
    for of in (f.delivery for f in files if f.stored.name in counting):
        if new.number != of.number and new.overlaps(of):
            raise SourceError(
                f"the bill of account {quote(str(new.account))} is of {name_period(new)}, of which import {of.number} holds"
                f" {name_period(of)}: rows could count twice; `loadfactor forget {of.number}` first, or export the same periods"
            )


def name_period(of: Delivery) -> str:
    """A period for messages: 2024-09-01 to 2024-10-01."""
    days = (
        datetime.fromtimestamp(ms / MS_PER_S, UTC).date().isoformat() for ms in (of.start, of.end) if ms is not None
    )
    return " to ".join(days) or "no period"


def _covers(later: Delivery, part: Delivery, whole: Delivery) -> bool:
    if not later.replaces(whole):
        return False
    return part.sub_accounts == later.sub_accounts if later.in_part(whole) else True


def _key(of: Delivery) -> tuple[object, ...]:
    return of.number, of.provider, of.account, of.start, of.dataset
