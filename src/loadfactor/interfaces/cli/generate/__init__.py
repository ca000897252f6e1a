"""`loadfactor generate …`: files for where people already look, one module each, listed in `GENERATED`."""

import typer

from loadfactor.interfaces.cli.lazy import CommandEntry, LazyGroup, add_group

GENERATED = (
    CommandEntry(
        "grafana",
        "loadfactor.interfaces.cli.generate.grafana",
        "Write dashboards for Grafana and what has it load them.",
    ),
    CommandEntry(
        "prometheus-rules",
        "loadfactor.interfaces.cli.generate.prometheus_rules",
        "Write the rules of alerts as rules for Prometheus.",
    ),
)


class Generated(LazyGroup):
    """What can be generated."""

    entries = GENERATED


def add_to(app: typer.Typer) -> None:
    """Add `generate` and what can be generated."""
    add_group(app, "generate", Generated, "Write dashboards for Grafana and alerting rules for Prometheus.")
