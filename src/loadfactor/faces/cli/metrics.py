"""`loadfactor metrics`: every metric, its unit and meaning, from the declarations themselves."""

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table


def add_to(app: typer.Typer) -> None:
    """Hang `metrics` under the command line."""
    app.command("metrics")(run)


def run(output: Annotated[str, typer.Option("--format", help="terminal or json")] = "terminal") -> None:
    """List every metric with its unit and meaning.

    Its direction, too: whether higher or lower is better.
    """
    from loadfactor.metrics import METRICS

    if output == "json":
        rows = [
            {
                "name": m.name,
                "unit": m.unit,
                "title": m.title,
                "meaning": m.meaning,
                "better": m.better,
                "topic": m.topic,
            }
            for m in METRICS
        ]
        typer.echo(json.dumps(rows, indent=1))
        return
    console = Console(highlight=False)
    for topic in dict.fromkeys(m.topic for m in METRICS):
        table = Table(
            title=topic, title_justify="left", title_style="bold", box=None, pad_edge=False, show_header=False
        )
        table.add_column(no_wrap=True)
        table.add_column(style="dim")
        for m in (m for m in METRICS if m.topic == topic):
            better = "" if m.better == "neither" else f" {m.better.capitalize()} is better."
            table.add_row(m.name, f"{m.meaning}{better}")
        console.print(table)
        console.print()
    console.print("any cost_per_<unit> of a unit in your progress table is a metric too", style="dim")
