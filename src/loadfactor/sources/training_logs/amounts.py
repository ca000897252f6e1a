"""How much was done between two lines of a log, in each unit of progress: what lines say, and nothing else."""

from typing import NamedTuple

from loadfactor.base.units import FLOPS_PER_TFLOPS
from loadfactor.sources.training_logs.iteration import Iteration, Values
from loadfactor.sources.training_logs.megatron import model_share


class Counted(NamedTuple):
    """Amounts by unit of progress, and those of steps that changed nothing."""

    done: dict[str, float]
    lost: dict[str, float]


def find_seconds(before: Iteration | None, one: Iteration, steps: int) -> float | None:
    """Seconds that the steps before a line took, where it says so. A timer that shows less than before was started anew."""
    step_s, elapsed_s = one.values.get("step_s"), one.values.get("elapsed_s")
    if step_s is not None:
        return step_s * steps
    if elapsed_s is None:
        return None
    earlier = before.values.get("elapsed_s") if before else None
    return elapsed_s - earlier if earlier is not None and earlier <= elapsed_s else elapsed_s


def find_amounts(totals: Values, one: Iteration, steps: int, seconds: float) -> Counted:
    """What `steps` steps made that took so many seconds. `totals`: what earlier lines of the attempt said last."""
    said = one.said | one.values
    done = {
        "step": float(steps),
        "train_sample": _count(totals, one, steps, "samples", "step_samples"),
        "train_token": _count(totals, one, steps, "tokens", "step_tokens"),
        "padded_token": _count(totals, one, steps, "padded_tokens", ""),
        "epoch": _count(totals, one, steps, "epoch", ""),
        "model_flop": _count(totals, one, steps, "flops", ""),
    }
    if done["train_sample"] is None and "samples_per_s" in said:
        done["train_sample"] = said["samples_per_s"] * seconds
    if done["train_token"] is None:
        done["train_token"] = _find_tokens(said, done["train_sample"], seconds)
    if done["padded_token"] is None and "seq" in said and done["train_sample"] is not None:
        done["padded_token"] = done["train_sample"] * said["seq"]
    if done["model_flop"] is None:
        done["model_flop"] = _find_flops(said, seconds)
    known = {unit: amount for unit, amount in done.items() if amount}
    share = _find_skipped(totals, one, steps) / steps
    return Counted(known, {unit: amount * share for unit, amount in known.items()} if share else {})


def cap_epochs(said: Values, step: int) -> float | None:
    """Samples seen after so many steps where an epoch's last batch is smaller; None where the log does not say enough.

    >>> cap_epochs({"examples": 1000, "epochs": 1, "steps": 4, "step_samples": 256}, 3)
    768.0
    >>> cap_epochs({"examples": 1000, "epochs": 2, "steps": 8, "step_samples": 256}, 5)
    1256.0
    """
    try:
        of_epoch = said["steps"] / said["epochs"]
        whole, rest = divmod(step, of_epoch)
        return whole * said["examples"] + min(rest * said["step_samples"], said["examples"])
    except (KeyError, ZeroDivisionError):
        return None


def _count(totals: Values, one: Iteration, steps: int, total: str, of_step: str) -> float | None:
    """By the totals of this line and of the last that had one, else by what a step has."""
    now, earlier = one.values.get(total), totals.get(total)
    if now is not None and earlier is not None and now >= earlier:
        return now - earlier
    if now is not None and steps == one.step:
        return now  # since the run began
    if total == "samples":
        capped = cap_epochs(one.said, one.step), cap_epochs(one.said, one.step - steps)
        if capped[0] is not None and capped[1] is not None:
            return capped[0] - capped[1]
    each = one.values.get(of_step, one.said.get(of_step))
    return each * steps if each is not None else None


def _find_tokens(said: Values, samples: float | None, seconds: float) -> float | None:
    """Tokens by their rate; of torchtitan, whose samples are cut to one length, by the samples."""
    if "gpu_tokens_per_s" in said and "seq" in said and samples is not None:
        return samples * said["seq"]
    if "gpu_tokens_per_s" in said and "gpus" in said:
        return said["gpu_tokens_per_s"] * said["gpus"] * seconds
    return said["tokens_per_s"] * seconds if "tokens_per_s" in said else None


def _find_flops(said: Values, seconds: float) -> float | None:
    gpus, reported = said.get("gpus"), said.get("tflops")
    if reported is None and "megatron_tflops" in said:
        share = model_share(said)
        reported = said["megatron_tflops"] * share if share is not None else None
    return reported * FLOPS_PER_TFLOPS * gpus * seconds if gpus and reported is not None else None


def _find_skipped(totals: Values, one: Iteration, steps: int) -> float:
    skipped = one.values.get("skipped")
    if skipped is None and "skipped_total" in one.values:
        earlier = totals.get("skipped_total", 0.0 if steps == one.step else one.values["skipped_total"])
        skipped = one.values["skipped_total"] - earlier
    return min(max(skipped or 0.0, 0.0), float(steps))
