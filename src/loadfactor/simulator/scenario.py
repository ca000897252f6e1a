"""The scenario of a simulation, frozen: the same scenario always makes the same rows, to the byte."""

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import cached_property
from typing import Final, Literal
from zoneinfo import ZoneInfo

from loadfactor.base.errors import PlanError
from loadfactor.base.units import MS_PER_DAY, MS_PER_S
from loadfactor.catalog.facts import read_toml

Shape = Literal["steady", "sawtooth", "notebook", "serving"]
SHAPES: Final[tuple[Shape, ...]] = ("steady", "sawtooth", "notebook", "serving")
_FILE: Final = read_toml("loadfactor.simulator", "workloads.toml")


@dataclass(frozen=True)
class NodeGroup:
    """Nodes of one accelerator that share a queue. `bought_day` and `retired_day` count from the start of the simulation."""

    name: str
    accelerator: str
    pool: str
    nodes: int
    contracted_price_per_gpu_hour: float
    list_price_per_gpu_hour: float
    gpus_per_node: int = 8
    bought_day: float | None = None
    retired_day: float | None = None
    exporter: str = "dcgm"  # "nvidia-smi": only GPU_UTIL, memory and power; no profiling counters


@dataclass(frozen=True)
class Team:
    """A team that submits batch work and notebooks. `work` gives the odds of each workload, `share` the odds of the team."""

    name: str
    share: float
    users: tuple[str, ...]
    projects: tuple[str, ...]
    work: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Deployment:
    """A network kept resident for its users: `replicas` of `gpus` GPUs, as long as the simulation lasts."""

    name: str
    team: str
    pool: str
    replicas: int
    gpus: int
    params: float
    peak_requests_per_s: float  # of one replica, at the top of a working day
    peak_sm_share: float


@dataclass(frozen=True)
class Scenario:
    """Everything the simulation depends on. PlanError when it cannot be."""

    start: date
    days: int
    step_s: int
    seed: int
    groups: tuple[NodeGroup, ...]
    teams: tuple[Team, ...]
    deployments: tuple[Deployment, ...]
    jobs: int
    load: float  # GPU-hours requested over GPU-hours installed, of the batch pools
    timezone: str = "Europe/Berlin"
    node_failures_per_day: float = 0.008  # per node
    gpu_failures_per_day: float = 0.001  # per GPU
    drains_per_day: float = 0.012  # per node
    missing_share: float = 0.002  # single samples
    exporter_failures_per_day: float = 0.02  # per node, hours each
    price_change_day: float | None = None
    price_change_ratio: float = 1.0
    divided_gpu: bool = True  # one GPU held by three pods: .5, .25, .125
    mig_gpu: bool = True  # one GPU cut into seven devices
    profiles_pipes: bool = False  # the collector also asks for FP32 activity and occupancy
    names_networks: bool = False  # runs say which network they train or serve, as tracked ones do

    def __post_init__(self) -> None:
        if self.days < 1 or self.step_s < 1:
            raise PlanError(f"days and step_s must be at least 1, got {self.days} and {self.step_s}")
        if not self.groups or any(g.nodes < 1 or not 1 <= g.gpus_per_node <= 32 for g in self.groups):
            raise PlanError("every group needs at least one node of 1 to 32 GPUs")
        pools = {g.pool for g in self.groups}
        names = {w.name for w in WORKLOADS}
        for d in self.deployments:
            if d.pool not in pools:
                raise PlanError(f"deployment {d.name} asks for pool {d.pool}; there are {', '.join(sorted(pools))}")
        for team in self.teams:
            for work, _ in team.work:
                if work not in names:
                    raise PlanError(f"team {team.name} runs {work}; there are {', '.join(sorted(names))}")

    @cached_property
    def start_ms(self) -> int:
        """The first instant of the simulation, midnight UTC."""
        return int(datetime(self.start.year, self.start.month, self.start.day, tzinfo=UTC).timestamp()) * MS_PER_S

    @property
    def end_ms(self) -> int:
        """The instant at which the simulation ends."""
        return self.start_ms + self.days * MS_PER_DAY

    @property
    def step_ms(self) -> int:
        """The collector's step."""
        return self.step_s * MS_PER_S

    @property
    def zone(self) -> ZoneInfo:
        """Where the people sit."""
        return ZoneInfo(self.timezone)

    @property
    def gpus(self) -> int:
        """Physical GPUs ever installed."""
        return sum(g.nodes * g.gpus_per_node for g in self.groups)


@dataclass(frozen=True)
class Workload:
    """One kind of work. Shares are of one; `mfu_share` is what its tokens need of the accelerator's peak while it computes."""

    name: str
    purpose: str
    shape: Shape
    gpus: tuple[int, ...]  # how many it asks for, equally likely
    hours: float  # median length, before the scenario scales all batch work to the load it wants
    hours_sigma: float  # of the logarithm
    sm_share: float
    noise_share: float
    engine_gap_share: float  # how much of the time without SM activity the engine is active all the same
    tensor_ratio: float  # of SM active
    dram_ratio: float
    mem_share: float
    startup_s: int  # image pull and loading, before the first kernel
    checkpoint_s: int  # 0: keeps nothing
    crash_share: float  # dies of its own fault
    tail_share: float  # sits idle after its work is done
    main_pool_share: float  # odds of asking for the larger pool
    params: float = 0  # of the network, 0 where FLOPs are not known
    mfu_share: float = 0
    tokens_per_step: int = 0
    samples_per_gpu_s: float = 0
    samples_per_step: int = 0
    samples_per_epoch: int = 0


WORKLOADS: Final = tuple(Workload(**row | {"gpus": tuple(row["gpus"])}) for row in _FILE["workload"])
TEAMS: Final = tuple(
    Team(row["name"], row["share"], tuple(row["users"]), tuple(row["projects"]), tuple(row["work"].items()))
    for row in _FILE["team"]
)
DEMO: Final = Scenario(
    start=date(2026, 10, 19),  # a Monday; summer time ends in Europe on the 25th
    days=14,
    step_s=60,
    seed=20261019,
    groups=(
        NodeGroup("h100", "h100-sxm", "h100", 15, 2.60, 2.95),
        NodeGroup("h100n", "h100-sxm", "h100", 2, 2.60, 2.95, bought_day=5.4),
        NodeGroup("a100", "a100-sxm", "a100", 6, 1.35, 1.50),
        NodeGroup("a100o", "a100-sxm", "a100", 1, 1.35, 1.50, retired_day=9.6),
        NodeGroup("a100s", "a100-sxm", "a100", 1, 1.35, 1.50, exporter="nvidia-smi"),
    ),
    teams=TEAMS,
    deployments=(
        Deployment("chat-70b", "assistant", "h100", 3, 8, 70e9, 4.2, 0.56),
        Deployment("chat-8b", "assistant", "a100", 6, 1, 8e9, 5.5, 0.44),
        Deployment("asr-live", "speech", "a100", 4, 1, 0, 9.0, 0.21),
        Deployment("embed", "platform", "a100", 2, 1, 0.34e9, 60.0, 0.31),
    ),
    jobs=1500,
    load=0.94,
    price_change_day=8.395833,  # 09:30 UTC on a Tuesday, in the middle of an hour and of many jobs
    price_change_ratio=0.9,
    profiles_pipes=True,
    names_networks=True,
)
SMALL: Final = replace(
    DEMO,
    start=date(2026, 10, 24),
    days=2,
    step_s=37,
    seed=7,
    groups=(
        NodeGroup("h", "h100-sxm", "h100", 2, 2.5, 3.0, gpus_per_node=2),
        NodeGroup("hn", "h100-sxm", "h100", 1, 2.5, 3.0, gpus_per_node=1, bought_day=0.77),
        NodeGroup("a", "a100-sxm", "a100", 1, 1.3, 1.5, gpus_per_node=3),
        NodeGroup("as", "a100-sxm", "a100", 1, 1.3, 1.5, gpus_per_node=1, retired_day=1.61, exporter="nvidia-smi"),
    ),
    deployments=(Deployment("chat", "assistant", "a100", 1, 1, 8e9, 5.0, 0.4),),
    jobs=40,
    load=0.94,
    node_failures_per_day=0.4,
    gpu_failures_per_day=0.2,
    drains_per_day=0.3,
    missing_share=0.01,
    exporter_failures_per_day=0.4,
    price_change_day=0.9876,
    names_networks=False,
)


def bench(gpus: int, days: int, step_s: int) -> Scenario:
    """A fleet for benchmarks: two thirds H100, one third A100, in nodes of eight; about 3.3 jobs per GPU and day.

    >>> scenario = bench(1024, 30, 30)
    >>> scenario.gpus, scenario.jobs
    (1024, 100147)
    """
    if gpus < 24:
        raise PlanError(f"bench needs at least 24 GPUs, got {gpus}; SMALL has fewer")
    nodes = gpus // 8
    a100 = nodes // 3
    return replace(
        DEMO,
        days=days,
        step_s=step_s,
        groups=(
            NodeGroup("h100", "h100-sxm", "h100", nodes - a100, 2.60, 2.95),
            NodeGroup("a100", "a100-sxm", "a100", a100, 1.35, 1.50),
        ),
        deployments=(
            Deployment("chat-70b", "assistant", "h100", max(1, nodes // 10), 8, 70e9, 4.2, 0.56),
            Deployment("chat-8b", "assistant", "a100", max(1, nodes // 4), 1, 8e9, 5.5, 0.44),
        ),
        jobs=round(gpus * days * 3.26),
        load=0.85,
        price_change_day=min(8.395833, days / 2),
        names_networks=False,
    )


def find_workload(name: str) -> int:
    """The place of a workload in WORKLOADS; KeyError when there is none of that name."""
    return {workload.name: i for i, workload in enumerate(WORKLOADS)}[name]
