"""Logs that are one JSON: Hugging Face's `trainer_state.json`, and Megatron-LM's golden values (a number a step and metric)."""

import json
from typing import Any, Final

from loadfactor.base.errors import SourceError
from loadfactor.base.units import BYTES_PER_MIB
from loadfactor.sources.base import Input
from loadfactor.sources.parsing.text_blocks import join_pieces
from loadfactor.sources.training_logs.family import read_number
from loadfactor.sources.training_logs.iteration import Attempt, Iteration, RunLog, Values
from loadfactor.sources.training_logs.sections import EVALUATION, add_pause

_LIMIT_BYTES: Final = 256 * BYTES_PER_MIB
_ITERATION_TIME: Final = "iteration-time"


def read_json_log(source: Input) -> RunLog | None:
    """The run that the JSON tells of; None where the input is no JSON of these kinds. SourceError where it is damaged."""
    text = join_pieces(source.label, source.chunks, _LIMIT_BYTES, "check that it is the right file")
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        if b'"log_history"' not in text:
            return None  # lines of JSON, or a log that begins with a brace
        raise SourceError(f"{source.label} is not JSON: {str(error).splitlines()[0]}") from None
    if not isinstance(parsed, dict):
        return None
    if isinstance(parsed.get("log_history"), list):
        return _read_trainer_state(source.label, parsed)
    if isinstance(parsed.get(_ITERATION_TIME), dict) and isinstance(parsed[_ITERATION_TIME].get("values"), dict):
        return _read_golden_values(source.label, parsed[_ITERATION_TIME])
    return None


def _read_trainer_state(where: str, state: dict[str, Any]) -> RunLog:
    """Lines of `log_history` with a loss or an evaluation, and the last, which says how long training took, of how many samples."""
    entries = [e for e in state["log_history"] if isinstance(e, dict) and _number(e.get("step")) is not None]
    ends = [e for e in entries if "train_runtime" in e]
    end = ends[-1] if ends else {}
    last = int(_number(end.get("step")) or 0)
    runtime_s, samples_per_s = _number(end.get("train_runtime")), _number(end.get("train_samples_per_second"))
    said: Values = {}
    if runtime_s and samples_per_s and last:
        said["step_samples"] = runtime_s * samples_per_s / last
    iterations: list[Iteration] = []
    for entry in entries:
        step = int(_number(entry["step"]) or 0)
        if "eval_runtime" in entry and iterations:
            add_pause(iterations[-1].pauses, EVALUATION, _number(entry["eval_runtime"]) or 0.0)
        tells_of_steps = "loss" in entry or entry is end
        if not tells_of_steps or (iterations and step <= iterations[-1].step):
            continue
        found = {
            "epoch": _number(entry.get("epoch")),
            "padded_tokens": _number(entry.get("num_input_tokens_seen")),
            "step_s": runtime_s / last if runtime_s and last else None,
        }
        iterations.append(Iteration(step, {k: v for k, v in found.items() if v is not None}, said))
    total = _number(end.get("total_flos")) or _number(state.get("total_flos"))
    for one in iterations if total else ():
        one.values["flops"] = total * one.step / iterations[-1].step if total else 0.0  # the state keeps the sum alone
    return RunLog(where, "trainer_state.json", [Attempt(iterations, 0)] if iterations else [])


def _read_golden_values(where: str, times: dict[str, Any]) -> RunLog:
    """Seconds of an iteration at some of the steps; they stand for the steps since the one before."""
    steps = sorted((int(step), number) for step, number in times["values"].items() if step.isdigit())
    iterations = [
        Iteration(step, {} if (seconds := _number(number)) is None else {"step_s": seconds}, {})
        for step, number in steps
        if step > 0
    ]
    return RunLog(where, "Megatron golden values", [Attempt(iterations, 0)] if iterations else [])


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    number = read_number(str(value))
    return number if number is not None and number >= 0 else None
