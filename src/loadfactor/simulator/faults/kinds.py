"""The kinds of faults: one for each rule of alerts, by the rule's name; what blinds comes last in a scene with several."""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from loadfactor.simulator.faults import hardware, links, records, work
from loadfactor.simulator.faults.scene import Scene

Inject = Callable[[Scene, np.random.Generator], None]

FAULTS: Final[Mapping[str, Inject]] = {
    "fleet_utilization_low": work.slow_fleet,
    "team_utilization_low": work.slow_team,
    "job_utilization_low": work.slow_job,
    "job_idle_from_start": work.never_begin,
    "job_became_idle": work.stop_working,
    "notebook_idle": work.forget_notebook,
    "gpus_never_used": work.use_some,
    "pcie_saturated": links.fill_pcie,
    "collective_bound": links.wait_for_collectives,
    "job_straggler": links.lag_behind,
    "memory_pressure": hardware.leak_memory,
    "gpu_throttled": hardware.throttle,
    "gpu_hot": hardware.overheat,
    "gpu_xid": hardware.report_xid,
    "gpu_ecc": hardware.report_ecc,
    "gpus_work_unheld": records.work_unheld,
    "gpus_free_while_jobs_wait": records.wait_beside_free,
    "queue_wait_unusual": records.wait_unusually,
    "budget_burn": records.overspend,
    "price_ended": records.end_price,
    "node_down": hardware.fail_node,
    "telemetry_lost": records.lose_node,
    "exporter_lost": records.lose_all,
}
