"""The rules: one declaration for each, in the order a person should read them."""

from loadfactor.insight.alerts.rules.utilization import UTILIZATION

RULES = (*UTILIZATION,)
