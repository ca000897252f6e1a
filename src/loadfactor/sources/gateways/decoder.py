"""Decoder of logs of gateways: each request, or the sum of a day, as a row of `served_requests`.

Keys are never kept: an API key is its name, else the first digits of its SHA-256, which is how LiteLLM itself keeps keys.
"""

import codecs
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any, Final

import pyarrow as pa

from loadfactor.base.errors import SourceError
from loadfactor.base.units import BYTES_PER_MIB, MS_PER_DAY, NS_PER_MS
from loadfactor.sources.base import Gap, Input, ReadOptions, Rows
from loadfactor.sources.gateways.forms import Form, find_form, flatten, pick
from loadfactor.sources.parsing.cells import quote
from loadfactor.sources.parsing.csv_text import NO_END, WatchedEnd, split_csv
from loadfactor.sources.parsing.text_blocks import join_pieces, split_lines
from loadfactor.sources.parsing.times import parse_epoch_ms, parse_stamp
from loadfactor.tables.work import SERVED_REQUESTS

AT_ONCE: Final = 20_000
MOST_BYTES: Final = 256 * BYTES_PER_MIB
"""An answer that is one JSON document is read whole."""
LONGEST_NAME: Final = 200
_SECRET: Final = re.compile(r"(?i)bearer\s|sk-|hf_|gsk_|aiza")
_HASH: Final = re.compile(r"[0-9a-fA-F]{64}")
_LONG: Final = re.compile(r"[\w+/=.-]{32,}")
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")
_COUNT: Final = re.compile(r"(\d{1,15})(\.0+)?")
NO_OBJECT: Final = "lines that are no JSON object; not counted"
NO_TOKENS: Final = "requests without tokens (not to a model, or not answered); not counted"
OWN_CACHE: Final = "answers from the gateway's own cache, which no engine made; not counted"
Numbered = tuple[str, dict[str, Any]]
"""Where a row stands, for messages, and its fields."""


def decode_gateways(logs: Sequence[Input], options: ReadOptions) -> Iterator[Rows | Gap]:
    """The requests of all these logs. The job that served them is `held_by`, else it has the model's name.

    A time without a zone is UTC, in which these gateways write. Raises SourceError naming text and line: no
    log of a gateway, a number or a time that is none, a CSV that breaks off.
    """
    for log in logs:
        gaps: Counter[str] = Counter()
        rows = _read_rows(log, gaps)
        first = next(rows, None)
        form = find_form(first[1]) if first is not None else None
        if first is None or form is None:
            raise SourceError(
                f"{log.label}: no log of LiteLLM, Envoy AI Gateway or OpenRouter in it; it needs fields for when, prompt and output"
                " tokens (docs/who-used-served-models.md names them)"
            )
        every = (_make_row(form, where, row, options, gaps) for where, row in chain((first,), rows))
        known = (row for row in every if row is not None)
        while some := list(islice(known, AT_ONCE)):
            yield Rows(SERVED_REQUESTS.name, pa.Table.from_pylist(some, schema=SERVED_REQUESTS.schema), log.label)
        yield from (Gap(log.label, what, count) for what, count in gaps.items())


def _read_rows(log: Input, gaps: Counter[str]) -> Iterator[Numbered]:
    """Rows of a CSV, of lines of JSON, or of one JSON document: a list, or an object with one under `data`."""
    start = _read_start(log)
    first = _read_object(start) if start[:1] == "{" else None
    if start[:1] == "[" or (start[:1] == "{" and (first is None or isinstance(first.get("data"), list))):
        yield from _read_document(log)
    elif "," in start and "{" not in start:
        watched = WatchedEnd(log)
        names, batches = split_csv(watched.input)
        for batch in batches:
            columns = [column.to_pylist() for column in batch.cells.columns]
            for number, cells in enumerate(zip(*columns, strict=True), batch.first_row):
                where = f"{log.label}, row {number}"
                yield where, _unpack(where, dict(zip(names, cells, strict=True)))
        if not watched.has_end:
            gaps[NO_END] += 1
    else:
        for number, line in enumerate(split_lines(log), 1):
            if line.strip():
                row = _read_object(line)
                if row is None:
                    gaps[NO_OBJECT] += 1
                else:
                    where = f"{log.label}, line {number}"
                    yield where, _unpack(where, row)


def _read_start(log: Input) -> str:
    """The first line that says something, as far as it is in the first piece."""
    piece = next((piece for piece in log.chunks if piece), b"")
    code = "utf-16" if piece.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    return next((line.strip() for line in piece.decode(code, errors="replace").split("\n") if line.strip()), "")


def _read_document(log: Input) -> Iterator[Numbered]:
    text = join_pieces(log.label, log.chunks, MOST_BYTES, "save it as lines of JSON")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise SourceError(f"{log.label}: its JSON breaks off, or is none; save it again") from None
    rows = found.get("data", [found]) if isinstance(found, dict) else found
    for number, row in enumerate(rows if isinstance(rows, list) else [], 1):
        if isinstance(row, dict):
            where = f"{log.label}, entry {number}"
            yield where, _unpack(where, row)


def _read_object(line: str) -> Any:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _unpack(where: str, row: dict[str, Any]) -> dict[str, Any]:
    """The fields of a row, those of its metadata too where a CSV has them as text."""
    metadata = row.get("metadata")
    if isinstance(metadata, str) and metadata[:1] == "{":
        row = {**row, "metadata": _read_object(metadata)}
        if row["metadata"] is None:
            raise SourceError(f"{where}: its metadata breaks off, or is no JSON; export the table again")
    try:
        return dict(flatten(row))
    except RecursionError:
        raise SourceError(f"{where}: its objects lie in each other without end") from None


def _make_row(
    form: Form, where: str, row: dict[str, Any], options: ReadOptions, gaps: Counter[str]
) -> dict[str, Any] | None:
    if str(pick(row, form.own_cache)).lower() == "true":
        gaps[OWN_CACHE] += 1
        return None
    prompt, output, cached = (_count(where, row, names) for names in (form.prompt, form.output, form.cached))
    if prompt is None and output is None:
        gaps[NO_TOKENS] += 1
        return None
    begun = pick(row, form.start)
    from_ms = _read_time(where, begun)
    if ended := pick(row, form.end):
        to_ms = _read_time(where, ended)
    else:
        length = MS_PER_DAY if _DAY.fullmatch(str(begun)) else _count(where, row, form.duration_ms) or 0
        to_ms = from_ms + int(length)
    model = _name(pick(row, form.model))
    found = {
        "job_id": options.held_by or model,
        "from_utc": from_ms,
        "to_utc": max(from_ms, to_ms),
        "model": model,
        "team": _name(pick(row, form.team)),
        "user": _name(pick(row, form.user)),
        "project": _name(pick(row, form.project)),
        "feature": _name(_join_tags(pick(row, form.feature))),
        "api_key": _name_key(pick(row, form.key_name), pick(row, form.key)),
        "requests": 1.0 if (requests := _count(where, row, form.requests)) is None else requests,
        "prompt_tokens": prompt,
        "cached_prompt_tokens": None if cached is None else min(cached, prompt or 0.0),
        "output_tokens": output,
    }
    identity = _name(pick(row, form.request_id))
    if identity is None:  # the sum of a day that is asked for later may be more; a request stays as it is
        identifying = {name: found[name] for name in ("job_id", "feature")} if form.requests else row
        identity = _digest(json.dumps(identifying, sort_keys=True, default=str))
    return {"request_id": identity, **found}


def _count(where: str, row: dict[str, Any], names: tuple[str, ...]) -> float | None:
    value = pick(row, names)
    if value is None:
        return None
    found = None if isinstance(value, bool) else _COUNT.fullmatch(str(value).strip())
    if found is None:
        name = next(name for name in names if row.get(name) is value)
        raise SourceError(f"{where}: {name} is {quote(value)}, and is to be a whole number")
    return float(found[1])


def _read_time(where: str, value: Any) -> int:
    text = str(value).strip()
    at_ms = parse_epoch_ms(text)
    if at_ms is None:
        stamp = parse_stamp(f"{text} 00:00:00" if _DAY.fullmatch(text) else text)
        if stamp is None:
            raise SourceError(f"{where}: {quote(value)} is no time at which a request began or ended")
        return stamp.at_ns // NS_PER_MS
    return at_ms


def _join_tags(value: Any) -> Any:
    """Tags of a request as one text, without the agents that LiteLLM adds to them."""
    if isinstance(value, str) and value[:1] == "[":
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return value
    if not isinstance(value, list):
        return value
    return ", ".join(sorted({str(tag) for tag in value if not str(tag).startswith("User-Agent:")}))


def _name(value: Any) -> str | None:
    """A name as the books keep it: Unicode of bounded length, no secret; None where there is none."""
    if value is None or isinstance(value, (dict, list)):
        return None
    text = " ".join(str(value).encode(errors="replace").decode().split())
    if _SECRET.match(text):
        return _hide(text)
    return f"{text[:LONGEST_NAME]}…{_digest(text)}" if len(text) > LONGEST_NAME else text or None


def _name_key(name: Any, key: Any) -> str | None:
    """What an API key is called: its name, else, as where the name may be the key itself, digits of its hash."""
    text = _name(name)
    if text is not None:
        return _hide(text) if _LONG.fullmatch(text) else text
    return None if key is None else _hide(str(key))


def _hide(secret: str) -> str:
    if secret.startswith("key-"):
        return secret
    plain = re.sub(r"(?i)^bearer\s+", "", secret.strip())
    return f"key-{plain.lower()[:12] if _HASH.fullmatch(plain) else _digest(plain)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:12]
