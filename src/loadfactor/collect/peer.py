"""The other server of a pair, which receives the same: its books are copied beside ours, and what we lack is brought over."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import httpx

from loadfactor.base.errors import DamageError
from loadfactor.collect.http_fetch import FetchError, read_token
from loadfactor.collect.polling import PolledSource
from loadfactor.settings.server import PairSettings
from loadfactor.store import disk
from loadfactor.store.manifest import NAME, OWN_NAME, checksum_file, is_booked, understand, write_down
from loadfactor.store.source_status import SourceStatus

COPY: Final = "peer"
"""The folder in a store with the copy of the other one."""
STORE_FILES: Final = "/api/v1/store"
"""Where a server gives the manifest of its store, and the files that it names."""
LONGEST_ANSWER_S: Final = 30.0


class PeerServer:
    """Asks the other server. Its methods wait; they raise FetchError in one line."""

    def __init__(self, pair: PairSettings) -> None:
        self.url = pair.peer.rstrip("/")
        self._token_file = pair.bearer_token_file
        self._client = httpx.Client(timeout=LONGEST_ANSWER_S, trust_env=False)

    def get(self, path: str, seen: str = "") -> tuple[str, bytes] | None:
        """The version and content of an answer; None where it is the version that was `seen`."""
        with self._stream(path, seen) as answer:
            if answer.status_code == httpx.codes.NOT_MODIFIED:
                return None
            return answer.headers.get("etag", ""), answer.read()

    def fetch(self, path: str, into: Path) -> None:
        """Write an answer into a file."""
        with self._stream(path) as answer, into.open("wb") as file:
            for piece in answer.iter_bytes():
                file.write(piece)

    @contextmanager
    def _stream(self, path: str, seen: str = "") -> Iterator[httpx.Response]:
        headers = read_token(self._token_file, "the other server") | ({"If-None-Match": seen} if seen else {})
        try:
            with self._client.stream("GET", f"{self.url}{path}", headers=headers) as answer:
                if answer.status_code not in (httpx.codes.OK, httpx.codes.NOT_MODIFIED):
                    answer.read()
                    raise FetchError(f"{self.url}{path}: {answer.status_code} {answer.text[:200].strip()}")
                yield answer
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise FetchError(f"{self.url} does not answer ({error or type(error).__name__})") from error


def copy_store(peer: PeerServer, target: Path, seen: str = "") -> str:
    """Bring the copy of another server's store up to date, its ledger and sums left out but for days without samples; the version.

    `seen`: the version of the copy, which costs nothing where it is still that. Raises FetchError, also where files went meanwhile:
    the next call copies what there is then.
    """
    found = peer.get(f"{STORE_FILES}/{NAME}", seen)
    if found is None:
        return seen
    version, content = found
    manifest = understand(content, Path(f"{peer.url}{STORE_FILES}/{NAME}"))
    dropped = manifest.dropped
    kept = replace(manifest, files=tuple(f for f in manifest.files if not is_booked(f.table) or dropped.has_booked(f)))
    disk.make_folder(target)
    for file in kept.files:
        path = target / file.name
        if not path.exists():
            arriving = target / f"{file.name}.tmp"
            peer.fetch(f"{STORE_FILES}/{file.name}", arriving)
            if checksum_file(arriving) != file.crc32:
                raise DamageError(
                    f"{peer.url}{STORE_FILES}/{file.name} is not what was written there; run `loadfactor repair` there"
                )
            disk.rename(arriving, path)
    arriving = target / f"{NAME}.tmp"
    disk.write_file(arriving, write_down(kept))
    disk.rename(arriving, target / NAME)
    named = {file.name for file in kept.files}
    for path in target.iterdir():
        if OWN_NAME.fullmatch(path.name.removesuffix(".tmp")) and path.name not in named:
            disk.remove(path)
    return version


class PeerRows(PolledSource):
    """Brings over what the other server has and this one lacks."""

    def __init__(
        self,
        pair: PairSettings,
        folder: Path,
        merge: Callable[[Path, int], int],
        before: Mapping[str, SourceStatus],
    ) -> None:
        """`folder`: our store; `merge` adds what a copy of the other one got since an instant, and gives its newest."""
        super().__init__(f"peer {pair.label}", ("",), pair.every.s, None, before)
        self._peer, self._copy, self._merge = PeerServer(pair), folder / COPY, merge
        self._version, self._newest_ms = "", 0

    def poll(self) -> None:
        self._attempt("", self._bring_over)

    def _bring_over(self) -> str:
        version = copy_store(self._peer, self._copy, self._version)
        if version != self._version:
            self._newest_ms = self._merge(self._copy, self._newest_ms)
            self._version = version
        return ""
