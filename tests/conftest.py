"""What every test may use."""

import fcntl
import gc
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from tests.commands import Run, make_run, worked_example
from tests.real_data import find_shared
from tests.simulator.truth import Truth, truth

from loadfactor.books.books import Books
from loadfactor.settings import config
from loadfactor.settings.config import CHOSEN
from loadfactor.simulator import SMALL, simulate, write_tables

settings.load_profile("ci")  # without deadlines, and the same examples every time: results count, not seconds
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def pytest_collection_finish() -> None:
    """Leave what was imported and collected to itself: the collector of garbage would go through all of it again and again."""
    gc.freeze()


@pytest.fixture(autouse=True)
def own_settings() -> Iterator[None]:
    """The settings that a test chose, or read in its folder, end with it."""
    path = CHOSEN.path
    yield
    CHOSEN.path = path
    config.settings.cache_clear()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data and published measurements beside the checkout."""
    return find_shared()


def build_once(factory: pytest.TempPathFactory, name: str, build: Callable[[Path], object]) -> Path:
    """Build a folder once per run of the tests: the worker that asks first builds it, the others wait for it."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "built").exists():
            build(folder)
            (folder / "built").touch()
    return folder


@pytest.fixture(scope="session")
def simulated_truth() -> Truth:
    """A small simulated fleet, and what is known to be true of it."""
    return truth(simulate(SMALL))


@pytest.fixture(scope="session")
def simulated_books(simulated_truth: Truth, tmp_path_factory: pytest.TempPathFactory) -> Books:
    """The books of that fleet, imported as tables through the same door as everybody's. Only read them."""

    def build(folder: Path) -> None:
        write_tables(simulated_truth.sim, folder / "tables")
        Books(folder / "books").add("tables", [folder / "tables"])

    return Books(build_once(tmp_path_factory, "simulated", build) / "books")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command line in this process: exit code, standard output, standard error."""
    return make_run(capsys, monkeypatch)


@pytest.fixture(scope="session")
def october(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The books of three days of eight GPUs, examples/october. Only read them."""

    def build(folder: Path) -> None:
        Books(folder / "books").add("tables", [EXAMPLES / "october"])

    return build_once(tmp_path_factory, "october", build) / "books"


@pytest.fixture(scope="session")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The books of the worked example. Only read them."""

    def build(folder: Path) -> None:
        Books(folder / "books").add("tables", [worked_example(folder / "tables")])

    return build_once(tmp_path_factory, "worked", build) / "books"


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 and its key."""
    folder = tmp_path_factory.mktemp("tls")
    words = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -addext subjectAltName=IP:127.0.0.1"
    try:
        subprocess.run(
            [*words.split(), "-keyout", "key.pem", "-out", "cert.pem"], cwd=folder, check=True, capture_output=True
        )
    except FileNotFoundError:
        pytest.skip("no openssl here")
    return folder / "cert.pem", folder / "key.pem"
