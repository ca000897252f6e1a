"""Rules of utilization: what is held works too little."""

from typing import Final

from loadfactor.base.units import S_PER_HOUR, S_PER_MIN
from loadfactor.insight.alerts.rule import Rule, Threshold

_BELOW_HALF: Final = Threshold("utilization", "below", 0.5, clears_at=0.55, window_s=30 * S_PER_MIN)

UTILIZATION: Final = (
    Rule(
        "fleet_utilization_low", _BELOW_HALF, (), S_PER_HOUR, "warning", "I/O",
        "Average utilization of all held GPUs is under 50 % for more than an hour.",
        "Is it I/O, model size, scheduling or user error: did all jobs become slower, or did a few large ones become idle?",
        "`loadfactor waterfall` says where the hours went; `loadfactor show utilization --by team` who they are.",
    ),
    Rule(
        "team_utilization_low", _BELOW_HALF, ("team",), S_PER_HOUR, "warning", "I/O",
        "Average utilization of the GPUs that a team holds is under 50 % for more than an hour.",
        "Is it I/O, model size, scheduling or user error: one job, or all of them?",
        "`loadfactor show utilization --by job --where team=TEAM` says which jobs, `loadfactor waterfall` why.",
    ),
    Rule(
        "job_utilization_low", _BELOW_HALF, ("job",), S_PER_HOUR, "info", "I/O",
        "Average utilization of the GPUs of a job is under 50 % for more than an hour.",
        "Is it I/O, model size, scheduling or user error: does the GPU wait for data, or is there too little work for it?",
        "The job's page (`loadfactor report --job JOB`) shows memory, links and tensor cores beside utilization.",
    ),
)  # fmt: skip
