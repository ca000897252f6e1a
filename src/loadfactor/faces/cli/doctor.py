"""`loadfactor doctor`: can the books be trusted?"""

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from loadfactor.faces.cli.asking import StoreFolder, books
from loadfactor.faces.formats import money, number

if TYPE_CHECKING:
    from loadfactor.books.check import Balance

MARKS = {"wrong": "[red]✗[/]", "missing": "[yellow]![/]", "note": "·"}


def add_to(app: typer.Typer) -> None:
    """Hang `doctor` under the command line."""
    app.command("doctor")(run)


def run(
    store: StoreFolder = None,
    output: Annotated[str, typer.Option("--format", help="terminal or json")] = "terminal",
) -> None:
    """Check that the books balance and say what is missing.

    Exits with 1 when they do not balance.
    """
    from loadfactor.books.check import balance, findings

    asked = books(store)
    found = list(findings(asked))
    both = balance(asked)
    sound = both.holds and not any(f.grade == "wrong" for f in found)
    if output == "json":
        body = {
            "balances": both.holds,
            "installed_gpu_hours": both.installed_gpu_hours,
            "booked_gpu_hours": both.booked_gpu_hours,
            "residual_gpu_hours": both.residual_gpu_hours,
            "installed_cost": both.installed_cost,
            "booked_cost": both.booked_cost,
            "residual_cost": both.residual_cost,
            "findings": [{"grade": f.grade, "what": f.what, "do": f.do} for f in found],
        }
        typer.echo(json.dumps(body, indent=1))
    else:
        console = Console(highlight=False)
        verdict = "[green]the books balance[/]" if both.holds else "[red]the books do not balance[/]"
        console.print(
            f"{verdict}: {number(both.booked_gpu_hours, 6)} of {number(both.installed_gpu_hours, 6)} GPU-hours booked"
            f" (residual {both.residual_gpu_hours:.1e}), {_dollars(both)}"
        )
        table = Table(box=None, pad_edge=False, show_header=False)
        for finding in found:
            table.add_row(MARKS[finding.grade], escape(finding.what), Text(finding.do, style="dim"))
        console.print(table)
    if not sound:
        raise typer.Exit(1)


def _dollars(both: "Balance") -> str:
    """Both sides in dollars, or why there are none."""
    if both.residual_cost is None:
        return "dollars unknown: GPUs without a price are among those held"
    return f"{money(both.booked_cost)} of {money(both.installed_cost)}"
