"""The page of a job on why its GPUs were not fuller: its diagnosis by the books, and what its traces say in its money."""

from collections.abc import Sequence
from dataclasses import replace
from shlex import quote

from loadfactor.insight.diagnosis.fleet import diagnose_books
from loadfactor.insight.diagnosis.trace_money import read_rate
from loadfactor.interfaces.document import Section, Suggestion
from loadfactor.interfaces.pages.diagnosis import explain, list_findings, say_job
from loadfactor.interfaces.pages.traces import list_costs, read_traces, say_verdict
from loadfactor.interfaces.reports.facts import SectionFacts, TraceFacts, WhyFacts
from loadfactor.interfaces.reports.inquiry import Inquiry, WhyQuestion


def build_job_why(inquiry: Inquiry, why: WhyQuestion, job: str) -> Sequence[SectionFacts]:
    """Its diagnosis and, where there are some, its traces."""
    found: list[SectionFacts] = [_draw_diagnosis(inquiry, why, job)]
    if why.traces:
        found.append(_draw_traces(inquiry, why, job))
    return found


def _draw_diagnosis(inquiry: Inquiry, why: WhyQuestion, job: str) -> WhyFacts:
    found = diagnose_books(why.books, job, None, inquiry.window, progress=why.progress)
    (one,) = found.jobs
    lead = say_job(one, found.currency)
    tables = []
    if one.findings:
        first = explain(one.findings[0])
        lead += f" {first.lead}"
        tables.append(list_findings(one.findings, found.currency))
    elif one.cannot_tell:
        missing = sorted({name for each in one.cannot_tell for name in each.missing})
        lead += f" Not measured: {', '.join(missing)}."
    ask = Suggestion(
        f"loadfactor diagnose --job {quote(job)} {inquiry.span_options}",
        "every cause with its evidence, and what cannot be told",
    )
    section = Section("Why not fuller", lead, tables=tables, suggestions=(ask,))
    return WhyFacts("why", section, (), diagnosis=found, savings=None)


def _draw_traces(inquiry: Inquiry, why: WhyQuestion, job: str) -> TraceFacts:
    traced = read_traces(why.traces, read_rate(why.books, job, inquiry.window))
    assert traced.in_books is not None
    costs = list_costs(traced.in_books)
    names = " ".join(quote(str(path)) for path in why.traces)
    ask = Suggestion(
        f"loadfactor diagnose {names} --job {quote(job)} {inquiry.span_options}",
        "their steps, kernels, ranks and owners",
    )
    section = replace(
        costs, title="What its traces say", lead=f"{say_verdict(traced)} {costs.lead}", suggestions=(ask,)
    )
    return TraceFacts("traces", section, (), traced=traced)
