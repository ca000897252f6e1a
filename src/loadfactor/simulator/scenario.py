"""The scenario of a simulation, frozen: the same scenario always makes the same rows, to the byte."""

from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property
from zoneinfo import ZoneInfo

from loadfactor.base.errors import PlanError
from loadfactor.base.units import MS_PER_DAY, MS_PER_S
from loadfactor.simulator.workloads import WORKLOADS


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
    """Who asks for batch work and notebooks. `work` gives the odds of each workload, `share` the odds of the team."""

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
    load: float  # GPU-hours asked for over GPU-hours there are, of the batch pools
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
