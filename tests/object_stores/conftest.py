"""The object stores of a session: S3 and, where it is installed, Azurite."""

import os
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.object_stores.servers import AZURITE, BUCKET, serve_azure, serve_s3

ROUNDS = int(os.environ.get("STORE_ROUNDS", "100"))


@pytest.fixture(scope="module", params=["s3", "az"])
def prefix(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A URL under which every test takes a prefix; the environment names the server."""
    with ExitStack() as opened, pytest.MonkeyPatch.context() as patched:
        if request.param == "s3":
            names = opened.enter_context(serve_s3())
        else:
            assert AZURITE.exists(), "run `make object-stores`, which installs Azurite"
            names = opened.enter_context(serve_azure(tmp_path_factory.mktemp("azurite")))
        for name, value in names.items():
            patched.setenv(name, value)
        patched.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield f"{request.param}://{BUCKET}"
