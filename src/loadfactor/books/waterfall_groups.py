"""The way from paid to useful as it is told: its steps, its causes, and the groups that it is split into."""

from dataclasses import dataclass

from loadfactor.metrics.waterfall import DROPS, LEVELS, Waterfall


@dataclass(frozen=True)
class WaterfallStep:
    """One step: a level, and what is left there, or what goes on the way to it. `cost` is None where no price is known."""

    name: str
    kind: str
    gpu_hours: float
    cost: float | None
    share_of_paid: float | None


@dataclass(frozen=True)
class LossCause:
    """A part of what went, by its cause; None where it is not known. The parts `of` one thing add up to what the steps say of it.

    `of` is lost_work, or without_math: what was held and observed and is not math, which is four steps together.
    """

    of: str
    cause: str | None
    gpu_hours: float
    cost: float | None
    share_of_paid: float | None


@dataclass(frozen=True)
class WaterfallGroup:
    """The way from paid to useful of one group: levels, losses and what is unknown, in order; `cost` is of priced hours alone.

    `steps` whose kind is loss or unknown, and the level useful, add up to paid. `causes` divide some of them further, as far as
    jobs say why; there are none of what nobody says anything of.
    """

    by: dict[str, str | None]
    gpu_hours: Waterfall
    cost: Waterfall | None
    priced_share: float | None
    causes: tuple[LossCause, ...]

    @property
    def steps(self) -> tuple[WaterfallStep, ...]:
        """Every level, and before it what went on the way to it."""
        out = []
        for level in LEVELS:
            for drop in DROPS:
                if drop.to == level:
                    amounts = (None if of is None else getattr(of, drop.name) for of in (self.gpu_hours, self.cost))
                    out.append(self._step(drop.name, "unknown" if drop.is_unknown else "loss", *amounts))
            amounts = (None if of is None else of.after(level) for of in (self.gpu_hours, self.cost))
            out.append(self._step(level, "level", *amounts))
        return tuple(out)

    def _step(self, name: str, kind: str, hours: float | None, cost: float | None) -> WaterfallStep:
        paid = self.gpu_hours.paid
        return WaterfallStep(name, kind, hours or 0.0, cost, (hours or 0.0) / paid if paid else None)


@dataclass(frozen=True)
class FleetWaterfall:
    """The way from paid to useful of everything asked for, and by group.

    `too_many_flops`: jobs whose model FLOPs are more than their activity allows; the surplus does not count.
    """

    currency: str
    basis: str
    all: WaterfallGroup
    rows: tuple[WaterfallGroup, ...]
    too_many_flops: tuple[str, ...]
