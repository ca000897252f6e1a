"""Commands of Slurm as scripts: they write what a test put beside them, fail, or take too long."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loadfactor.collect.slurm_commands import FIELDS

NAMES = ("sacct", "scontrol")
SCRIPT = """\
#!/bin/sh
cd {folder}
name=${{0##*/}}
echo "$name $*" >> asked
[ -e "$name.slow" ] && sleep 60
if [ -e "$name.fails" ]; then cat "$name.fails" >&2; exit 1; fi
case "$*" in
  *--helpformat*) cat helpformat ;;
  *--help*) ;;
  *--jobs*) cat jobs.by-id ;;
  "show config") echo "Configuration data as of $(($(date +%s) + $(cat clock)))"; cat config ;;
  "show node"*) cat nodes ;;
  "show job"*) cat queue ;;
  *) cat accounting ;;
esac
"""
CONFIG = """\
AccountingStorageTRES = cpu,mem,gres/gpu
AccountingStorageType = accounting_storage/slurmdbd
AccountingStoreFlags = job_comment
SLURM_VERSION = 25.05.3
"""
NODE = "NodeName={name} Gres=gpu:h100:{gpus} State={state} Partitions=gpu {reason}\n"


class FakeSlurm:
    """A folder of commands and of what they say."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "slurm"
        self.bin = folder / "bin"
        for one in (self.folder, self.bin):
            one.mkdir(parents=True)
        for name in NAMES:
            (self.bin / name).write_text(SCRIPT.format(folder=self.folder))
            (self.bin / name).chmod(0o755)
        self.say("helpformat", " ".join(FIELDS))
        self.say("config", CONFIG)
        self.say("clock", "0")
        self.say("nodes", "".join(NODE.format(name=f"n{i}", gpus=8, state="IDLE", reason="") for i in range(2)))
        self.say("queue", "No jobs in the system\n")
        self.account()
        self.account(to="jobs.by-id")

    def say(self, what: str, text: str) -> None:
        """Sets the output of a command from now on."""
        (self.folder / what).write_text(text)

    def account(self, *rows: dict[str, Any], to: str = "accounting", further: Sequence[str] = ()) -> None:
        """Sets the jobs of sacct."""
        lines = ["\x1f".join(str(row.get(name, "")) for name in FIELDS) for row in rows]
        self.say(to, "".join(f"{line}\n" for line in ("\x1f".join(FIELDS), *lines, *further)))

    def break_down(self, name: str, how: str = "fails", text: str = "") -> None:
        """From now on a command fails with a text, or is slow."""
        self.say(f"{name}.{how}", text)

    def mend(self, name: str) -> None:
        """It works again."""
        for how in ("fails", "slow"):
            (self.folder / f"{name}.{how}").unlink(missing_ok=True)

    @property
    def asked(self) -> list[str]:
        """Commands so far."""
        return (self.folder / "asked").read_text().splitlines()


def ago_s(seconds: float) -> int:
    """An instant so long ago, in whole seconds since 1970."""
    return int(time.time() - seconds)


BEGAN = ago_s(600)


def job(number: str, state: str = "RUNNING", gpus: int = 4, **fields: Any) -> dict[str, Any]:
    """A job as sacct writes it; by default it began ten minutes ago."""
    return {
        "JobID": number,
        "JobIDRaw": number,
        "Cluster": "c",
        "User": "ann",
        "Account": "vision",
        "Partition": "gpu",
        "State": state,
        "Submit": BEGAN - 60,
        "Eligible": BEGAN - 60,
        "Start": BEGAN,
        "End": "Unknown",
        "AllocTRES": f"cpu=8,gres/gpu={gpus}",
        "ReqTRES": f"cpu=8,gres/gpu={gpus}",
        "NodeList": "n0",
        "JobName": "train",
        **fields,
    }


def queued(number: str, state: str = "RUNNING", **fields: Any) -> str:
    """A job as `scontrol show job -o` writes it."""
    said = {
        "JobId": number,
        "JobName": "train",
        "UserId": "ann(1)",
        "Account": "vision",
        "JobState": state,
        "Reason": "None",
        "Restarts": 0,
        "SubmitTime": BEGAN - 60,
        "EligibleTime": BEGAN - 60,
        "StartTime": BEGAN,
        "EndTime": "Unknown",
        "Partition": "gpu",
        "NodeList": "n0",
        "TRES": "cpu=8,gres/gpu=4",
        **fields,
    }
    return " ".join(f"{name}={value}" for name, value in said.items()) + "\n"
