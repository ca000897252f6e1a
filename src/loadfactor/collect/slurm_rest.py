"""A client of slurmrestd that lists jobs and nodes, in the newest version that it speaks."""

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, Final

import httpx
import pyarrow as pa

from loadfactor.base.clock import now_ms
from loadfactor.base.errors import SourceError, say_why
from loadfactor.collect.slurm_commands import (
    MOST_BYTES,
    Answer,
    CommandError,
    NodeAnswer,
    SlurmCommands,
    TooMuchOutputError,
    hold_gpus,
)
from loadfactor.settings.sources import SlurmCluster
from loadfactor.sources.base import Input
from loadfactor.sources.slurm.jobs import JOBS
from loadfactor.sources.slurm.rest_json import Document, decode_rest_jobs, decode_rest_nodes, parse_documents

SOCKET: Final = "unix:"
_PATHS: Final = re.compile(r"^/(slurmdb|slurm)/v\d+\.\d+\.\d+/jobs/?$")
_NARROWED: Final = {"skip_steps": "true", "show_duplicates": "true"}
"""Parameters besides a window, where a version knows them; older ones give every run without."""
_NEVER_STARTED: Final = {"state": "CANCELLED"}
"""Jobs that were cancelled before they could start are listed only where they are requested."""
NOTHING: Final = "Nothing found"
"""The name of its error where there are no such jobs."""
_SHOWN_CHARACTERS: Final = 200


def open_slurm(cluster: SlurmCluster, stopped: threading.Event | None = None) -> "SlurmCommands | SlurmRest":
    """Connection to slurmrestd. `stopped`: set when answers are no longer of use."""
    return SlurmRest(cluster) if cluster.url else SlurmCommands(cluster, stopped)


class SlurmRest:
    """Asks one cluster. Its methods raise CommandError in one line."""

    def __init__(self, cluster: SlurmCluster) -> None:
        self._cluster = cluster
        self._paths: dict[str, tuple[str, frozenset[str]]] = {}

    def list_accounting(self, from_s: int, to_s: int) -> Answer:
        """The GPU jobs that were in any state between two instants, every run of them."""
        path, known = self._find_path("slurmdb")
        window = {"start_time": f"uts{from_s}", "end_time": f"uts{to_s}"}
        window |= {name: value for name, value in _NARROWED.items() if name in known}
        return _read_jobs(self._ask(path, window)).join(_read_jobs(self._ask(path, window | _NEVER_STARTED)))

    def find_jobs(self, ids: Sequence[str]) -> Answer:
        """These jobs in accounting, whenever they were."""
        above = self._find_path("slurmdb")[0].rstrip("/").rpartition("/")[0]
        numbers = dict.fromkeys(name.partition("_")[0].partition("+")[0] for name in ids)
        return reduce(Answer.join, (_read_jobs(self._ask(f"{above}/job/{number}", {})) for number in numbers), Answer())

    def list_queue(self) -> Answer:
        """The GPU jobs that the controller knows."""
        document = self._ask(self._find_path("slurm")[0], {})
        return _read_jobs(document, now_ms())

    def list_nodes(self) -> NodeAnswer:
        """The nodes, as the controller knows them."""
        path = self._find_path("slurm")[0].replace("/jobs", "/nodes")
        return NodeAnswer(list(decode_rest_nodes(self._ask(path, {}))))

    def _find_path(self, plugin: str) -> tuple[str, frozenset[str]]:
        """Path of the jobs in the newest version of a plugin, and its parameters. CommandError where there is none."""
        if not self._paths:
            paths = self._ask("/openapi/v3", {}).get("paths")
            for path, methods in sorted(paths.items() if isinstance(paths, dict) else (), key=_order):
                if found := _PATHS.match(path):
                    self._paths[found[1]] = path, frozenset(_list_parameters(methods))
        if plugin not in self._paths:
            raise CommandError(f"slurmrestd has no plugin {plugin}; start it with -s openapi/{plugin}")
        return self._paths[plugin]

    def _ask(self, path: str, question: Mapping[str, str]) -> Document:
        """The document that answers. Raises CommandError, TooMuchOutputError."""
        cluster = self._cluster
        is_socket = cluster.url.startswith(SOCKET)
        transport = httpx.HTTPTransport(uds=cluster.url.removeprefix(SOCKET)) if is_socket else None
        address = "http://slurmrestd" if is_socket else cluster.url.rstrip("/")
        try:
            with (
                httpx.Client(transport=transport, timeout=cluster.timeout.s, trust_env=False) as client,
                client.stream("GET", address + path, params=question, headers=self._make_headers()) as answer,
            ):
                content = bytearray()
                for piece in answer.iter_bytes():
                    content += piece
                    if len(content) > MOST_BYTES:
                        raise TooMuchOutputError(f"slurmrestd wrote over {MOST_BYTES:,} bytes")
        except (httpx.HTTPError, OSError, ValueError) as error:
            raise CommandError(f"slurmrestd: {str(error)[:_SHOWN_CHARACTERS] or type(error).__name__}") from error
        if answer.status_code != httpx.codes.OK:
            raise CommandError(f"slurmrestd answered {answer.status_code} to {path}{_show_errors(bytes(content))}")
        return _parse(bytes(content), path)

    def _make_headers(self) -> dict[str, str]:
        cluster = self._cluster
        try:
            token = cluster.token_file.read_text().strip().removeprefix("SLURM_JWT=") if cluster.token_file else ""
        except OSError as error:
            raise CommandError(f"{cluster.token_file} cannot be read: {say_why(error)}") from error
        headers = {"X-SLURM-USER-NAME": cluster.user, "X-SLURM-USER-TOKEN": token}
        return {name: value for name, value in headers.items() if value}


def _order(entry: tuple[str, Any]) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", entry[0])]


def _list_parameters(methods: Any) -> Iterator[str]:
    get = methods.get("get") if isinstance(methods, dict) else None
    for parameter in get.get("parameters", ()) if isinstance(get, dict) else ():
        if isinstance(parameter, dict) and isinstance(parameter.get("name"), str):
            yield parameter["name"]


def _parse(content: bytes, path: str) -> Document:
    """The JSON of an answer. Raises CommandError where it is none, or says that it failed."""
    try:
        if path == "/openapi/v3":
            found: Document = httpx.Response(200, content=content).json()
            return found
        (document,) = parse_documents(Input("slurmrestd", [content]))
    except (SourceError, ValueError) as error:
        raise CommandError(f"slurmrestd: {error}") from error
    errors = document.get("errors")
    if errors and not all(NOTHING in str(error) for error in errors):
        raise CommandError(f"slurmrestd could not answer {path}{_show_errors(content)}")
    return document


def _show_errors(content: bytes) -> str:
    try:
        errors = httpx.Response(200, content=content).json()["errors"]
        text = errors[0].get("description") or errors[0].get("error") or ""
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return ""
    return f": {str(text)[:_SHOWN_CHARACTERS]}" if text else ""


def _read_jobs(document: Document, at_ms: int | None = None) -> Answer:
    """The GPU jobs of a document; jobs that cannot be read are left out and counted."""
    tables, unread, why = [JOBS.empty_table()], 0, ""
    try:
        tables.append(decode_rest_jobs(document, "slurmrestd", at_ms))
    except SourceError:
        for job in document["jobs"]:
            try:
                tables.append(decode_rest_jobs({"jobs": [job]}, "slurmrestd", at_ms))
            except SourceError as error:
                unread, why = unread + 1, why or str(error)
    jobs = pa.concat_tables(tables)
    return Answer(jobs.filter(hold_gpus(jobs)), unread, why)
