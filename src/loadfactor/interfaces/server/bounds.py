"""How much one client, one request and all of them together may take."""

from dataclasses import dataclass

from loadfactor.base.units import BYTES_PER_GIB, BYTES_PER_KIB, S_PER_HOUR, S_PER_MIN
from loadfactor.sources.prometheus.remote_write import WriteLimits


@dataclass(frozen=True)
class Bounds:
    """The bounds of a server; what passes one of them is refused with a status that says so."""

    write_bytes: int = WriteLimits.packed_bytes  # of a remote_write request as it comes, compressed
    upload_bytes: int = BYTES_PER_GIB  # of a file that is imported
    unpacked_bytes: int = 8 * BYTES_PER_GIB  # of the same, decompressed
    url_bytes: int = 8 * BYTES_PER_KIB
    header_bytes: int = 32 * BYTES_PER_KIB
    write_s: float = S_PER_MIN  # to send a remote_write request
    upload_s: float = S_PER_HOUR  # to send a file
    dimensions: int = 4  # of one split
    metrics: int = 100  # of one question
    groups: int = 2_000_000  # of one answer, as far as devices and time say
    rows: int = 100_000  # of one list of jobs or devices
    questions: int = 4  # worked on at once
    waiting_questions: int = 16  # that wait for their turn
    long_questions: int = 1  # diagnoses and savings, worked on at once, beside the questions
    waiting_long_questions: int = 2
    long_question_s: float = 5 * S_PER_MIN  # of work, looked at between jobs and between levers
    diagnosed_jobs: int = 100  # of one question
    in_flight: int = 512  # requests at once
    requests_per_s: float = 500  # of one client, in the long run
    burst: int = 2_000  # of one client at once
    clients: int = 10_000  # whose rates are remembered
    retry_after_s: int = 2
