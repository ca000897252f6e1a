"""A Slurm cluster of one node with eight fake GPUs, with accounting in its own MariaDB: all in one folder, on ports of loopback."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import mkdtemp
from types import TracebackType
from typing import Self

from tests.live.up_process import free_port
from tests.waiting import LONGEST_S

BINARIES = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "slurmdbd": "slurmdbd",
    "sacct": "slurm-client",
    "mariadbd": "mariadb-server",
    "munged": "munge",
    "slurmrestd": "slurmrestd",
}
"""Each program, and the Debian package it is in; slurm-wlm-basic-plugins and slurm-wlm-mysql-plugin come beside them."""
GPUS = 8
CLUSTER = "story"
USERS = {"nobody": "vision", "daemon": "nlp"}
"""Two users that every machine has, and the accounts they are given."""
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
_PASSWORD = "of-a-test"

DBD_CONF = """\
AuthType=auth/munge
AuthInfo=socket={folder}/run/munge.sock
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={dbd_port}
SlurmUser=root
LogFile={folder}/log/slurmdbd.log
PidFile={folder}/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={mysql_port}
StorageUser=slurm
StoragePass={password}
StorageLoc=slurm_acct
"""
CONF = """\
ClusterName={cluster}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld_port}
SlurmdPort={slurmd_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/run/munge.sock
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_interval=2,batch_sched_delay=1
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={dbd_port}
AccountingStoragePass={folder}/run/munge.sock
AccountingStorageTRES=gres/gpu,gres/gpu:h100
AccountingStoreFlags=job_comment
AccountingStorageEnforce=associations
GresTypes=gpu
ReturnToService=2
SlurmdParameters=config_overrides
MpiDefault=none
MessageTimeout=100
BatchStartTimeout=200
UnkillableStepTimeout=600
MailProg=/bin/true
{further}
NodeName={host} NodeHostname={host} NodeAddr=127.0.0.1 CPUs=64 RealMemory=8000 Gres=gpu:h100:{gpus} State=UNKNOWN
PartitionName=gpu Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def list_missing() -> list[str]:
    """What is not there of what the cluster takes."""
    missing = {package for binary, package in BINARIES.items() if shutil.which(binary, path=PATH) is None}
    if not list(Path("/usr/lib").glob("*/slurm*/accounting_storage_mysql.so")):
        missing.add("slurm-wlm-mysql-plugin")
    if not list(Path("/usr/lib").glob("*/slurm*/job_submit_lua.so")):
        missing.add("slurm-wlm-basic-plugins")
    return sorted(missing) or ([] if os.geteuid() == 0 else ["(its daemons want to be started as root)"])


class SlurmCluster:
    """The daemons of a cluster; slurmdbd may be ended and started again."""

    def __init__(self, further: str = "", files: Mapping[str, str] | None = None) -> None:
        """`further`: lines of slurm.conf, {folder} is its folder; `files`: what lies beside it, by name, scripts executable."""
        self.folder = folder = Path(mkdtemp(prefix="slurm-"))  # pytest's own folders are closed to other users
        self.host = socket.gethostname().partition(".")[0]
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf"), "PATH": PATH}
        self._files = files or {}
        self.complaint = ""
        """What the last command wrote beside its output."""
        ports = {f"{name}_port": free_port() for name in ("mysql", "dbd", "ctld", "slurmd")}
        self._values = {
            "folder": folder,
            "host": self.host,
            "cluster": CLUSTER,
            "gpus": GPUS,
            "password": _PASSWORD,
            "further": further.replace("{folder}", str(folder)),
            **ports,
        }
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        try:
            self._write_files()
            self._start_database()
            self.start_accounting()
            self.run("sacctmgr", "-i", "add", "cluster", CLUSTER)
            self.start_controller()
            for user, account in USERS.items():
                self.run("sacctmgr", "-i", "add", "account", account)
                self.run("sacctmgr", "-i", "add", "user", user, f"account={account}")
            self._start("slurmd", "-D", "-N", self.host)
            self._wait(lambda: "idle" in self._try("sinfo", "-h", "-o", "%T"), "slurmd")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, *words: str, user: str = "", **environment: str) -> str:
        """What a command says, run as a user where one is named."""
        who = ["setpriv", f"--reuid={user}", "--regid=nogroup", "--clear-groups"] if user else []
        done = subprocess.run(
            [*who, *words],
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            check=False,
            cwd="/",
        )
        self.complaint = done.stderr
        assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
        return done.stdout

    def submit(self, user: str, script: str, *options: str) -> str:
        """The number of a new job."""
        said = self.run("sbatch", "--parsable", "--output=/dev/null", *options, f"--wrap={script}", user=user)
        return said.strip().partition(";")[0]

    def start_accounting(self) -> None:
        """Start slurmdbd, and wait until it answers."""
        self._start("slurmdbd", "-D")
        self._wait(lambda: bool(self._try("sacctmgr", "-n", "list", "user")), "slurmdbd")

    def start_controller(self, **environment: str) -> None:
        """Start slurmctld, ended before where it runs, with these variables; wait until it answers."""
        self._end("slurmctld")
        self._start("slurmctld", "-D", **environment)
        self._wait(lambda: "UP" in self._try("scontrol", "ping"), "slurmctld")

    def start_rest(self) -> str:
        """Start slurmrestd, which refuses to be root; its address."""
        folder = self.folder / "rest"
        folder.mkdir()
        folder.chmod(0o777)
        user = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups")
        address = f"unix:{folder}/socket"
        plugins = "openapi/v0.0.38,openapi/dbv0.0.38"
        self._start("slurmrestd", "-a", "rest_auth/local", "-s", plugins, address, before=user)
        self._wait((folder / "socket").exists, "slurmrestd")
        return address

    def stop_accounting(self) -> None:
        """End slurmdbd."""
        self._end("slurmdbd")

    def stop(self) -> None:
        """End everything that was started, in order."""
        for name in ("slurmrestd", "slurmd", "slurmctld", "slurmdbd", "mariadbd", "munged"):
            self._end(name)

    def _end(self, name: str) -> None:
        process = self._processes.pop(name, None)
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _write_files(self) -> None:
        for name in ("state", "spool", "log", "run", "mysql", "munge"):
            (self.folder / name).mkdir(parents=True, mode=0o755)
        self.folder.chmod(0o755)  # its users read slurm.conf, speak to munge, and run what lies in the spool
        key = self.folder / "munge" / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        conf = self.folder / "slurmdbd.conf"
        conf.write_text(DBD_CONF.format(**self._values))
        conf.chmod(0o600)
        (self.folder / "slurm.conf").write_text(CONF.format(**self._values))
        for name, text in self._files.items():
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o755 if text.startswith("#!") else 0o644)
        for number in range(GPUS):
            os.mknod(self.folder / f"nvidia{number}", 0o20666, os.makedev(1, 3))  # as /dev/null
        files = f"File={self.folder}/nvidia[0-{GPUS - 1}]"
        (self.folder / "gres.conf").write_text(f"NodeName={self.host} Name=gpu Type=h100 {files}\n")
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")

    def _start_database(self) -> None:
        run, log = self.folder / "run", self.folder / "log"
        self._start(
            "munged", "--force", "--foreground", f"--key-file={self.folder}/munge/munge.key", f"--socket={run}/munge.sock",
            f"--pid-file={run}/munged.pid", f"--log-file={log}/munged.txt", f"--seed-file={self.folder}/munge/seed",
        )  # fmt: skip
        temporary = self.folder / "temporary"  # a server that starts removes the tables of others in a shared one
        temporary.mkdir()
        data = ("--no-defaults", "--user=root", f"--datadir={self.folder}/mysql", f"--tmpdir={temporary}")
        self.run("mariadb-install-db", *data, "--auth-root-authentication-method=socket", "--skip-test-db")
        port = self._values["mysql_port"]
        small = (
            "--innodb-buffer-pool-size=32M",
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-lock-wait-timeout=900",
        )
        self._start(
            "mariadbd", *data, f"--socket={run}/mysql.sock", f"--port={port}", "--bind-address=127.0.0.1", *small
        )
        mariadb = ("mariadb", "--no-defaults", "-uroot", "-S", f"{run}/mysql.sock", "-e")
        self._wait(lambda: "1" in self._try(*mariadb, "select 1"), "mariadbd")
        users = [f"create user 'slurm'@'{host}' identified by '{_PASSWORD}'" for host in ("%", "localhost")]
        grants = [f"grant all on slurm_acct.* to 'slurm'@'{host}'" for host in ("%", "localhost")]
        self.run(*mariadb, "; ".join(["create database slurm_acct", *users, *grants]))

    def _start(self, *words: str, before: Sequence[str] = (), **environment: str) -> None:
        log = self.folder / "log" / f"{words[0]}.out"
        with log.open("ab") as said:
            self._processes[words[0]] = subprocess.Popen(
                (*before, *words),
                env={**self.environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd=self.folder,
            )

    def _try(self, *words: str) -> str:
        try:
            done = subprocess.run(words, env=self.environment, capture_output=True, text=True, timeout=60, check=False)
        except subprocess.TimeoutExpired:
            return ""
        return done.stdout if done.returncode == 0 else ""

    def _wait(self, is_there: Callable[[], bool], name: str) -> None:
        end = time.monotonic() + LONGEST_S
        while not is_there():
            log = self.folder / "log" / f"{name}.out"
            process = self._processes[name]
            is_over = time.monotonic() > end or process.poll() is not None
            assert not is_over, f"{name} does not answer: {log.read_text()[-800:]}"
            time.sleep(0.1)
