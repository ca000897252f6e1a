"""Logs of gateways in front of served models: LiteLLM, Envoy AI Gateway, OpenRouter → who used which model, and how much."""

from loadfactor.sources.base import Source
from loadfactor.sources.files import find_with, read_with
from loadfactor.sources.gateways.decoder import decode_gateways

SOURCE = Source(
    "gateway",
    find_with((".jsonl", ".json", ".ndjson", ".csv", ".log"), "log of a gateway", rotated=True),
    read_with(decode_gateways),
    uses=("job",),
)
"""Files of one request a line, or of the sums of a day; JSON, lines of JSON or CSV."""
