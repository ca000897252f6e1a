"""A scraped page of a serving engine as a body: what it tells, read once and kept until it is counted."""

from loadfactor.collect.listed_body import pack_listed
from loadfactor.collect.scraped_page import unpack_page
from loadfactor.sources.serving_engines.live_decoder import read_scrape


def pack_engine_page(scraped: bytes, step_ms: float) -> bytes:
    """The body of a page as `pack_page` packed it, scraped every `step_ms`. Raises SourceError where it is of no engine."""
    at_ms, labels, page = unpack_page(scraped)
    return pack_listed(read_scrape(page, dict(labels), at_ms, step_ms), {})
