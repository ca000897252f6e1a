"""What gateways call what they log of a request: facts, by column of `served_requests`, the best name first.

LiteLLM: the table LiteLLM_SpendLogs (CSV, or JSON of /spend/logs) and the standard logging payload, of its schema and its
documentation. Envoy AI Gateway: the fields of its documentation, OpenTelemetry's names, and plain ones, for its log format is
configured. OpenRouter: the export of /activity and the answer of its API.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

Names = tuple[str, ...]


@dataclass(frozen=True)
class Form:
    """The log of one gateway: it is one where each of `marks` has a field. `key` may hold secrets; `key_name` names them."""

    gateway: str
    marks: tuple[Names, ...]
    request_id: Names
    start: Names
    model: Names
    prompt: Names
    output: Names
    end: Names = ()
    duration_ms: Names = ()
    cached: Names = ()
    requests: Names = ()
    team: Names = ()
    user: Names = ()
    project: Names = ()
    feature: Names = ()
    key_name: Names = ()
    key: Names = ()
    own_cache: Names = ()
    """True where the gateway answered from a cache of its own: no engine made that."""


_OUR_TEAM: Final = (
    "team",
    "team_id",
    "tenant",
    "tenant_id",
    "x-tenant-id",
    "x-tenant",
    "x-team-id",
    "x-team",
    "caller",
)
_OUR_USER: Final = ("user", "user_id", "x-user-id")
_OUR_FEATURE: Final = ("feature", "x-feature", "app_name", "app", "x-app")
_OUR_KEY: Final = ("api_key", "x-api-key", "authorization")

FORMS: Final = (
    Form(
        "LiteLLM",
        (("startTime",), ("prompt_tokens", "usage.prompt_tokens"), ("completion_tokens", "usage.completion_tokens")),
        request_id=("request_id", "id", "litellm_call_id"),
        start=("startTime",),
        end=("endTime",),
        model=("model_group", "model"),
        prompt=("prompt_tokens", "usage.prompt_tokens"),
        output=("completion_tokens", "usage.completion_tokens"),
        cached=(
            "metadata.usage_object.prompt_tokens_details.cached_tokens",
            "metadata.additional_usage_values.prompt_tokens_details.cached_tokens",
            "metadata.additional_usage_values.cache_read_input_tokens",
        ),
        team=(
            "metadata.user_api_key_team_alias", "team_alias", "metadata.user_api_key_team_id", "team_id",
            "metadata.user_api_key_org_id", "organization_id",
        ),
        user=("end_user", "metadata.user_api_key_end_user_id", "user", "metadata.user_api_key_user_id"),
        feature=("request_tags",),
        key_name=("metadata.user_api_key_alias", "key_alias"),
        key=("api_key", "metadata.user_api_key_hash", "metadata.user_api_key"),
        own_cache=("cache_hit",),
    ),
    Form(
        "OpenRouter",
        (("created_at",), ("tokens_prompt",), ("tokens_completion",)),
        request_id=("generation_id",),
        start=("created_at",),
        duration_ms=("generation_time_ms",),
        model=("model_permaslug", "model"),
        prompt=("tokens_prompt",),
        output=("tokens_completion",),
        cached=("tokens_cached",),
        user=("user", "external_user"),
        feature=("app_name",),
        key_name=("api_key_name",),
    ),
    Form(
        "OpenRouter, by day",
        (("date",), ("model",), ("prompt_tokens",), ("completion_tokens",)),
        request_id=("id",),
        start=("date",),
        model=("model", "model_permaslug"),
        prompt=("prompt_tokens",),
        output=("completion_tokens",),
        requests=("requests",),
        feature=("endpoint_id",),
    ),
    Form(
        "Envoy AI Gateway",
        (
            ("start_time",),
            ("genai_tokens_input", "gen_ai.usage.input_tokens", "input_tokens", "llm_input_token"),
            ("genai_tokens_output", "gen_ai.usage.output_tokens", "output_tokens", "llm_output_token"),
        ),
        request_id=("x-request-id", "request_id"),
        start=("start_time",),
        duration_ms=("duration", "duration_ms"),
        model=(
            "genai_model_name_override", "gen_ai.response.model", "genai_model_name", "gen_ai.request.model",
            "response_model", "served_model", "model",
        ),
        prompt=("genai_tokens_input", "gen_ai.usage.input_tokens", "input_tokens", "llm_input_token"),
        output=("genai_tokens_output", "gen_ai.usage.output_tokens", "output_tokens", "llm_output_token"),
        cached=(
            "genai_tokens_cached_input", "gen_ai.usage.cache_read.input_tokens", "cached_input_tokens",
            "llm_cached_input_token",
        ),
        team=_OUR_TEAM,
        user=_OUR_USER,
        project=("project", "x-project"),
        feature=_OUR_FEATURE,
        key_name=("api_key_name", "key_name"),
        key=_OUR_KEY,
    ),
)  # fmt: skip
"""Forms of logs; the first whose marks a log has is its own."""
UNKNOWN: Final = frozenset({"", "-", "null", "None"})
"""How gateways write what they do not know."""


def find_form(row: Mapping[str, Any]) -> Form | None:
    """The form of a row, by the fields that it has; None where it has none's."""
    return next((form for form in FORMS if all(any(n in row for n in names) for names in form.marks)), None)


def pick(row: Mapping[str, Any], names: Names) -> Any:
    """The first of these fields that says something; None where none does."""
    return next((row[name] for name in names if row.get(name) is not None and str(row[name]) not in UNKNOWN), None)


def flatten(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Fields of a row, those of objects in it by path: `metadata.user_api_key_alias`."""
    for name, value in row.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
