"""A synthetic fleet with known truth, for the demo, tests and benchmarks. Knows nothing of sources, store and ledger.

- `scenario`: what to simulate; `presets`: `DEMO`, `SMALL`, `bench(gpus, days, step_s)`
- `workloads`: the kinds of work; `demand`: the jobs handed in; `calendar`: when people are awake
- `fleet`: the GPUs; `incidents`: what breaks; `schedule`: the queue; `outcome`: its runs and waits; `shared_gpus`: who shares a GPU
- `simulation`: all of it together; `behaviour`, `activity`: how busy each GPU was
- `collector`: what was measured; `progress`: what came out
- `table_rows`, `write`: as tables and as files; `truth`, `truth_cells`: what the ledger must say of it
- `faults`: small fleets for some hours with known faults in them, for rules of alerts
"""

from loadfactor.simulator.scenario import DEMO, SMALL, Deployment, NodeGroup, Scenario, Team, bench
from loadfactor.simulator.simulation import Simulation, simulate
from loadfactor.simulator.table_rows import TableBatch, make_samples, make_tables, write_tables
from loadfactor.simulator.truth import TrueTotals, TrueWaits, Truth, truth

__all__ = [
    "DEMO",
    "SMALL",
    "Deployment",
    "NodeGroup",
    "Scenario",
    "Simulation",
    "TableBatch",
    "Team",
    "TrueTotals",
    "TrueWaits",
    "Truth",
    "bench",
    "make_samples",
    "make_tables",
    "simulate",
    "truth",
    "write_tables",
]
