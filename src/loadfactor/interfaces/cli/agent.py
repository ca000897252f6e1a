"""`loadfactor agent`: samples this machine's GPUs for a server or for Prometheus. The agent reads its options itself."""

import typer

from loadfactor_agent.main import main

ABOUT = "Sample this machine's GPUs for a server or for Prometheus."


def add_to(app: typer.Typer) -> None:
    """Add `agent`."""

    @app.command(
        "agent",
        help=ABOUT,
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    )
    def agent(context: typer.Context) -> None:
        main(context.args, "loadfactor agent")
