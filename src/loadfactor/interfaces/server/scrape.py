"""`/metrics`: the fleet's own numbers, and the server's."""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from fastapi import FastAPI
from starlette.responses import Response

from loadfactor.interfaces.server.exposition import MetricFamily, write_exposition
from loadfactor.interfaces.server.fleet_gauges import FleetGauges
from loadfactor.interfaces.server.receiver import Receiver, ReceiverCounts
from loadfactor.interfaces.server.served import describe_errors

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def add_scrape(app: FastAPI, receiver: Receiver, gauges: FleetGauges, answered: Counter[tuple[str, int]]) -> None:
    """Add it to an app."""
    text: dict[int | str, dict[str, object]] = {
        200: {"description": "Prometheus' text format", "content": {"text/plain": {"schema": {"type": "string"}}}}
    }

    @app.get("/metrics", responses={**text, **describe_errors()}, response_class=Response)
    async def scrape() -> Response:
        """The fleet's own numbers over the last hour and day and the server's, for Prometheus to scrape."""
        families = [*await gauges.get(), *count_server(receiver.counts(), answered), *tell_sources(receiver.health())]
        return Response(write_exposition(families), media_type=MEDIA_TYPE)


def count_server(counts: ReceiverCounts, answered: Counter[tuple[str, int]]) -> list[MetricFamily]:
    """What the server did since it began."""

    def one(name: str, about: str, value: float) -> MetricFamily:
        return MetricFamily(
            f"loadfactor_server_{name}", about, "counter" if name.endswith("_total") else "gauge", [({}, value)]
        )

    def many(name: str, about: str, label: str, values: dict[str, int]) -> MetricFamily:
        samples = [({label: key}, float(value)) for key, value in sorted(values.items())]
        return MetricFamily(f"loadfactor_server_{name}", about, "counter", samples)

    requests = [({"path": path, "status": str(status)}, float(n)) for (path, status), n in sorted(answered.items())]
    return [
        one("rows_received_total", "Samples received.", counts.received),
        one("rows_acknowledged_total", "Samples acknowledged: they are durable.", counts.acknowledged),
        one("rows_not_understood_total", "Samples of series that no decoder knows.", counts.not_understood),
        many("refused_total", "Requests refused, by reason.", "reason", dict(counts.refused)),
        one("queue_bytes", "Bytes that wait to be durable.", counts.queue_bytes),
        one("lag_seconds", "How long the oldest sample waits that readers cannot see yet.", counts.lag_s),
        many("source_errors_total", "Errors by source.", "source", dict(counts.errors)),
        MetricFamily("loadfactor_server_requests_total", "Requests answered, by path and status.", "counter", requests),
    ]


def tell_sources(health: Mapping[str, Any]) -> list[MetricFamily]:
    """How each source fares, and when its last sample was taken."""
    sources = health["sources"]
    up = [({"source": s["name"]}, float(s["status"] == "ok")) for s in sources]
    heard = [
        ({"source": s["name"]}, datetime.fromisoformat(s["last_sample"]).timestamp())
        for s in sources
        if s.get("last_sample")
    ]
    about = "1 where the source is well; 0 where it waits, fails or is silent."
    last = "When the last sample of the source was taken, in seconds since 1970."
    aside = "Bodies that were acknowledged and that nobody could decode."
    return [
        MetricFamily("loadfactor_server_source_up", about, "gauge", up),
        MetricFamily("loadfactor_server_source_last_sample_timestamp_seconds", last, "gauge", heard),
        MetricFamily("loadfactor_server_set_aside", aside, "gauge", [({}, float(health.get("set_aside", 0)))]),
    ]
