"""Logs of gateways as rows of who used what: three gateways, their mutants, and keys that are never kept."""

import csv
import gzip
import hashlib
import io
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from loadfactor import Books
from loadfactor.base.errors import LoadfactorError, SourceError
from loadfactor.sources.base import Gap, Input, ReadOptions, Rows
from loadfactor.sources.gateways.decoder import NO_OBJECT, NO_TOKENS, OWN_CACHE, decode_gateways
from loadfactor.sources.parsing.csv_text import NO_END

SECRET = "sk-live-4f1c0ffee4f1c0ffee4f1c0ffee"
HASH = hashlib.sha256(SECRET.encode()).hexdigest()


def spend(number: int, team: str = "search", **more: Any) -> dict[str, Any]:
    """A row of LiteLLM_SpendLogs, as its schema has them."""
    return {
        "request_id": f"chatcmpl-{number}",
        "call_type": "acompletion",
        "api_key": HASH,
        "startTime": f"2026-10-01T00:{number % 60:02}:07.250000Z",
        "endTime": f"2026-10-01T00:{number % 60:02}:09.500000Z",
        "model": "hosted_vllm/llama-70b",
        "model_group": "llama-70b",
        "prompt_tokens": 100,
        "completion_tokens": 10,
        "total_tokens": 110,
        "user": "default_user_id",
        "end_user": "",
        "team_id": "0b5c",
        "cache_hit": "False",
        "request_tags": ["rag", "User-Agent: curl"],
        "metadata": {
            "user_api_key_alias": "search-prod",
            "user_api_key_team_alias": team,
            "usage_object": {"prompt_tokens_details": {"cached_tokens": 64}},
        },
        **more,
    }


ENVOY = {
    "genai_model_name": "llama-70b", "genai_model_name_override": None, "genai_tokens_input": 15, "genai_tokens_output": 7,
    "start_time": "2026-10-01T16:51:37.894Z", "duration": 1526, "x-request-id": "83b6", "response_code": 200,
    "x-tenant-id": "ads", "authorization": f"Bearer {SECRET}", "x-feature": "summary",
}  # fmt: skip
OTEL = {
    "gen_ai.request.model": "llama-70b", "gen_ai.usage.input_tokens": "15", "gen_ai.usage.output_tokens": "7",
    "start_time": "2026-10-01T16:51:37.894Z", "duration": "1526", "x-request-id": "83b7", "team": "-",
}  # fmt: skip
OPENROUTER = (
    "generation_id,created_at,cost_total,tokens_prompt,tokens_completion,tokens_reasoning,tokens_cached,model_permaslug,user,"
    "generation_time_ms,api_key_name,app_name\n"
    "gen-1782618417-a,2026-06-28 03:46:57.713,0.0123,10389,137,40,10000,openai/gpt-oss-120b,ann,2500,batch,Notes\n"
)
ACTIVITY = {
    "data": [
        {
            "date": "2026-08-24",
            "model": "openai/gpt-4.1",
            "endpoint_id": "550e",
            "requests": 5,
            "prompt_tokens": 50,
            "completion_tokens": 125,
        }
    ]
}


def read(text: str | bytes, job: str | None = None, name: str = "log") -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Rows, and what was not counted."""
    rows: list[dict[str, Any]] = []
    gaps: Counter[str] = Counter()
    data = text if isinstance(text, bytes) else text.encode(errors="surrogatepass")
    for item in decode_gateways([Input(name, [data] if data else [])], ReadOptions(held_by=job)):
        if isinstance(item, Rows):
            rows += item.data.to_pylist()
        else:
            assert isinstance(item, Gap)
            gaps[item.what] += item.count
    return rows, dict(gaps)


def lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def as_csv(*rows: dict[str, Any]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]))
    writer.writeheader()
    writer.writerows({k: json.dumps(v) if isinstance(v, (dict, list)) else v for k, v in row.items()} for row in rows)
    return out.getvalue()


def add_up(rows: list[dict[str, Any]]) -> tuple[float, float, float]:
    """Sums of requests once each, as the books hold them."""
    once = {(row["request_id"], row["from_utc"]): row for row in rows}.values()
    return tuple(sum(row[n] or 0.0 for row in once) for n in ("prompt_tokens", "cached_prompt_tokens", "output_tokens"))


def test_spend_logs_of_litellm_say_the_same_in_every_form() -> None:
    """Lines of JSON, a list, an answer in lines, and the table as CSV; the team by its name, the key by its own."""
    rows = [spend(1), spend(2, "ads")]
    found = [read(text)[0] for text in (lines(*rows), json.dumps(rows), json.dumps(rows, indent=2), as_csv(*rows))]
    assert all(some == found[0] for some in found)
    first = found[0][0]
    assert (first["team"], first["api_key"], first["feature"], first["job_id"]) == (
        "search",
        "search-prod",
        "rag",
        "llama-70b",
    )
    assert (first["prompt_tokens"], first["cached_prompt_tokens"], first["output_tokens"]) == (100, 64, 10)
    assert first["to_utc"] - first["from_utc"] == 2250
    assert read(lines(*rows), job="chat")[0][1]["job_id"] == "chat"


def test_the_standard_payload_of_litellm_has_times_as_numbers() -> None:
    """Epochs in seconds, the key's hash in its metadata; what its own cache answered, no engine made."""
    payload = {
        "id": "x", "startTime": 1790000000.5, "endTime": 1790000001.0, "model": "m", "prompt_tokens": 3, "completion_tokens": 4,
        "metadata": {"user_api_key_hash": HASH, "user_api_key_alias": None}, "cache_hit": None,
    }  # fmt: skip
    rows, gaps = read(lines(payload, payload | {"id": "y", "cache_hit": True}))
    assert (rows[0]["from_utc"], rows[0]["api_key"], gaps) == (1790000000500, f"key-{HASH[:12]}", {OWN_CACHE: 1})


def test_access_logs_of_envoy_by_either_names() -> None:
    """Its documentation's and OpenTelemetry's fields; a line of another tool and a request to no model are counted."""
    other = ENVOY | {"genai_tokens_input": None, "genai_tokens_output": None}
    rows, gaps = read(lines(ENVOY, other) + "[info] starting\n")
    assert [(row["team"], row["feature"], row["api_key"]) for row in rows] == [("ads", "summary", f"key-{HASH[:12]}")]
    assert (add_up(rows), gaps) == ((15, 0, 7), {NO_TOKENS: 1, NO_OBJECT: 1})
    rows, _ = read(lines(OTEL))
    assert (rows[0]["model"], rows[0]["team"], rows[0]["to_utc"] - rows[0]["from_utc"]) == ("llama-70b", None, 1526)


def test_exports_of_openrouter() -> None:
    """The generations as CSV, in UTC, and the sums of days: asked for again, a day's sum takes the place of the earlier one."""
    (row,), _ = read(OPENROUTER)
    assert (row["from_utc"], row["user"], row["api_key"], row["feature"]) == (1782618417713, "ann", "batch", "Notes")
    assert add_up([row]) == (10389, 10000, 137)
    assert read(OPENROUTER[:-1])[1] == {NO_END: 1}
    (day,), _ = read(json.dumps(ACTIVITY))
    assert (day["requests"], day["to_utc"] - day["from_utc"]) == (5, 86_400_000)
    later = {"data": [ACTIVITY["data"][0] | {"requests": 9, "prompt_tokens": 90}]}
    (again,), _ = read(json.dumps(later))
    assert (again["request_id"], again["prompt_tokens"]) == (day["request_id"], 90)


@pytest.mark.parametrize("place", ["api_key", "user", "team", "key_name", "x-feature"])
def test_no_secret_enters_the_books(place: str) -> None:
    """Wherever a key stands it is digits of its hash, the same for the key as for LiteLLM's hash of it."""
    rows, _ = read(
        lines({k: v for k, v in ENVOY.items() if k != "authorization"} | {"x-tenant-id": None, place: SECRET})
    )
    assert SECRET not in json.dumps(rows)
    assert f"key-{HASH[:12]}" in json.dumps(rows)


@pytest.mark.parametrize("form", [lines, as_csv])
def test_mutants_change_no_sum_in_silence(form: Any) -> None:
    """Doubled, shuffled, with a byte order mark, with CRLF and in other encodings the sums are the same; cut, it is said."""
    rows = [spend(k, prompt_tokens=k) for k in range(40)]
    text = form(*rows)
    whole = add_up(read(text)[0])
    mixed = [*rows, *rows]
    random.Random(7).shuffle(mixed)
    assert add_up(read(form(*mixed))[0]) == whole
    others = ["\ufeff" + text, text.replace("\n", "\r\n"), text + "\n\n"]
    assert {add_up(read(other)[0]) for other in others} == {whole}
    assert add_up(read(text.encode("utf-16"))[0]) == whole
    for end in random.Random(8).sample(range(1, len(text) - 2), 60):
        try:
            found, gaps = read(text[:end])
        except LoadfactorError:
            continue
        assert gaps or add_up(found) == add_up(read(form(*rows[: len(found)]))[0])


@pytest.mark.parametrize("tokens", ["1.234", "1,234", "-5", "12e3", True, [3], "many", "NaN"])
def test_what_is_no_count_is_refused(tokens: Any) -> None:
    """A number of another locale is not half read."""
    with pytest.raises(SourceError, match=r"line 1: prompt_tokens is .* whole number"):
        read(lines(spend(1, prompt_tokens=tokens)))


@pytest.mark.parametrize(
    "name", ["\ud800", "a\x00b", "x" * 5000, "<script>", "'; DROP TABLE x; --", "\u202eabc", {"a": [1]}, 7]
)
def test_hostile_names_are_names(name: Any) -> None:
    """Of bounded length, and apart where they differ."""
    rows, _ = read(lines(spend(1, end_user=name), spend(2, end_user=f"{name}y")))
    first, second = (row["user"] for row in rows)
    assert first != second
    assert len(second) < 250


@pytest.mark.parametrize(
    "text",
    ["", "[", "{", "a,b\n1,2\n", "node_cpu 1\n", '{"a": 1}\n', "[1, 2]", '{"data": 3}', "[" * 10**5, '{"startTime":1}'],
)
def test_what_is_no_log_is_refused(text: str) -> None:
    with pytest.raises(SourceError):
        read(text)


def test_use_enters_the_books_once(tmp_path: Path) -> None:
    """From files that overlap, packed too; the receipt counts what was left out."""
    (tmp_path / "a.jsonl").write_text(lines(spend(1), spend(2), spend(3, cache_hit="True")))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(lines(spend(2), spend(4)).encode()))
    books = Books.open(tmp_path / "books", create=True)
    receipt = books.add("gateway", [tmp_path / "a.jsonl", tmp_path / "b.jsonl.gz"])
    assert [(gap.what, gap.count) for gap in receipt.gaps] == [
        (OWN_CACHE, 1),
        ("rows of one key that agree: counted once", 1),
    ]
    with books.snapshot() as snapshot:
        table = snapshot.view("served_requests")
        assert snapshot.fetch(table.aggregate(n=table.count(), prompt=table.prompt_tokens.sum())).to_pylist() == [
            {"n": 3, "prompt": 300}
        ]
