"""`loadfactor up`: collects, keeps the books current and serves them, until it is told to stop."""

from pathlib import Path
from typing import Annotated

import typer

from loadfactor.interfaces.cli.books_request import STORE_HELP, find_store

ABOUT = (
    "Collect live, keep the books current and serve them over HTTP.\n\n"
    "Runs until it is told to stop. Prometheus, VictoriaMetrics and collectors send to /api/v1/write (remote_write); "
    "servers in the configuration are asked by it."
)
LISTEN = "127.0.0.1:9417"


def add_to(app: typer.Typer) -> None:
    """Add `up`."""

    @app.command("up", help=ABOUT)
    def up(
        store: Annotated[Path | None, typer.Option(help=STORE_HELP)] = None,
        listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where it listens. Port 0 takes any.")] = LISTEN,
        config: Annotated[
            Path | None, typer.Option(metavar="FILE", help="The configuration. [default: loadfactor.toml]")
        ] = None,
    ) -> None:
        from loadfactor.interfaces.server.run import serve
        from loadfactor.settings.config import choose_file, settings

        chosen = settings() if config is None else choose_file(config)
        folder = chosen.store if store is None and config is not None else find_store(store)
        serve(folder, listen, chosen)
