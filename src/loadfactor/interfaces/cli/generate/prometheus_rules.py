"""`loadfactor generate prometheus-rules`: the rules of alerts for those who alert with Prometheus."""

from pathlib import Path
from typing import Annotated

import typer

from loadfactor.base.errors import InputError, no_such
from loadfactor.interfaces.cli.books_request import STORE_HELP
from loadfactor.interfaces.cli.generate.books_currency import find_currency

AGAINST = ("loadfactor", "dcgm")
ABOUT = (
    "Write the rules of alerts as rules for Prometheus, to a file or to standard output.\n\n"
    "They are the rules of `loadfactor alerts`, with what [[alert]] in loadfactor.toml changes and adds."
)


def add_to(app: typer.Typer) -> None:
    """Add `prometheus-rules`."""

    @app.command("prometheus-rules", help=ABOUT)
    def run(
        against: Annotated[
            str,
            typer.Option(
                metavar="|".join(AGAINST),
                help="Whose series they read: /metrics of `loadfactor up`, or dcgm-exporter and kube-state-metrics.",
            ),
        ] = AGAINST[0],
        output: Annotated[
            Path | None, typer.Option("--output", "-o", help="File to write; without it they are printed.")
        ] = None,
        runbooks: Annotated[
            str | None, typer.Option(help="Address of these docs where you host them; alerts then link to runbooks.")
        ] = None,
        currency: Annotated[
            str | None, typer.Option(help="Currency of the books: EUR. [default: that of the store]")
        ] = None,
        store: Annotated[Path | None, typer.Option(help=STORE_HELP, show_default=False)] = None,
    ) -> None:
        if against not in AGAINST:
            raise no_such("target", against, AGAINST)
        print_rules(against, output, runbooks or "", find_currency(currency, store))


def print_rules(against: str, output: Path | None, runbooks: str, currency: str) -> None:
    """Write the file, or print it. Raises InputError where it cannot be written."""
    from loadfactor.insight.alerts.configured import configure
    from loadfactor.insight.alerts.rules import RULES
    from loadfactor.interfaces.output_files import replacing
    from loadfactor.interfaces.prometheus_rules.target import write_for
    from loadfactor.settings.config import settings

    text, said, unsaid = write_for(against, configure(RULES, settings().alert), currency, runbooks)
    if output is None:
        typer.echo(text, nl=False)
        return
    if output.is_dir():
        raise InputError(f"--output {output}: is a folder; name a file in it, like {output}/loadfactor.rules.yml")
    with replacing(output) as beside:
        beside.write_text(text, encoding="utf-8")
    left = f"; {unsaid} that PromQL cannot say are named in it, with the reason" if unsaid else ""
    typer.echo(f"Wrote {said} rules into {output}{left}. Name the file under rule_files in prometheus.yml.")
