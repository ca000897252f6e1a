"""Work that was lost: steps done again after a restart from an earlier checkpoint, and steps that changed nothing."""

from loadfactor.sources.training_logs.intervals import StepInterval

RESTART, SKIPPED = "restart", "loss_scale"


def mark_redone(attempts: list[list[StepInterval]]) -> list[StepInterval]:
    """All intervals of a run, those before a restart lost from the step on that the restart began with; one may be cut in two."""
    run: list[StepInterval] = []
    for attempt in attempts:
        if attempt:
            _lose_after(run, attempt[0].first)
            run += attempt
    return run


def _lose_after(run: list[StepInterval], step: int) -> None:
    place = len(run)
    while place and (run[place - 1].cause or run[place - 1].last > step):
        place -= 1
        one = run[place]
        if one.cause:
            continue
        if one.first < step:
            run[place : place + 1] = split_interval(one, step)
            run[place + 1].cause = RESTART
        else:
            one.cause = RESTART


def split_interval(one: StepInterval, step: int) -> tuple[StepInterval, StepInterval]:
    """The interval before a step and after it, amounts and time by steps."""
    share = (step - one.first) / (one.last - one.first)
    at_ms = one.from_ms + share * (one.to_ms - one.from_ms)

    def part(amounts: dict[str, float], of: float) -> dict[str, float]:
        return {unit: amount * of for unit, amount in amounts.items()}

    return (
        StepInterval(one.from_ms, at_ms, one.first, step, part(one.amounts, share), part(one.lost, share)),
        StepInterval(at_ms, one.to_ms, step, one.last, part(one.amounts, 1 - share), part(one.lost, 1 - share)),
    )
