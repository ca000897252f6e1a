"""Rules that find causes of lost time in traces: `RULES` lists those of one device, in the order of their files."""

from loadfactor.insight.traces.rules.communication import find_exposed_communication
from loadfactor.insight.traces.rules.computing import find_full, find_plain_products
from loadfactor.insight.traces.rules.copies import find_exposed_copies
from loadfactor.insight.traces.rules.device_wait import find_device_wait
from loadfactor.insight.traces.rules.host import find_host_bound, find_synchronization
from loadfactor.insight.traces.rules.input_pipeline import find_input_pipeline
from loadfactor.insight.traces.rules.start_up import find_start_up

RULES = (
    find_input_pipeline,
    find_start_up,
    find_host_bound,
    find_synchronization,
    find_exposed_copies,
    find_exposed_communication,
    find_device_wait,
    find_plain_products,
    find_full,
)
"""Each takes an ObservedDevice and gives a TraceFinding or None."""
