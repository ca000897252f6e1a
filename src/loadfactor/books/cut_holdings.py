"""Holdings cut into steps: who held what is attributed once, by hours, and only the stretches that are asked for are cut.

Attribution costs as much for each piece as for each stretch, so to cut all that a fleet held into minutes costs far more than to
join the pieces of one job with samples.
"""

from loadfactor.base.units import MS_PER_HOUR
from loadfactor.store.session import Session


def cut_holdings(session: Session, step_ms: int, wanted: str) -> None:
    """Cut the table `holdings` at the end of every step, a whole part of an hour; only rows of it that are wanted are left.

    `wanted`: SQL, what follows FROM holdings AS h.
    """
    steps = MS_PER_HOUR // step_ms
    session.materialize("held_whole", f"SELECT h.* FROM holdings AS h {wanted}")
    session.materialize(
        "holdings",
        f"""SELECT h.* REPLACE (greatest(h.from_utc, h.hour_utc + p.place * {step_ms}) AS from_utc,
                   least(h.to_utc, h.hour_utc + (p.place + 1) * {step_ms}) AS to_utc,
                   h.span * {steps} + p.place AS span) -- what a piece has of a stretch is a stretch of its own
            FROM held_whole AS h JOIN (SELECT unnest(range({steps})) AS place) AS p
              ON h.from_utc < h.hour_utc + (p.place + 1) * {step_ms} AND h.to_utc > h.hour_utc + p.place * {step_ms}""",
    )
