#!/usr/bin/env python3
"""Run a command for each job that has left its GPUs idle for long; without --run only say which. Standard library only.

    python3 act_on_idle_holders.py --team vision --after 2h --command "scancel {job}"
    python3 act_on_idle_holders.py --team vision --after 2h --command "scancel {job}" --run

It reads the alerts of `loadfactor up` at GET /api/v1/alerts: the rules say when a job is idle, and unobserved time never is.
A job is left alone if its alert is silenced, is of another team, or fired less than --after ago, and all jobs are if the
alerts were judged too long ago. The command runs without a shell; {job}, {user}, {team} and {rule} stand for names.
Exit code: 0 done, 1 the server or a command failed, 2 wrong options.
"""

import argparse
import json
import re
import shlex
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path

IDLE_RULES = ("job_became_idle", "job_idle_from_start")
UNITS = {"s": "seconds", "min": "minutes", "h": "hours", "d": "days"}
SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+/@-]*")  # no option of the command, and nothing else than a name
ANSWER_S = 30


def parse_duration(text):
    """Parse 30min, 2h or 1d."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|min|h|d)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no length of time; write 30min, 2h or 1d")
    return timedelta(**{UNITS[match[2]]: float(match[1])})


def parse_instant(text):
    """Parse an instant as the server writes it. Python before 3.11 does not read the Z."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def parse_options(words):
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default="http://127.0.0.1:9417", help="address of `loadfactor up`")
    parser.add_argument("--token-file", type=Path, help="file with a token that may read")
    parser.add_argument("--team", action="append", required=True, help="only jobs of this team; may be repeated")
    parser.add_argument("--rule", action="append", help=f"only alerts of this rule; default: {', '.join(IDLE_RULES)}")
    parser.add_argument(
        "--allow", action="append", default=[], metavar="USER", help="never jobs of this user, with * and ?"
    )
    parser.add_argument("--after", type=parse_duration, default="1h", help="only alerts that fired this long ago")
    parser.add_argument(
        "--judged-within", type=parse_duration, default="15min", help="do nothing if alerts are older than this"
    )
    parser.add_argument("--most", type=int, default=5, help="at most so many commands in one run")
    parser.add_argument("--command", default="scancel {job}", help="what to run for each job")
    parser.add_argument("--run", action="store_true", help="run the commands; without it they are only printed")
    return parser.parse_args(words)


def read_alerts(server, token_file):
    """Read what fires: the answer of GET /api/v1/alerts."""
    request = urllib.request.Request(
        f"{server.rstrip('/')}/api/v1/alerts?" + urllib.parse.urlencode({"state": "firing"})
    )
    if token_file is not None:
        request.add_header("Authorization", f"Bearer {token_file.read_text(encoding='utf-8').strip()}")
    with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
        return json.load(answer)


def select_alerts(alerts, options, now):
    """Select the alerts to act on, those that fire longest first."""
    due = [
        alert
        for alert in alerts
        if alert["rule"] in (options.rule or IDLE_RULES)
        and alert["holder"].get("team") in options.team
        and not alert["silenced"]
        and not any(fnmatchcase(alert["holder"].get("user", ""), pattern) for pattern in options.allow)
        and now - parse_instant(alert["fired"]) >= options.after
    ]
    return sorted(due, key=lambda alert: alert["fired"])


def write_command(template, alert):
    """Write the command for an alert as a list of words. Raises ValueError if a name could be taken for something else."""
    names = {**alert["holder"], **alert["by"], "rule": alert["rule"]}
    for name, value in names.items():
        if "{" + name + "}" in template and not SAFE_NAME.fullmatch(value):
            raise ValueError(f"the {name} {value!r} is not put into a command")
    try:
        return [word.format(**names) for word in shlex.split(template)]
    except (KeyError, IndexError) as error:
        raise ValueError(f"nothing is known to put for {error} into {template!r}") from error


def act(alert, options):
    """Run the command for an alert, or say what would run. Returns False if that failed."""
    evidence = f"{alert['rule']} since {alert['from']}: {'; '.join(alert['evidence'])}"
    try:
        words = write_command(options.command, alert)
        print(f"{'run' if options.run else 'would run'}: {shlex.join(words)}  ({evidence})", flush=True)
        if options.run:
            subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
    except (ValueError, OSError, subprocess.CalledProcessError) as error:
        print(f"failed: {error}", file=sys.stderr)
        return False
    return True


def main(words=None):
    """Read the alerts and act on those that are due."""
    options = parse_options(words)
    try:
        answer = read_alerts(options.server, options.token_file)
    except urllib.error.HTTPError as error:
        print(f"{options.server} answers {error.code}: {error.read().decode(errors='replace')}", file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        print(f"{options.server} cannot be asked: {error}", file=sys.stderr)
        return 1
    now = datetime.now(UTC)
    if answer["judged"] is None or now - parse_instant(answer["judged"]) > options.judged_within:
        print(f"nothing is done: alerts were judged up to {answer['judged']}", file=sys.stderr)
        return 1
    due = select_alerts(answer["alerts"], options, now)
    results = [act(alert, options) for alert in due[: options.most]]
    if len(due) > options.most:
        print(f"{len(due) - options.most} more wait for the next run (--most {options.most})")
    if not due:
        print("no job is due")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
