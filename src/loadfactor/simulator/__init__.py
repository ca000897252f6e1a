"""What would a real fleet look like? A simulated one, seeded, its ground truth known: for demo, tests and benchmarks.

- `plan`: what to simulate: `DEMO`, `SMALL`, `bench(gpus, days, step_s)`
- `workloads`: the kinds of work, `demand`: who asks for what, `calendar`: when people are awake
- `fleet`, `trouble`: the GPUs, and what breaks; `schedule`: the queue; `divided`: who shares a GPU
- `simulation`: all of it together; `activity`, `signals`, `output`: what the collectors saw and what came out
- `rows`, `write`: as tables and as files; `truth`: what the books must say of it
"""

from loadfactor.simulator.fleet_plan import DEMO, SMALL, Deployment, FleetPlan, NodeGroup, Team, bench
from loadfactor.simulator.rows import rows, samples
from loadfactor.simulator.simulation import Simulation, simulate
from loadfactor.simulator.truth import Totals, Truth, Waits, truth
from loadfactor.simulator.write import write_tables

__all__ = [
    "DEMO",
    "SMALL",
    "Deployment",
    "FleetPlan",
    "NodeGroup",
    "Simulation",
    "Team",
    "Totals",
    "Truth",
    "Waits",
    "bench",
    "rows",
    "samples",
    "simulate",
    "truth",
    "write_tables",
]
