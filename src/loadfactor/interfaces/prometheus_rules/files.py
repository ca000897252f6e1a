"""The file of rules for a target: loadfactor's own metrics, or those of dcgm-exporter and kube-state-metrics."""

from collections.abc import Sequence

from loadfactor.insight.alerts.rule import SINCE_START, Compound, Rule, Threshold
from loadfactor.interfaces.gauges.rules import CONDITION, HOLDS, NEITHER, name_labels, name_watched
from loadfactor.interfaces.prometheus_rules import dcgm
from loadfactor.interfaces.prometheus_rules.rule_file import (
    TranslatedRule,
    UntranslatedRule,
    Written,
    quote_promql,
    write_rules,
)
from loadfactor.metrics import metric

ABOUT_OWN = (
    "Rules of alerts for Prometheus, over /metrics of a loadfactor server.\n\n"
    "An alert that fires stays until its value is clear of the limit: that is the part with ALERTS. What is not known has no"
    " series, and fires nothing. Where PromQL cannot say a condition, the rule asks whether loadfactor says that it holds, and"
    " a comment says why. `for` is a minute less than the rule's, as the first evaluation speaks of the minute before it."
)


def list_own_rules(rules: Sequence[Rule], currency: str) -> list[Written]:
    """Every rule, in order."""
    return [
        _translate_threshold(rule, rule.condition, currency)
        if isinstance(rule.condition, Threshold)
        else _translate_compound(rule, rule.condition)
        for rule in rules
    ]


def _translate_threshold(rule: Rule, condition: Threshold, currency: str) -> TranslatedRule:
    series = f"{name_watched(rule, currency)}{{rule={quote_promql(rule.name)}}}"
    sign = "<" if condition.side == "below" else ">"
    bad, stays = f"{series} {sign} {condition.limit:g}", f"{series} {sign} {condition.clears_at:g}"
    expression = bad if condition.limit == condition.clears_at else f"{bad}\nor ({stays}\n  {_while_firing(rule)})"
    return TranslatedRule(rule, expression, name_labels(rule), metric(condition.metric).unit)


def _translate_compound(rule: Rule, condition: Compound) -> TranslatedRule:
    series = f"{CONDITION}{{rule={quote_promql(rule.name)}}}"
    expression = f"{series} == {HOLDS:g}\nor ({series} == {NEITHER:g}\n  {_while_firing(rule)})"
    return TranslatedRule(rule, expression, name_labels(rule), remark=f"{rule.name}: {_say_why(condition)}")


def _while_firing(rule: Rule) -> str:
    """Where this alert fires for the same group."""
    firing = f'ALERTS{{alertname={quote_promql(rule.name)},alertstate="firing"}}'
    return f"and on ({', '.join(name_labels(rule))}) {firing}"


def _say_why(condition: Compound) -> str:
    """Why PromQL cannot say a condition, by what it reads."""
    if not condition.reads:
        why = "events, waits, prices and budgets are no series of numbers in time"
    elif any(need.window_s == SINCE_START for need in condition.reads):
        why = "it looks at each job since it began, however long ago that was"
    else:
        why = "it puts several signals of each group together, some of them by what its accelerator can do at most"
    return f"PromQL cannot say this condition ({why}); loadfactor judges it every minute, and this asks what it says."


def write_for(against: str, rules: Sequence[Rule], currency: str, runbooks: str) -> tuple[str, int, int]:
    """The text, how many rules are translated, and how many are left out."""
    if against == "dcgm":
        about, written = dcgm.ABOUT_DCGM, dcgm.list_dcgm_rules(rules)
    else:
        about, written = ABOUT_OWN, list_own_rules(rules, currency)
    text = write_rules(about, "loadfactor" if against == "loadfactor" else f"loadfactor-{against}", written, runbooks)
    translated, left_out = (
        sum(isinstance(rule, kind) for rule in written) for kind in (TranslatedRule, UntranslatedRule)
    )
    return text, translated, left_out
