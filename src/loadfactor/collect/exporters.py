"""Exporters: which ones a group has (a list, a name in DNS, files in the format of Prometheus' file_sd), and their pages."""

import asyncio
import glob
import ipaddress
import json
import os
import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from loadfactor.base.errors import InputError, LoadfactorError, say_why
from loadfactor.base.limits import shorten
from loadfactor.base.units import BYTES_PER_MIB, S_PER_MIN
from loadfactor.collect.http_fetch import (
    FetchBounds,
    FetchError,
    HttpAnswer,
    HttpRequest,
    RequestPool,
    fetch,
    read_token,
    write_address,
)
from loadfactor.collect.payloads import LARGEST_PAGE_BYTES
from loadfactor.settings.sources import LONGEST_SCRAPE_S, ExporterGroup, ServingEngines
from loadfactor.sources.prometheus.metrics_page import TargetLabels

if TYPE_CHECKING:
    from dns.asyncresolver import Resolver

USUAL_PATH: Final = "/metrics"
MOST_TARGETS: Final = 20_000
MOST_FILE_BYTES: Final = 16 * BYTES_PER_MIB
DNS_EVERY_S: Final = S_PER_MIN / 2
FILES_EVERY_S: Final = 5.0
LONGEST_LOOK_UP_S: Final = 10.0
KEPT_LABELS: Final = ("hostname", "instance", "job", "kubernetes_node", "node")
"""Labels of file_sd, in lower case, that are kept. Those of the exporter's own pod would make it the holder of its GPUs."""
_SHOWN_CHARACTERS: Final = 100
_ACCEPT: Final = "text/plain;version=0.0.4;q=1,*/*;q=0.1"


@dataclass(frozen=True)
class Target:
    """An exporter: where it listens, the path of its page, which begins with a slash, and labels for its rows."""

    host: str
    port: int
    path: str = USUAL_PATH
    is_tls: bool = False
    labels: TargetLabels = ()

    @property
    def address(self) -> str:
        """Host and port, as people write them."""
        return write_address(self.host, self.port)

    @property
    def name(self) -> str:
        """Where it listens, and its path where that is not the usual one."""
        return self.address + (self.path if self.path != USUAL_PATH else "")

    @property
    def url(self) -> str:
        """Where its page is."""
        return f"{'https' if self.is_tls else 'http'}://{self.address}{self.path}"


async def fetch_page(
    target: Target,
    pool: RequestPool,
    timeout_s: float = LONGEST_SCRAPE_S,
    token_file: Path | None = None,
    tls: ssl.SSLContext | None = None,
) -> HttpAnswer:
    """The page of an exporter, packed as it packed it. `tls` checks its certificate, where it has one.

    Raises FetchError, of a few words, also where it takes longer than `timeout_s`, and InputError where the token cannot be read.
    """
    headers = {"Accept": _ACCEPT, **read_token(token_file)}
    request = HttpRequest(target.host, target.port, target.path, tls if target.is_tls else None, headers)
    answer = await fetch(request, FetchBounds(LARGEST_PAGE_BYTES, timeout_s, timeout_s), pool)
    if answer.status != HTTPStatus.OK:
        text = "" if answer.is_gzip else answer.content[:_SHOWN_CHARACTERS].decode(errors="replace")
        raise FetchError(" ".join(f"answered {answer.status} {text}".split()))
    return answer


def trust_exporters(group: ExporterGroup) -> ssl.SSLContext:
    """Certificates that those of a group are checked against. Raises InputError where they cannot be read."""
    try:
        return ssl.create_default_context(cafile=group.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise InputError(f"ca_file {group.ca_file} of {group.label} cannot be read: {say_why(error)}") from error


def make_finder(group: ExporterGroup) -> "TargetFinder":
    """Make what finds the exporters of a group. Raises InputError where an address is none."""
    job = group.job if isinstance(group, ServingEngines) else group.name
    defaults = TargetDefaults(group.default_port, group.path, group.scheme == "https", job)
    if group.dns:
        if not group.dns.startswith("_"):
            split_address(group.dns, group.default_port)
        return NamedTargets(group.dns, defaults)
    if group.file_sd:
        return FileTargets(group.file_sd, defaults)
    return ListedTargets(drop_repeated([defaults.read(address) for address in group.targets]))


@dataclass(frozen=True)
class TargetDefaults:
    """Defaults of targets that do not give their own. `port` 0: every target gives its own."""

    port: int = 0
    path: str = USUAL_PATH
    is_tls: bool = False
    job: str = ""

    def read(self, address: str, names_node: bool = True, labels: Mapping[str, str] | None = None) -> Target:
        """The target at host:port; where `names_node`, its host is its node unless its page says one. Raises InputError."""
        host, port = split_address(address, self.port)
        if not self.path.startswith("/") or not self.path.isprintable() or " " in self.path:
            raise InputError(f"{shorten(self.path)} is no path of a page; it begins with a slash: /metrics")
        target = Target(host, port, self.path, self.is_tls)
        given = {"instance": target.address, "job": self.job, "node": host if names_node else ""} | dict(labels or {})
        return replace(target, labels=tuple(sorted((name, value) for name, value in given.items() if value)))


class FoundTargets(NamedTuple):
    """The exporters there are now; `error` says why some may be missing or gone."""

    targets: tuple[Target, ...]
    error: str = ""


class TargetFinder(Protocol):
    """Finds exporters again and again."""

    @property
    def every_s(self) -> float:
        """Seconds until it is worth looking again."""
        ...

    async def find(self) -> FoundTargets:
        """Those there are now; the last ones, with an error, where that cannot be found out."""
        ...


@dataclass(frozen=True)
class ListedTargets:
    """Exporters that the configuration names."""

    targets: tuple[Target, ...]
    every_s: float = float(S_PER_MIN)

    async def find(self) -> FoundTargets:
        """Always the same."""
        return FoundTargets(self.targets)


@dataclass
class NamedTargets:
    """Exporters behind a name: each address it has, or each host and port of its SRV records (_dcgm._tcp.example)."""

    name: str
    defaults: TargetDefaults
    resolver: "Resolver | None" = None  # for SRV records; that of the system where None
    every_s: float = DNS_EVERY_S
    _last: tuple[Target, ...] = ()

    async def find(self) -> FoundTargets:
        """Resolve the name."""
        try:
            async with asyncio.timeout(LONGEST_LOOK_UP_S):
                found = await (self._find_services() if self.name.startswith("_") else self._find_addresses())
        except TimeoutError:
            return FoundTargets(self._last, f"{self.name}: no answer of DNS within {LONGEST_LOOK_UP_S:g} s")
        except (LoadfactorError, OSError) as error:
            why = say_why(error)
            return FoundTargets(self._last, f"{self.name} is not found in DNS ({why})")
        self._last = found
        return FoundTargets(found)

    async def _find_addresses(self) -> tuple[Target, ...]:
        """Addresses of IPv4, or of IPv6 where there are none: a host that has both is one exporter."""
        host, port = split_address(self.name, self.defaults.port)
        records = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = sorted({ipaddress.ip_address(str(record[4][0]).partition("%")[0]) for record in records}, key=str)
        version = min(address.version for address in addresses)
        written = [f"[{a}]:{port}" if a.version == 6 else f"{a}:{port}" for a in addresses if a.version == version]
        return tuple(self.defaults.read(address, names_node=False) for address in written)

    async def _find_services(self) -> tuple[Target, ...]:
        from dns.asyncresolver import Resolver
        from dns.exception import DNSException

        try:
            answer = await (self.resolver or Resolver()).resolve(self.name, "SRV", search=True)
        except DNSException as error:
            raise InputError(f"{type(error).__name__}: {shorten(str(error))}") from error
        records = sorted((record.target.to_text(omit_final_dot=True), record.port) for record in answer)
        return tuple(self.defaults.read(f"{host}:{port}") for host, port in records)


class _ReadFile(NamedTuple):
    """A file as it was read: what changes with it, the last good list in it, and what is wrong with it now."""

    seen: tuple[int, ...]
    targets: tuple[Target, ...]
    error: str = ""


@dataclass
class FileTargets:
    """Exporters in files, JSON or YAML: a list of {"targets": [...], "labels": {...}}. Read again when they change."""

    patterns: tuple[str, ...]
    defaults: TargetDefaults
    every_s: float = FILES_EVERY_S
    _files: dict[str, _ReadFile] = field(default_factory=dict)

    async def find(self) -> FoundTargets:
        """Read them; a file that is broken keeps its last good list."""
        return await asyncio.to_thread(self._find)

    def _find(self) -> FoundTargets:
        paths = sorted({path for pattern in self.patterns for path in glob.glob(pattern, recursive=True)})
        self._files = {path: self._read(path) for path in paths}
        targets = drop_repeated([target for file in self._files.values() for target in file.targets])
        errors = [f"{path}: {file.error}" for path, file in self._files.items() if file.error]
        if not paths:
            errors.append(f"no file is called {' or '.join(self.patterns)}")
        if len(targets) > MOST_TARGETS:
            errors.append(f"{len(targets):,} targets, of which {MOST_TARGETS:,} are asked; make several groups of them")
        return FoundTargets(targets[:MOST_TARGETS], "; ".join(errors[:3]))

    def _read(self, path: str) -> _ReadFile:
        known = self._files.get(path)
        try:
            status = os.stat(path)
            seen = (status.st_mtime_ns, status.st_size, status.st_ino)
            if known is not None and known.seen == seen:
                return known
            if status.st_size > MOST_FILE_BYTES:
                raise InputError(f"larger than {MOST_FILE_BYTES // BYTES_PER_MIB} MiB")
            return _ReadFile(seen, read_target_groups(Path(path), self.defaults))
        except (InputError, OSError) as error:
            why = say_why(error)
            kept = known.targets if known is not None else ()
            return _ReadFile(
                seen if isinstance(error, InputError) else (), kept, f"{why}; its last good list stays" if kept else why
            )


def drop_repeated(targets: Sequence[Target]) -> tuple[Target, ...]:
    """Each exporter once, as it was named first."""
    found: dict[str, Target] = {}
    for target in targets:
        found.setdefault(target.url, target)
    return tuple(found.values())


def read_target_groups(path: Path, defaults: TargetDefaults) -> tuple[Target, ...]:
    """The targets of a file of file_sd. Raises InputError where it is none, OSError where it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
        groups = json.loads(text) if path.suffix == ".json" else _read_yaml(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"no {'JSON' if path.suffix == '.json' else 'YAML'} ({shorten(str(error))})") from error
    if not isinstance(groups, list) or not all(isinstance(group, dict) for group in groups):
        raise InputError('not the format of file_sd; it is a list of {"targets": ["host:port"], "labels": {...}}')
    return tuple(target for group in groups for target in _read_group(group, defaults))


def _read_group(group: Mapping[str, Any], defaults: TargetDefaults) -> list[Target]:
    addresses, labels = group.get("targets", []), group.get("labels") or {}
    if not isinstance(addresses, list) or not all(isinstance(address, str) for address in addresses):
        raise InputError("targets is not a list of host:port")
    if not isinstance(labels, dict):
        raise InputError("labels is not a table of texts")
    given = {str(name): str(value) for name, value in labels.items()}
    own = replace(
        defaults,
        path=given.get("__metrics_path__", defaults.path),
        is_tls=given["__scheme__"] == "https" if "__scheme__" in given else defaults.is_tls,
    )
    kept = {name.lower(): value for name, value in given.items() if name.lower() in KEPT_LABELS}
    return [own.read(address, labels=kept) for address in addresses]


def _read_yaml(text: str) -> Any:
    import yaml

    try:
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


def split_address(address: str, default_port: int = 0) -> tuple[str, int]:
    """Host and port of host:port, [::1]:port or, with a default port, of a host alone. Raises InputError.

    >>> split_address("node-1:9400"), split_address("[::1]", 9400)
    (('node-1', 9400), ('::1', 9400))
    """
    host, colon, port = address.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = address, str(default_port)
    name = host.removeprefix("[").removesuffix("]")
    is_written = name and name.isprintable() and not set(name) & set(" /@[]?#") and (":" not in name or host[:1] == "[")
    if not is_written or not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise InputError(f"{shorten(address)} is no address of an exporter; write host:port, node-1:9400")
    return name, int(port)
