"""Answers that take longer than a page may: the last one with when it was made, and how far the next is."""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

from loadfactor.base.errors import LoadfactorError
from loadfactor.interfaces.document import Document
from loadfactor.interfaces.formats import duration, instant, percent
from loadfactor.interfaces.reach import RefusedError
from loadfactor.metrics.query.calendar import instant as moment


@dataclass(frozen=True)
class Standing:
    """The last answer, or the error why there is none, and of which `state` of the books.

    `share`: how far the one is that is being made.
    """

    document: Document | None = None
    refusal: LoadfactorError | RefusedError | None = None
    made_ms: int = 0
    took_s: float = 0.0
    state: Hashable = None
    is_making: bool = False
    what: str = ""
    share: float = 0.0

    @property
    def error(self) -> str:
        """Why there is no answer; empty where nothing says so."""
        return str(self.refusal or "")

    @property
    def mark(self) -> tuple[Any, ...]:
        """What a page of it depends on."""
        return self.error, self.made_ms, self.is_making, self.what, percent(self.share)


@dataclass(frozen=True)
class BeingMade:
    """That an answer is not made yet, for programs."""

    being_made: bool
    share: float


def show_standing(standing: Standing) -> Document:
    """The answer with when it was made, else that it is being made. Raises its error where it cannot be made."""
    if standing.document is not None:
        made = f"Made {instant(moment(standing.made_ms))} in {duration(standing.took_s)}."
        anew = f"Being made anew, as the books have gone on: {percent(standing.share)}." if standing.is_making else ""
        words = (standing.document.subtitle, made, anew)
        return replace(standing.document, subtitle=" ".join(filter(None, words)), is_no=False)
    if standing.refusal:
        raise standing.refusal.with_traceback(None)  # it is raised again for each reader
    far = [percent(standing.share)] if standing.share else []
    known = ", ".join([*far, *filter(None, [standing.what])])
    headline = f"The answer is being made{': ' if known else ''}{known}."
    return Document(headline, subtitle="This page looks again by itself.", data=BeingMade(True, standing.share))
