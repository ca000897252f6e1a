"""The command line: `COMMANDS` lists the commands in the order a newcomer reads them; `main` runs them."""

from typing import Annotated

import typer

from loadfactor import __version__
from loadfactor.interfaces.cli.lazy import CommandEntry, LazyGroup

COMMANDS = (
    CommandEntry("init", "loadfactor.interfaces.cli.init", "Look around and write a first loadfactor.toml."),
    CommandEntry("demo", "loadfactor.interfaces.cli.demo", "Simulate a fleet of about 200 GPUs and print its report."),
    CommandEntry(
        "import", "loadfactor.interfaces.cli.import_", "Read files into the books, or nothing where they are wrong."
    ),
    CommandEntry(
        "report", "loadfactor.interfaces.cli.report", "Show how full the fleet was, what it cost and who waited."
    ),
    CommandEntry(
        "show", "loadfactor.interfaces.cli.show", "Show metrics, in all or split by device, team, day and others."
    ),
    CommandEntry(
        "waterfall",
        "loadfactor.interfaces.cli.waterfall",
        "Show where what was paid went, on the way to what was useful.",
    ),
    CommandEntry(
        "savings",
        "loadfactor.interfaces.cli.savings",
        "Show what to change, and what each change would have saved of what was lost.",
    ),
    CommandEntry(
        "waits",
        "loadfactor.interfaces.cli.waits",
        "Show how long jobs waited, and how long one in the queue may have to.",
    ),
    CommandEntry(
        "budget", "loadfactor.interfaces.cli.budget", "Show what budgets have spent, their forecast and unusual days."
    ),
    CommandEntry(
        "project",
        "loadfactor.interfaces.cli.project",
        "Show what projects were planned to cost, cost so far, and come to.",
    ),
    CommandEntry(
        "owned", "loadfactor.interfaces.cli.owned", "Show what owned GPUs cost an hour, by assumed and measured load."
    ),
    CommandEntry(
        "bill",
        "loadfactor.interfaces.cli.bill",
        "Look into bills: what commitments saved, and what bills and the books disagree about.",
    ),
    CommandEntry(
        "alerts",
        "loadfactor.interfaces.cli.alerts",
        "Show what fires and why, silence it, and say what would have fired in the past.",
    ),
    CommandEntry(
        "diagnose",
        "loadfactor.interfaces.cli.diagnose",
        "Say why GPUs were not fuller, from the books or from traces.",
    ),
    CommandEntry(
        "check", "loadfactor.interfaces.cli.check", "Say what each configured source gives and what is missing."
    ),
    CommandEntry(
        "up", "loadfactor.interfaces.cli.up", "Collect live, keep the books current and serve them over HTTP."
    ),
    CommandEntry(
        "record", "loadfactor.interfaces.cli.record", "Run a command and show what it cost and how full its GPUs were."
    ),
    CommandEntry(
        "agent", "loadfactor.interfaces.cli.agent", "Sample this machine's GPUs for a server or for Prometheus."
    ),
    CommandEntry("top", "loadfactor.interfaces.cli.top", "Show live what GPUs, nodes, jobs and teams do."),
    CommandEntry("metrics", "loadfactor.interfaces.cli.metrics", "List every metric with its unit and meaning."),
    CommandEntry("tables", "loadfactor.interfaces.cli.tables", "List the tables that your own data is imported as."),
    CommandEntry(
        "catalog",
        "loadfactor.interfaces.cli.catalog",
        "List the known models, accelerators, prices or types of instances.",
    ),
    CommandEntry("doctor", "loadfactor.interfaces.cli.doctor", "Check that the books balance and say what is missing."),
    CommandEntry(
        "chargeback", "loadfactor.interfaces.cli.chargeback", "Charge the bill to teams and pools, cent by cent."
    ),
    CommandEntry(
        "untagged",
        "loadfactor.interfaces.cli.tagging",
        "List held GPU-hours and cost without an experiment, by who could fix them.",
    ),
    CommandEntry(
        "retag",
        "loadfactor.interfaces.cli.tagging",
        "Apply the rules and the mapping of today to what is in the books already.",
    ),
    CommandEntry(
        "imports",
        "loadfactor.interfaces.cli.imports",
        "List what was read into the books, with the number of each import.",
    ),
    CommandEntry("forget", "loadfactor.interfaces.cli.imports", "Take an import out of the books again, whole."),
    CommandEntry(
        "token", "loadfactor.interfaces.cli.token", "Create, list and revoke the tokens that a server asks for."
    ),
    CommandEntry(
        "pseudonym", "loadfactor.interfaces.cli.pseudonym", "Make the key of pseudonyms, and say with it who is who."
    ),
    CommandEntry("compact", "loadfactor.interfaces.cli.upkeep", "Merge the files of the books that belong together."),
    CommandEntry(
        "repair", "loadfactor.interfaces.cli.upkeep", "Put damaged files into quarantine and make good what can be."
    ),
    CommandEntry(
        "backup",
        "loadfactor.interfaces.cli.upkeep",
        "Copy the books into a new folder, also while they are read and written.",
    ),
    CommandEntry(
        "generate",
        "loadfactor.interfaces.cli.generate",
        "Write dashboards for Grafana and alerting rules for Prometheus.",
    ),
    CommandEntry(
        "plan", "loadfactor.interfaces.cli.plan", "Plan training, serving, the size of a cluster, and owning it."
    ),
    CommandEntry(
        "validate",
        "loadfactor.interfaces.cli.validate",
        "Compare predictions with measurements, published or your own.",
    ),
)


class Commands(LazyGroup):
    """The commands of loadfactor."""

    entries = COMMANDS


app = typer.Typer(
    name="loadfactor",
    help="Keeps the books of a GPU fleet: how full, at what cost, why not fuller, and should you scale at all.",
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(given: bool) -> None:
    if given:
        typer.echo(f"loadfactor {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options that stand before a command."""


def main() -> None:
    """Run the command line and exit with its code; mistakes are one line on stderr, never a traceback."""
    from loadfactor.interfaces.cli.leave import run_and_leave

    run_and_leave(app)
