"""The rules: one declaration for each, in the order a person should read them."""

from loadfactor.insight.alerts.rules.hardware import HARDWARE
from loadfactor.insight.alerts.rules.jobs import JOBS, UTILIZATION
from loadfactor.insight.alerts.rules.links import LINKS
from loadfactor.insight.alerts.rules.memory import MEMORY
from loadfactor.insight.alerts.rules.money import MONEY
from loadfactor.insight.alerts.rules.queue import QUEUE
from loadfactor.insight.alerts.rules.telemetry import TELEMETRY

RULES = (*UTILIZATION, *JOBS, *LINKS, *MEMORY, *HARDWARE, *TELEMETRY, *QUEUE, *MONEY)
