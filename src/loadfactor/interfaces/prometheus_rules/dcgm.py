"""The rules over plain dcgm-exporter and kube-state-metrics, for those who have no books, or alert without them."""

from collections.abc import Sequence

from loadfactor.insight.alerts.rule import Rule, Threshold
from loadfactor.interfaces.prometheus_rules.dcgm_conditions import SAID, UNSAID
from loadfactor.interfaces.prometheus_rules.dcgm_series import RECORDINGS
from loadfactor.interfaces.prometheus_rules.dcgm_thresholds import say_threshold
from loadfactor.interfaces.prometheus_rules.rule_file import UnsaidRule, Written

ABOUT = (
    "Rules of alerts for Prometheus, over dcgm-exporter and kube-state-metrics, in place of a loadfactor server.\n\n"
    "A team is a namespace and a job is a pod here, as no other holder is known. dcgm-exporter has to name pods (it does on"
    " Kubernetes), and Prometheus has to keep these labels (honor_labels: true). SM active has to be in the exporter's list of"
    " counters; without it engine active counts, or GPU_UTIL, which are optimistic. An alert that fires stays until its value is"
    " clear of the limit: that is the part with ALERTS. `for` is a minute less than the rule's, as the first"
    " evaluation speaks of the minute before it."
)


def list_dcgm_rules(rules: Sequence[Rule]) -> list[Written]:
    """What is recorded, and every rule, in order."""
    written: list[Written] = list(RECORDINGS)
    for rule in rules:
        if isinstance(rule.condition, Threshold):
            written += say_threshold(rule, rule.condition)
        elif rule.name in SAID:
            written.append(SAID[rule.name](rule))
        else:
            written.append(UnsaidRule(rule, UNSAID.get(rule.name, "It has no translation.")))
    return written
