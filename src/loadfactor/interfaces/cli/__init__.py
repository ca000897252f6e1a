"""The command line: `COMMANDS` lists the commands in the order a newcomer reads them; `main` runs them."""

import gc

GARBAGE_FROM = 200_000
"""Objects kept before garbage is looked for: what a start imports is none, and is gone through again and again by default."""
gc.set_threshold(GARBAGE_FROM)

from typing import Annotated  # noqa: E402 (a quarter of the time to show a help is to import what follows)

import typer  # noqa: E402

from loadfactor import __version__  # noqa: E402
from loadfactor.interfaces.cli.commands import CommandEntry, LazyGroup  # noqa: E402

COMMANDS = (
    CommandEntry(
        "init",
        "Look around and write a first loadfactor.toml.\n\n"
        "Looks for an NVIDIA driver, dcgm-exporter (port 9400), Prometheus (port 9090), Slurm and Kubernetes, for a "
        "second at most.",
        "loadfactor.interfaces.pages.first_configuration.build_page",
        "loadfactor.interfaces.requests.InitRequest",
    ),
    CommandEntry(
        "demo",
        "Simulate a fleet of about 200 GPUs and print its report.\n\nTwo weeks of it; then it says what to try next.",
        "loadfactor.interfaces.cli.actions.build_demo",
        "loadfactor.interfaces.requests.DemoRequest",
    ),
    CommandEntry(
        "import",
        "Read files into the books, or nothing where they are wrong.\n\nThe same file twice adds nothing. Sources:",
        "loadfactor.interfaces.cli.importing.build_page",
        "loadfactor.interfaces.requests.ImportRequest",
        more="loadfactor.interfaces.cli.importing.list_sources",
    ),
    CommandEntry(
        "report",
        "Show how full the fleet was, what it cost and who waited.\n\n"
        "From paid to useful, over time, by team, queue waits, unit costs, jobs, data quality, what to try next.",
        "loadfactor.interfaces.reports.page.build_page",
        "loadfactor.interfaces.requests.ReportRequest",
    ),
    CommandEntry(
        "seff",
        "Show one job in ten lines: state, GPUs, utilization, memory, cost, and one finding.\n\n"
        "By its id in Slurm, of an array or a het job each part; from the books, or from a server with --server. What is not"
        " known is said. --notice is for a line in epilogs.",
        "loadfactor.interfaces.cli.actions.build_seff",
        "loadfactor.interfaces.requests.SeffRequest",
    ),
    CommandEntry(
        "users",
        "List users with their GPU-hours, cost, utilization and idle time; --wasteful: those that the rule names.\n\n"
        "The rule is [wasteful] of loadfactor.toml: low utilization over enough GPU-hours, or many idle GPU-hours; users in"
        " opt_out of [notices] are counted and not named.",
        "loadfactor.interfaces.pages.users.build_page",
        "loadfactor.interfaces.requests.UsersRequest",
    ),
    CommandEntry(
        "digest",
        "Show what people get sent of the last day, week or month: what it cost, the largest wastes, what changed.\n\n"
        "For whoever runs the fleet, a team or a user. What is sent to whom, and when, are tables [[digest]] of"
        " loadfactor.toml; --dry-run prints it.",
        "loadfactor.interfaces.digests.page.build_page",
        "loadfactor.interfaces.requests.DigestRequest",
    ),
    CommandEntry(
        "show",
        "Show metrics, in all or split by device, team, day and others.",
        "loadfactor.interfaces.pages.readings.build_page",
        "loadfactor.interfaces.requests.ShowRequest",
    ),
    CommandEntry(
        "waterfall",
        "Show where what was paid went, on the way to what was useful.\n\n"
        "On the way it was held, observed, not idle, active, math (MFU) and kept. Losses, what nobody knows and what"
        " was useful add up to what was paid, in GPU-hours and money. The order is fixed: each step takes from what "
        "the one before left. Networks of jobs are named by [[network]] in loadfactor.toml.",
        "loadfactor.interfaces.pages.waterfall.build_page",
        "loadfactor.interfaces.requests.BooksRequest",
    ),
    CommandEntry(
        "compare",
        "Show two runs side by side: speed, MFU, unit costs, fullness and causes.\n\n"
        "Jobs, experiments, teams or weeks (2026-W41). It begins with which is better by how much in money for a unit, and "
        "why; what one of them lacks stays unknown.",
        "loadfactor.interfaces.pages.compare.build_page",
        "loadfactor.interfaces.requests.RunsRequest",
    ),
    CommandEntry(
        "why-changed",
        "Show why a metric changed: volume, price, fullness, mix, coverage, late data, rules, and who is behind each.\n\n"
        "The window beside the equally long one before it, or --against another one; a month also beside what it was "
        "closed as. Parts add up to the change: money to the cent, others to nine digits.",
        "loadfactor.interfaces.pages.why_changed.build_page",
        "loadfactor.interfaces.requests.WhyChangedRequest",
    ),
    CommandEntry(
        "savings",
        "Show what to change, and what each change would have saved of what was lost.\n\n"
        "Levers are applied one after another, so that what one took the next cannot save: their sum is never more "
        "than the losses of the waterfall. What nobody observed, counted or priced is never saved. Levers that were "
        "pulled, [[lever]] in loadfactor.toml, are followed up: work per dollar before and after.",
        "loadfactor.interfaces.insights.build_savings_page",
        "loadfactor.interfaces.requests.SavingsRequest",
    ),
    CommandEntry(
        "waits",
        "Show how long jobs waited, and how long one in the queue may have to.\n\n"
        "Jobs that wait still or were cancelled waiting count as having waited at least so long: medians and "
        "quantiles are Kaplan–Meier estimates with 95 % intervals. With --job: how much longer jobs like it waited "
        "that had waited as long.",
        "loadfactor.interfaces.pages.waits.build_page",
        "loadfactor.interfaces.requests.WaitsRequest",
    ),
    CommandEntry(
        "forecast",
        "Show GPU-hours, cost and waits of the next weeks, with ranges, and when pools run out.\n\n"
        "Ranges hold four weeks of five: they are as wide as the history's own errors were. Needs three weeks of "
        "history. --new-team says what a team of so many GPUs would do to the queue.",
        "loadfactor.interfaces.plans.forecast.build_page",
        "loadfactor.interfaces.requests.ForecastRequest",
    ),
    CommandEntry(
        "budget",
        "Show what budgets have spent, their forecast and unusual days.\n\n"
        "Budgets are tables [[budget]] of loadfactor.toml. Charges of a bill count where one was imported, else the "
        "ledger's cost. Leaves with 1 where one is overspent.",
        "loadfactor.interfaces.pages.budgets.build_budget_page",
        "loadfactor.interfaces.requests.BudgetRequest",
    ),
    CommandEntry(
        "project",
        "Show what projects were planned to cost, cost so far, and come to.\n\n"
        "Projects are tables [[project]] of loadfactor.toml: runs with their retries, evaluation, storage, staff, "
        "GPU-hours and price.",
        "loadfactor.interfaces.pages.budgets.build_project_page",
        "loadfactor.interfaces.requests.ProjectRequest",
    ),
    CommandEntry(
        "owned",
        "Show what owned GPUs cost an hour, by assumed and measured load.\n\n"
        "Owned GPUs are tables [[owned]] of loadfactor.toml; their prices follow from the equations of `loadfactor "
        "plan own`.",
        "loadfactor.interfaces.pages.bills.build_owned_page",
        "loadfactor.interfaces.requests.StoreRequest",
    ),
    CommandEntry(
        "bill",
        "Look into bills: what commitments saved, what bills and the books disagree about, who is charged what.",
        commands=(
            CommandEntry(
                "commitments",
                "Show what commitments, reservations and spot capacity saved.\n\n"
                "Effective savings rate, coverage, utilization and unused cost of each, by the bills that were "
                "imported. With --commit-price, without a bill too: how many GPUs to commit to or own by the hours that "
                "were held, and the regret of having chosen otherwise.",
                "loadfactor.interfaces.pages.bills.build_commitments_page",
                "loadfactor.interfaces.requests.CommitmentsRequest",
            ),
            CommandEntry(
                "compare",
                "List what bills and the books disagree about, in money.\n\n"
                "GPUs billed and never seen, seen and never billed, hours that differ, prices that differ from the "
                "contract.",
                "loadfactor.interfaces.pages.bills.build_comparison_page",
                "loadfactor.interfaces.requests.BillRequest",
            ),
            CommandEntry(
                "bridge",
                "Walk from the bill to what a budget has spent, each step with its amount.\n\n"
                "The bill, its lines of known GPUs, the cost of GPU-hours, what is charged directly and with shares of "
                "idle and the rest, the statement, the budget. The first amount and all changes sum to the last, to "
                "the cent.",
                "loadfactor.interfaces.pages.bridge.build_page",
                "loadfactor.interfaces.requests.BridgeRequest",
            ),
        ),
    ),
    CommandEntry(
        "alerts",
        "Show what fires and why, silence it, and say what would have fired in the past.\n\n"
        "Without a command: what fires now, as `loadfactor up` judged these books. It tells the receivers in "
        "loadfactor.toml.",
        "loadfactor.interfaces.pages.alerts.build_board_page",
        "loadfactor.interfaces.requests.AlertsRequest",
        commands=(
            CommandEntry(
                "test",
                "Replay a stretch of history and say what would have fired, when, for how long and in whose name.\n\n"
                "Rules are those of loadfactor.toml: the shipped ones, changed or switched off there, and those "
                "that [[alert]] adds.",
                "loadfactor.interfaces.pages.alerts.build_replay_page",
                "loadfactor.interfaces.requests.ReplayRequest",
            ),
            CommandEntry(
                "silences",
                "List what is silenced, until when, why and by whom.",
                "loadfactor.interfaces.pages.alerts.build_silences_page",
                "loadfactor.interfaces.requests.StoreRequest",
            ),
            CommandEntry(
                "silence",
                "Send nobody a message of some alerts for a time. They fire all the same, and the end of what was "
                "sent before is sent.\n\n"
                "Names may be patterns with * and ?. What still fires when the silence ends is sent then.",
                "loadfactor.interfaces.pages.alerts.build_silence_page",
                "loadfactor.interfaces.requests.SilencedRequest",
            ),
            CommandEntry(
                "unsilence",
                "End a silence now.",
                "loadfactor.interfaces.pages.alerts.build_unsilence_page",
                "loadfactor.interfaces.requests.LiftedRequest",
            ),
        ),
    ),
    CommandEntry(
        "diagnose",
        "Say why GPUs were not fuller, from the books or from traces.\n\n"
        "Without a trace: of a job, a team or the whole fleet, causes ranked by what was lost to them, with evidence, "
        "what speaks against them, what to change, and what cannot be told.\n\n"
        "Traces: Kineto or Chrome JSON of torch.profiler, XPlane of TensorFlow and JAX, exports of Nsight Systems "
        "(SQLite, Parquet, Arrow), gzip too; several ranks of a job together. Each device's time is divided exactly,"
        " the ranks are compared, causes are ranked with their evidence; what a trace cannot tell is said. The files"
        " are only read.",
        "loadfactor.interfaces.insights.build_diagnosis_page",
        "loadfactor.interfaces.requests.DiagnoseRequest",
    ),
    CommandEntry(
        "check",
        "Say what each configured source gives and what is missing.\n\n"
        "Exits with 1 when something that is configured cannot be reached. Changes nothing.",
        "loadfactor.interfaces.pages.sources_check.build_page",
        "loadfactor.interfaces.requests.SourcesRequest",
    ),
    CommandEntry(
        "up",
        "Collect live, keep the books current and serve them over HTTP.\n\n"
        "Runs until it is stopped. Prometheus, VictoriaMetrics and collectors send to /api/v1/write "
        "(remote_write); servers in the configuration are queried.",
        function="loadfactor.interfaces.cli.actions.up",
    ),
    CommandEntry(
        "serve",
        "Show books that are at rest in a browser.\n\n"
        "Pages from the fleet to one GPU, each also as JSON and CSV. Nothing is collected or written: `loadfactor up` "
        "shows the same live.",
        function="loadfactor.interfaces.cli.actions.serve",
    ),
    CommandEntry(
        "mcp",
        "Offer the books as tools to a model that speaks the Model Context Protocol.\n\n"
        "Over standard input and output, for a client that starts it; what `loadfactor up` answers to programs that read, "
        "and nothing that writes.",
        function="loadfactor.interfaces.cli.actions.offer_tools",
    ),
    CommandEntry(
        "record",
        "Run a command and show what it cost and how full its GPUs were.\n\n"
        "The GPUs it uses are sampled, what stood out is shown, and what was read is in the books. It ends with the "
        "command's exit code.",
        function="loadfactor.interfaces.cli.actions.record",
        settings={"context_settings": {"allow_interspersed_args": False}},
    ),
    CommandEntry(
        "agent",
        "Sample this machine's GPUs for a server or for Prometheus.",
        function="loadfactor.interfaces.cli.actions.agent",
        settings={
            "add_help_option": False,
            "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
        },
    ),
    CommandEntry(
        "metrics",
        "List every metric with its unit and meaning.",
        "loadfactor.interfaces.pages.lists.build_metrics",
    ),
    CommandEntry(
        "tables",
        "List the tables that your own data is imported as.\n\nEvery column, its unit, and what an empty cell means.",
        "loadfactor.interfaces.pages.lists.build_tables_page",
        "loadfactor.interfaces.requests.TablesRequest",
    ),
    CommandEntry(
        "settings",
        "List every setting of loadfactor.toml with its type, default and meaning.",
        "loadfactor.interfaces.pages.lists.build_settings",
    ),
    CommandEntry(
        "catalog",
        "List the known models, accelerators, prices or types of instances.\n\n"
        "Each with its source and date; take --json for every fact.",
        "loadfactor.interfaces.pages.lists.build_catalog",
        "loadfactor.interfaces.requests.CatalogRequest",
    ),
    CommandEntry(
        "doctor",
        "Check that the books balance and say what is missing.\n\n"
        "Exits with 1 when they do not balance or are damaged.",
        "loadfactor.interfaces.pages.books.build_doctor",
        "loadfactor.interfaces.requests.StoreRequest",
    ),
    CommandEntry(
        "chargeback",
        "Charge the bill to teams and pools, cent by cent.\n\n"
        "Every cent of the bill (without one, of price × installed time) is on one statement: an owner's, or that of"
        " a pool like unallocated, down, shared or untagged. [chargeback] in loadfactor.toml says who bears idle, "
        "spare and shared cost. Months are those of --timezone. --format focus writes the statements as a bill in FOCUS.",
        "loadfactor.interfaces.pages.chargeback.build_page",
        "loadfactor.interfaces.requests.ChargebackRequest",
        formats={"focus": "loadfactor.interfaces.pages.chargeback.write_focus"},
    ),
    CommandEntry(
        "statement",
        "Write what a team is charged for a month, as a page, PDF, spreadsheet or data.\n\n"
        "Lines with unit, hours and rate, direct and shared parts, corrections of earlier months that were closed, and the"
        " rules in words. Without --team: of every team and pool, which sum to the bill; a folder as --output takes a file of"
        " each. Versions are those that `chargeback --close` kept.",
        "loadfactor.interfaces.pages.statement.build_page",
        "loadfactor.interfaces.requests.StatementRequest",
    ),
    CommandEntry(
        "untagged",
        "List held GPU-hours and cost without an experiment, by who could fix them.\n\n"
        "The most expensive come first, with the rule that would tag them. Without a team, a project or a purpose: "
        "in all.",
        "loadfactor.interfaces.pages.tagging.build_untagged_page",
        "loadfactor.interfaces.requests.UntaggedRequest",
    ),
    CommandEntry(
        "retag",
        "Apply the rules and the mapping of today to what is in the books already.\n\n"
        "Rules are tables [[tag]] of loadfactor.toml, the mapping a CSV that [tagging] names there. Nothing is "
        "imported again; doing it twice changes nothing.",
        "loadfactor.interfaces.pages.tagging.build_retag_page",
        "loadfactor.interfaces.requests.RetagRequest",
    ),
    CommandEntry(
        "imports",
        "List what was read into the books, with the number of each import.",
        "loadfactor.interfaces.pages.books.build_imports_page",
        "loadfactor.interfaces.requests.StoreRequest",
    ),
    CommandEntry(
        "forget",
        "Take an import out of the books again, whole.\n\n"
        "What other imports hold of the same GPUs, jobs and times stays, or comes back. `loadfactor imports` lists "
        "the numbers.",
        "loadfactor.interfaces.pages.books.build_forget_page",
        "loadfactor.interfaces.requests.ForgetRequest",
    ),
    CommandEntry(
        "merge",
        "Add what another store holds and these books do not, import by import.\n\n"
        "For a server that received the same, and for books kept apart: a measurement that both have counts once. Done"
        " again, it adds nothing.",
        "loadfactor.interfaces.pages.books.build_merge_page",
        "loadfactor.interfaces.requests.MergeRequest",
    ),
    CommandEntry(
        "token",
        "Create, list and revoke the tokens that a server asks for.",
        commands=(
            CommandEntry(
                "create",
                "Create a token, shown once: the store keeps only a hash of it.\n\n"
                "With the first one the server of this store asks for a token. Send it as `Authorization: Bearer "
                "lf_…`.",
                "loadfactor.interfaces.pages.access.build_creation",
                "loadfactor.interfaces.requests.TokenCreateRequest",
            ),
            CommandEntry(
                "list",
                "List the tokens of a store, with their ids. The tokens themselves are kept nowhere.",
                "loadfactor.interfaces.pages.access.build_tokens",
                "loadfactor.interfaces.requests.StoreRequest",
            ),
            CommandEntry(
                "revoke",
                "Have a token admit nobody any more, at once.",
                "loadfactor.interfaces.pages.access.build_revocation",
                "loadfactor.interfaces.requests.TokenRevokeRequest",
            ),
        ),
    ),
    CommandEntry(
        "pseudonym",
        "Make the key of pseudonyms, and say with it who is who.",
        commands=(
            CommandEntry(
                "make-key",
                "Write a new key of pseudonyms into a file that its owner alone can read.\n\n"
                "Name it as key_file under [privacy] in loadfactor.toml. Who loses it cannot turn pseudonyms back.",
                "loadfactor.interfaces.pages.access.build_key",
                "loadfactor.interfaces.requests.KeyRequest",
            ),
            CommandEntry(
                "of",
                "Say which pseudonym a user has.",
                "loadfactor.interfaces.pages.access.build_pseudonyms",
                "loadfactor.interfaces.requests.PseudonymOfRequest",
            ),
            CommandEntry(
                "reveal",
                "Say which user a pseudonym stands for.",
                "loadfactor.interfaces.pages.access.build_names",
                "loadfactor.interfaces.requests.RevealRequest",
            ),
        ),
    ),
    CommandEntry(
        "compact",
        "Merge the files of the books that belong together.\n\nNo answer changes.",
        "loadfactor.interfaces.pages.books.build_compaction",
        "loadfactor.interfaces.requests.StoreRequest",
    ),
    CommandEntry(
        "retain",
        "Drop what is older than the settings in [retention] keep it.\n\n"
        "`loadfactor up` does so once a day. Days whose samples go keep their ledger, and every number of it, as it was booked.",
        "loadfactor.interfaces.pages.books.build_retention",
        "loadfactor.interfaces.requests.RetainRequest",
    ),
    CommandEntry(
        "ledger",
        "Book the ledger by days, as tasks in processes here or on a cluster.\n\n"
        "`plan` lists days that are stale, `book` books some, `publish` takes them into the ledger. Without it, imports book what"
        " they touch.",
        commands=(
            CommandEntry(
                "plan",
                "List the days that are stale, each a task.",
                "loadfactor.interfaces.pages.ledger_tasks.build_plan",
                "loadfactor.interfaces.requests.LedgerPlanRequest",
            ),
            CommandEntry(
                "book",
                "Book tasks: those named, or all that are stale, here or on an engine.\n\n"
                "What is booked waits beside the books for `publish`. A task that is booked already is left as it is.",
                "loadfactor.interfaces.pages.ledger_tasks.build_booking",
                "loadfactor.interfaces.requests.BookTasksRequest",
            ),
            CommandEntry(
                "publish",
                "Take what tasks booked into the ledger, in one step.\n\n"
                "What was booked of rows that have changed since is dropped, and stays stale.",
                "loadfactor.interfaces.pages.ledger_tasks.build_publication",
                "loadfactor.interfaces.requests.StoreRequest",
            ),
        ),
    ),
    CommandEntry(
        "rebuild",
        "Book every day of the ledger again, here or on an engine, and publish it.\n\nNo answer changes.",
        "loadfactor.interfaces.pages.ledger_tasks.build_rebuild",
        "loadfactor.interfaces.requests.RebuildRequest",
    ),
    CommandEntry(
        "repair",
        "Put damaged files into quarantine and make good what can be.\n\n"
        "Takes the newest generation of the books of which nothing is lost, also if an older manifest was put back; a lost one is "
        "rebuilt from the files. Exits with 1 if something is lost, and says which imports would bring it again.",
        "loadfactor.interfaces.pages.books.build_repair",
        "loadfactor.interfaces.requests.RepairRequest",
    ),
    CommandEntry(
        "backup",
        "Copy the books into a new folder, also while they are read and written.\n\n"
        "With live rows, alerts, silences, tokens and audit log. The copy is books like any other: `--store FOLDER` asks it.\n\n"
        "`--verify` opens the copy and compares it with the books; where it differs it leaves with 1.\n\n"
        "`loadfactor up` makes backups on a schedule by [backup], in a folder or a bucket.",
        "loadfactor.interfaces.pages.books.build_backup",
        "loadfactor.interfaces.requests.BackupRequest",
    ),
    CommandEntry(
        "restore",
        "Make books of a backup, in a new folder.\n\n"
        "Every file is compared with its checksum; the folder is whole, or not there.",
        "loadfactor.interfaces.pages.books.build_restored",
        "loadfactor.interfaces.requests.RestoreRequest",
    ),
    CommandEntry(
        "export",
        "Write the ledger, sums, readings or statements for other systems, as Parquet or CSV.\n\n"
        "A UTC day a part. Days whose rows are as they were are not written again, and a run that was ended goes on.\n\n"
        "`export openmetrics` writes what /metrics would have shown at each full hour into a file, for promtool to make "
        "blocks of: dashboards then start filled.",
        "loadfactor.interfaces.exports.page.build_page",
        "loadfactor.interfaces.requests.ExportRequest",
    ),
    CommandEntry(
        "generate",
        "Write dashboards for Grafana, and alerting rules for Prometheus.",
        commands=(
            CommandEntry(
                "grafana",
                "Write dashboards for Grafana, and the files that have it load them.\n\n"
                "They read a Prometheus that scrapes /metrics of `loadfactor up`: cluster, team, job, money and "
                "telemetry quality.",
                "loadfactor.interfaces.grafana.write.build_page",
                "loadfactor.interfaces.requests.GrafanaRequest",
            ),
            CommandEntry(
                "prometheus-rules",
                "Write the rules of alerts as rules for Prometheus, to a file or to standard output.\n\n"
                "They are the rules of `loadfactor alerts`, with what [[alert]] in loadfactor.toml changes and "
                "adds.",
                function="loadfactor.interfaces.cli.actions.prometheus_rules",
            ),
        ),
    ),
    CommandEntry(
        "plan",
        "Plan training, reinforcement learning, serving, the size of a cluster, and owning it.",
        commands=(
            CommandEntry(
                "train",
                "Plan a training run: the best layout, time, and cost.",
                "loadfactor.interfaces.plans.train.build_document",
                "loadfactor.planner.training.request.TrainingRequest",
            ),
            CommandEntry(
                "rl",
                "Plan reinforcement learning: rollouts and training, which part waits, and cost.\n\n"
                "On the same GPUs in turn, or each on its own, synchronous or some updates apart.",
                "loadfactor.interfaces.plans.rl.build_document",
                "loadfactor.planner.reinforcement.request.RlRequest",
            ),
            CommandEntry(
                "serve",
                "Plan a serving fleet: layout, replicas, latency, cost.",
                "loadfactor.interfaces.cli.actions.build_serving_plan",
                "loadfactor.planner.serving.request.ServingRequest",
            ),
            CommandEntry(
                "size",
                "Find the size of a cluster that can be kept full.\n\n"
                "Waits, utilization and cost of every size under your jobs.",
                "loadfactor.interfaces.plans.size.build_document",
                "loadfactor.planner.sizing.request.SizeRequest",
            ),
            CommandEntry(
                "books",
                "Plan the books themselves: rows, bytes, cores and cost of a fleet's size, and where one machine ends.",
                "loadfactor.interfaces.plans.books.build_document",
                "loadfactor.interfaces.plans.books.BooksPlanRequest",
            ),
            CommandEntry(
                "own",
                "Compare owning GPUs with renting them.\n\n"
                "What an owned GPU-hour costs, and how many to own for a demand.",
                "loadfactor.interfaces.plans.own.build_document",
                "loadfactor.planner.economics.request.OwnRequest",
            ),
            CommandEntry(
                "breakeven",
                "Compare serving a model yourself with an API.\n\n"
                "The utilization above which it pays, and the demand that takes.",
                "loadfactor.interfaces.plans.breakeven.build_document",
                "loadfactor.planner.economics.request.BreakEvenRequest",
            ),
        ),
    ),
    CommandEntry(
        "validate",
        "Compare predictions with measurements, published or your own.",
        commands=(
            CommandEntry(
                "train",
                "Compare predicted training speed and memory with measured ones, of tables or of a job of the books.",
                "loadfactor.interfaces.cli.actions.build_training_validation",
                "loadfactor.planner.validation.request.TrainingValidationRequest",
            ),
            CommandEntry(
                "memory",
                "Compare predicted memory with runs that ran: whether they fit, and their published peaks.",
                "loadfactor.interfaces.validations.training.build_memory_document",
                "loadfactor.planner.validation.request.MemoryValidationRequest",
            ),
            CommandEntry(
                "serve",
                "Compare predicted latency and throughput with measured ones.",
                "loadfactor.interfaces.cli.actions.build_serving_validation",
                "loadfactor.planner.validation.request.ServingValidationRequest",
            ),
            CommandEntry(
                "rl",
                "Compare predicted steps of reinforcement learning with published ones.",
                "loadfactor.interfaces.validations.rl.build_document",
                "loadfactor.planner.validation.request.RlValidationRequest",
            ),
            CommandEntry(
                "mfu",
                "Compare the MFU that papers print with what its formula gives.",
                "loadfactor.interfaces.validations.training.build_mfu_document",
                "loadfactor.planner.validation.request.MfuRequest",
            ),
        ),
    ),
)
"""Modules of pages and requests are imported when the command is run."""


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

    try:
        run_and_leave(app)
    finally:
        gc.freeze()  # what is left goes with the process: Python would look for garbage in it thrice
