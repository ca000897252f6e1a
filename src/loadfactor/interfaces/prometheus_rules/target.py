"""The file of rules for a target: loadfactor's own metrics, or those of dcgm-exporter and kube-state-metrics."""

from collections.abc import Sequence

from loadfactor.insight.alerts.rule import Rule
from loadfactor.interfaces.prometheus_rules import dcgm, own_metrics
from loadfactor.interfaces.prometheus_rules.rule_file import SaidRule, UnsaidRule, write_rules


def write_for(against: str, rules: Sequence[Rule], currency: str, runbooks: str) -> tuple[str, int, int]:
    """The text, how many rules it says, and how many it cannot say."""
    if against == "dcgm":
        about, written = dcgm.ABOUT, dcgm.list_dcgm_rules(rules)
    else:
        about, written = own_metrics.ABOUT, own_metrics.list_own_rules(rules, currency)
    text = write_rules(about, "loadfactor" if against == "loadfactor" else f"loadfactor-{against}", written, runbooks)
    said, unsaid = (sum(isinstance(one, kind) for one in written) for kind in (SaidRule, UnsaidRule))
    return text, said, unsaid
