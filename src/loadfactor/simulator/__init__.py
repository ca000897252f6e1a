"""A synthetic fleet for the demo, tests and benchmarks. Knows nothing of sources, store and ledger.

- `scenario`: what to simulate, with `DEMO`, `SMALL` and `bench(gpus, days, step_s)`, and the kinds of work
- `fleet`: the GPUs and what breaks; `demand`: when people are awake, and the jobs they submit; `schedule`: the queue and its runs
- `simulation`: all of it together; `activity`: how busy each GPU was
- `table_rows`: what was measured and what came out, as tables and as files
"""

from loadfactor.simulator.scenario import DEMO, SMALL, Deployment, NodeGroup, Scenario, Team, bench
from loadfactor.simulator.simulation import Simulation, simulate
from loadfactor.simulator.table_rows import TableBatch, make_samples, make_tables, write_tables

__all__ = [
    "DEMO",
    "SMALL",
    "Deployment",
    "NodeGroup",
    "Scenario",
    "Simulation",
    "TableBatch",
    "Team",
    "bench",
    "make_samples",
    "make_tables",
    "simulate",
    "write_tables",
]
