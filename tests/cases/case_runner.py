"""Runs a case kept as data: commands over small inputs, and the right values that a person worked out from these.

tests/cases/README.md is the format of a case. `test_cases.py` calls `run_case` for each folder.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LIMIT_S = 120.0
"""A command that takes longer has failed, if its case names no other limit."""
UNKNOWN = None
"""What a null, an absent row or path, and a refused question count as."""
COMPARISONS = ("is", "at_least", "at_most", "one_of", "same_as")
CASE_KEYS = {"title", "source", "kind", "why", "step", "value", "expect", "mended_by"}
STEP_KEYS = {"run", "says", "says_not", "exit", "seconds", "stdin"}
VALUE_KEYS = {
    *STEP_KEYS,
    *COMPARISONS,
    *("show", "step", "files", "after", "by", "where", "args", "path", "within", "share", "any_of", "all_of", "note"),
}
ENVIRONMENT = {"TZ": "UTC", "COLUMNS": "120", "NO_COLOR": "1", "LC_ALL": "C.UTF-8"}
CRASH = re.compile(r"Traceback \(most recent|an error in loadfactor itself")
RunCommand = Callable[[list[str]], tuple[int, str, str]]
"""Runs the command line in this process: exit status, standard output, standard error."""


@dataclass(frozen=True)
class Output:
    """What a command printed; `status` is None if it was stopped at its limit."""

    status: int | None
    stdout: str
    text: str
    """Both outputs, each run of white space made one blank, so that wrapped lines do not matter."""

    @property
    def has_crashed(self) -> bool:
        """True if a traceback, or the sentence that stands for one, was printed, or a signal ended the command."""
        return bool(CRASH.search(self.text)) or (self.status or 0) < 0


@dataclass(frozen=True)
class Verdict:
    """Whether an expectation holds, what was expected, and what came."""

    holds: bool
    expected: str
    came: str


def read_case(folder: Path) -> dict[str, Any]:
    """Read a `case.toml`. Raises ValueError if it has an unknown key, or expects nothing."""
    case = tomllib.loads((folder / "case.toml").read_text())
    steps = case.get("step", [])
    values = list(_flatten(case.get("value", [])))
    tables = [(case, CASE_KEYS), *((step, STEP_KEYS) for step in steps), *((value, VALUE_KEYS) for value in values)]
    for table, allowed_keys in tables:
        if unknown_keys := set(table) - allowed_keys:
            raise ValueError(f"{folder.name}: no such key: {sorted(unknown_keys)}")
    if not steps and not values:
        raise ValueError(f"{folder.name} expects nothing")
    if case.get("expect", "short") != "short" or ("expect" in case) != ("mended_by" in case):
        raise ValueError(f'{folder.name}: a case that does not hold has expect = "short" and mended_by = "an issue"')
    return case


def run_case(folder: Path, work: Path, run_command: RunCommand) -> list[str]:
    """Run a case in an empty folder and return a line for each expectation that does not hold.

    `run_command` must run in `work`. A step that has its own limit or reads standard input gets a process of its own.
    """
    return _RunningCase(folder, work, run_command).run()


@dataclass
class _RunningCase:
    """A case with what it has printed so far."""

    folder: Path
    work: Path
    run_command: RunCommand
    faults: list[str] = field(default_factory=list)
    step_outputs: list[Output] = field(default_factory=list)
    answers: dict[str, Output] = field(default_factory=dict)
    """Answers to questions by command; forgotten at each step, because it may change the books."""
    readings: dict[tuple[Any, ...], list[dict[str, Any]]] = field(default_factory=dict)
    """Rows of `show` by split, arguments and metric; forgotten at each step."""

    def run(self) -> list[str]:
        """Run all steps and judge all values."""
        case = read_case(self.folder)
        if (self.folder / "loadfactor.toml").exists():
            shutil.copy(self.folder / "loadfactor.toml", self.work)
        values = case.get("value", [])
        for number, step in enumerate(case.get("step", []), start=1):
            output = self.call(step["run"], step.get("seconds"), step.get("stdin"))
            self.step_outputs.append(output)
            self.answers.clear()
            self.readings.clear()
            self.add_verdict(_judge_words(step, output, f"step {number} `{step['run']}`"))
            self.judge_all([value for value in values if value.get("after") == number])
        self.judge_all([value for value in values if "after" not in value])
        return self.faults

    def add_verdict(self, verdict: Verdict) -> None:
        """Keep a line of what does not hold."""
        if not verdict.holds:
            self.faults.append(f"expected {verdict.expected}; came {verdict.came}")

    def call(self, command: str, limit_s: float | None = None, stdin_file: str | None = None) -> Output:
        """Run a command, or `cp FROM TO`, which is how a case puts files into the work folder."""
        words = [
            word.replace("{in}", str(self.folder)).replace("{work}", str(self.work)) for word in shlex.split(command)
        ]
        status: int | None
        if words[0] == "cp":
            status, stdout, stderr = _copy(Path(words[1]), Path(words[2]))
        elif limit_s is None and stdin_file is None:
            status, stdout, stderr = self.run_command(words)
        else:
            stdin_text = (self.folder / stdin_file).read_text() if stdin_file else ""
            status, stdout, stderr = _run_process(words, self.work, stdin_text, limit_s or LIMIT_S)
        # the name of a case is no word that the program printed
        text = f"{stdout} {stderr}".replace(str(self.folder), "{in}").replace(str(self.work), "{work}")
        output = Output(status, stdout, " ".join(text.split()))
        if output.has_crashed:
            self.faults.append(f"expected no traceback of `{command}`; came {output.text[-300:]}")
        return output

    def ask(self, command: str, limit_s: float | None = None) -> Output:
        """Answer a question, from memory if it was asked since the last step."""
        if command not in self.answers:
            self.answers[command] = self.call(command, limit_s)
        return self.answers[command]

    def judge_all(self, values: list[dict[str, Any]]) -> None:
        """Judge values; all metrics of one split are asked for by one command."""
        metrics_by_split: dict[tuple[tuple[str, ...], str], list[str]] = {}
        for value in _flatten(values):
            if "show" in value:
                metrics = metrics_by_split.setdefault(_split_of(value), [])
                metrics += [metric for metric in _metrics_of(value) if metric not in metrics]
        for (by, arguments), metrics in metrics_by_split.items():
            self.show(metrics, by, arguments)
        for value in values:
            self.add_verdict(self.judge(value))

    def show(self, metrics: list[str], by: tuple[str, ...], arguments: str) -> None:
        """Ask for metrics and keep their rows; if all together are refused, ask for each."""
        split = f"--by {','.join(by)}" if by else ""
        output = self.ask(" ".join(f"show {' '.join(metrics)} {split} --format json {arguments}".split()))
        if output.status != 0 and len(metrics) > 1:
            for metric in metrics:
                self.show([metric], by, arguments)
            return
        rows = json.loads(output.stdout) if output.status == 0 else []
        for metric in metrics:
            self.readings[by, arguments, metric] = [row for row in rows if row["metric"] == metric]

    def judge(self, value: dict[str, Any]) -> Verdict:
        """Judge one value, or several joined by `any_of` or `all_of`."""
        if "any_of" in value or "all_of" in value:
            verdict = self.judge_joined(value)
        elif "show" in value:
            where = "".join(f" [{name}={pattern}]" for name, pattern in value.get("where", {}).items())
            label = f"{value['show']}{where} {value.get('args', '')}".rstrip()
            verdict = _compare(value, [self.add_readings(value)], label)
        elif "files" in value:
            count = len(list(self.work.glob(value["files"])))
            verdict = _compare(value, [count], f"number of files {value['files']}")
        else:
            verdict = self.judge_output(value)
        note = f" ({value['note']})" if "note" in value else ""
        return Verdict(verdict.holds, verdict.expected + note, verdict.came)

    def judge_joined(self, value: dict[str, Any]) -> Verdict:
        """Judge `any_of` or `all_of`."""
        is_any = "any_of" in value
        verdicts = [self.judge(member) for member in value["any_of" if is_any else "all_of"]]
        missed = [verdict for verdict in verdicts if not verdict.holds]
        expected = (" or " if is_any else " and ").join(verdict.expected for verdict in missed)
        came = ", ".join(verdict.came for verdict in missed)
        return Verdict(len(missed) < len(verdicts) if is_any else not missed, expected, came)

    def judge_output(self, value: dict[str, Any]) -> Verdict:
        """Judge the words, the exit status or a path in the JSON of a command or an earlier step."""
        if "step" in value:
            output = self.step_outputs[value["step"] - 1]
            label = f"step {value['step']}"
        else:
            output = self.ask(value["run"], value.get("seconds"))
            label = f"`{value['run']}`"
        verdict = _judge_words(value, output, label)
        return _judge_path(value, output, label) if verdict.holds and "path" in value else verdict

    def add_readings(self, value: dict[str, Any]) -> float | None:
        """Add a metric, or several joined by +, over the rows that match `where`; unknown ones are left out."""
        by, arguments = _split_of(value)
        patterns = {name: str(pattern) for name, pattern in value.get("where", {}).items()}
        rows = [row for metric in _metrics_of(value) for row in self.readings[by, arguments, metric]]
        amounts = [
            row["value"]
            for row in rows
            if row["value"] is not None
            and all(re.fullmatch(pattern, str(row["by"].get(name))) for name, pattern in patterns.items())
        ]
        return sum(amounts) if len(amounts) > 1 else amounts[0] if amounts else UNKNOWN


def _copy(source: Path, target: Path) -> tuple[int, str, str]:
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy(source, target)
    return 0, "", ""


def _run_process(words: list[str], work: Path, stdin_text: str, limit_s: float) -> tuple[int | None, str, str]:
    """Run the command line as a process that is ended at its limit."""
    program = "import sys; from loadfactor.interfaces.cli import main; sys.argv[0] = 'loadfactor'; main()"
    try:
        done = subprocess.run(
            [sys.executable, "-c", program, *words],
            cwd=work,
            env=os.environ | ENVIRONMENT,
            input=stdin_text,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, "", f"no end within {limit_s:g} s"
    return done.returncode, done.stdout, done.stderr


def _split_of(value: dict[str, Any]) -> tuple[tuple[str, ...], str]:
    """By what a `show` is split, and its other arguments."""
    return tuple(value.get("by", ())), value.get("args", "")


def _metrics_of(value: dict[str, Any]) -> list[str]:
    return str(value["show"]).replace("+", " ").split()


def _flatten(values: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Values with those that stand in `any_of` and `all_of`."""
    for value in values:
        yield value
        yield from _flatten(value.get("any_of", []))
        yield from _flatten(value.get("all_of", []))


def _judge_words(item: dict[str, Any], output: Output, label: str) -> Verdict:
    """Judge exit status and words."""
    expected_exit = item.get("exit", 0)
    came = f"exit {output.status}: {output.text[:250]}"
    if output.status is None:
        return Verdict(False, f"{label}: an end within its limit", output.text)
    if expected_exit == "any":
        is_right_exit = True
    elif expected_exit == "error":
        is_right_exit = output.status != 0
    else:
        is_right_exit = output.status == expected_exit
    if output.has_crashed or not is_right_exit:
        return Verdict(False, f"{label}: exit {expected_exit}", came)
    for pattern in item.get("says", []):
        if not re.search(pattern, output.text):
            return Verdict(False, f"{label}: words of /{pattern}/", came)
    for pattern in item.get("says_not", []):
        if match := re.search(pattern, output.text):
            context = output.text[max(0, match.start() - 40) : match.end() + 60]
            return Verdict(False, f"{label}: no words of /{pattern}/", f"'…{context}…'")
    return Verdict(True, f"{label}: exit {expected_exit}", came)


def _judge_path(value: dict[str, Any], output: Output, label: str) -> Verdict:
    """Judge the values at a path in the JSON that was printed."""
    if not output.stdout.lstrip().startswith(("{", "[")):
        return Verdict(False, f"JSON of {label}", output.text[:200])
    data = json.loads(output.stdout)
    if "same_as" in value:
        others = _read_path(data, value["same_as"])
        value = {**value, "is": others[0] if others else "unknown", "share": value.get("share", 1e-6)}
    return _compare(value, _read_path(data, value["path"]), f"{label} {value['path']}")


def _read_path(data: Any, path: str | list[str]) -> list[Any]:
    """Read all values at a path: KEY, the number of an element, * for any, [KEY=REGEX] for elements of which that is so."""
    parts = re.findall(r"\[[^\]]*\]|[^.\[\]]+", path) if isinstance(path, str) else path
    if not parts:
        return [data]
    first = parts[0]
    members = list(data.values()) if isinstance(data, dict) else data if isinstance(data, list) else []
    if first.startswith("["):
        name, _, pattern = first[1:-1].partition("=")
        members = [m for m in members if isinstance(m, dict) and re.fullmatch(pattern, str(m.get(name)))]
    elif first == "*":
        pass
    elif isinstance(data, dict):
        members = [data[first]] if first in data else []
    else:
        members = members[int(first) :][:1] if first.isdigit() else []
    return [result for member in members for result in _read_path(member, parts[1:])]


def _compare(value: dict[str, Any], results: list[Any], label: str) -> Verdict:
    """Judge whether any of the results is as the value wants it; no result is unknown."""
    rule = next(name for name in COMPARISONS if name in value)
    wanted = value[rule]
    holds = any(_fits(rule, result, wanted, value) for result in results or [UNKNOWN])
    shown = ["unknown" if r is UNKNOWN else f"{r:.6g}" if isinstance(r, float) else str(r)[:200] for r in results[:5]]
    return Verdict(holds, f"{label} {rule.replace('_', ' ')} {wanted}", ", ".join(shown) or "unknown")


def _fits(rule: str, result: Any, wanted: Any, value: dict[str, Any]) -> bool:
    tolerance = value.get("within", 1e-9)
    if rule == "at_least":
        return result is not UNKNOWN and _to_number(result) >= wanted - tolerance
    if rule == "at_most":
        return result is not UNKNOWN and _to_number(result) <= wanted + tolerance
    if rule == "one_of":
        return any(_is_same(result, choice, value) for choice in wanted)
    return _is_same(result, value.get("is", wanted), value)


def _is_same(result: Any, wanted: Any, value: dict[str, Any]) -> bool:
    if wanted == "unknown":
        return result in (UNKNOWN, "unknown")
    if result is UNKNOWN or isinstance(wanted, bool):
        return result is wanted
    if not isinstance(wanted, int | float):
        return str(result) == str(wanted)
    tolerance = abs(wanted) * value["share"] if "share" in value else value.get("within", 1e-9)
    return abs(_to_number(result) - wanted) <= tolerance


def _to_number(result: Any) -> float:
    """The number of a result; NaN, which is in no range, if it is none."""
    is_number = re.fullmatch(r"-?[\d.]+(e[-+]?\d+)?", str(result), re.IGNORECASE)
    return float(result) if is_number else float("nan")
