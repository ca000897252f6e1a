"""EC2: saved answers about instances with GPUs → what is installed, who holds it, what spot costs, and what was taken away.

GPUs are called as those of CloudWatch's agent are, by instance and number: `i-0abc/0`. Answers say what was just then; what is in
the next ones, too, did not end in between.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa

from loadfactor.errors import SourceError
from loadfactor.sources.base import Gap, Input, ReadOptions, Rows, Source
from loadfactor.sources.clouds.cloud_series import split_documents
from loadfactor.sources.clouds.ec2_answers import Ec2Answers, Instance
from loadfactor.sources.files import find_with, read_with
from loadfactor.sources.kubernetes.tags import choose_texts, write_tags
from loadfactor.sources.parsing.text_blocks import join_pieces
from loadfactor.tables import ALLOCATIONS, DEVICE_EVENTS, DEVICES, PRICES
from loadfactor.units import BYTES_PER_MIB, MS_PER_S, S_PER_HOUR

LARGEST_ANSWER_BYTES: Final = 256 * BYTES_PER_MIB
NOT_DESCRIBED: Final = "instances of a type that DescribeInstanceTypes does not describe here"
NO_END: Final = "instances that are over, nobody says since when: taken to end when the answers were taken"
_PREEMPTED: Final = "preempted"
_PRICED: Final = {"basis": "list", "currency": "USD", "source": "EC2's history of spot prices"}


def decode_ec2(inputs: Sequence[Input], options: ReadOptions) -> Iterator[Rows | Gap]:
    """Rows of all answers together. Raises SourceError for what is none, or where it is not said when they were taken."""
    answers = Ec2Answers()
    for source in inputs:
        content = join_pieces(source.label, source.chunks, LARGEST_ANSWER_BYTES, "save fewer instances a file")
        try:
            documents = list(split_documents(content.decode()))
        except (ValueError, RecursionError):
            raise SourceError(f"{source.label} is no JSON of EC2; is it whole?") from None
        for document in documents:
            answers.put(document, source.label)
    label = inputs[0].label
    if options.at_ms is None:
        raise SourceError(f"{label}: answers of EC2 do not say when they were taken: give --at; docs/connect-clouds.md")
    if not answers.instances or not answers.described:
        missing = "describe-instance-types" if answers.instances else "describe-instances"
        raise SourceError(f"{label}: the answer of `aws ec2 {missing}` is missing; docs/connect-clouds.md")
    yield from _list_rows(answers, options.at_ms, options.pool, label)


def _list_rows(answers: Ec2Answers, at_ms: int, pool: str | None, label: str) -> Iterator[Rows | Gap]:
    gaps: Counter[str] = Counter()
    devices, allocations, events, prices = [], [], [], []
    day = datetime.fromtimestamp(at_ms / MS_PER_S, UTC).date().isoformat()
    for instance in answers.instances.values():
        gaps[NOT_DESCRIBED] += instance.type_name not in answers.described
        kind = answers.types.get(instance.type_name)
        if kind is None:
            continue
        taken = answers.find_interruption(instance)
        end_ms = at_ms
        if instance.is_over:
            said_ms = instance.ended_ms or (taken.at_ms if taken else None)
            gaps[NO_END] += said_ms is None
            end_ms = at_ms if said_ms is None else said_ms
        if end_ms <= instance.began_ms:
            continue
        names = [f"{instance.name}/{number}" for number in range(kind.gpus)]
        span = {"from_utc": instance.began_ms, "to_utc": end_ms}
        share = kind.share if kind.share < 1 else None
        facts = {"node": instance.name, "accelerator": kind.accelerator, "pool": pool, "share": share, **span}
        devices += [{"device_id": name, **facts} for name in names]
        if not instance.is_of_cluster:
            is_taken = instance.is_over and (instance.was_interrupted or taken is not None)
            held = {
                "job_id": instance.name,
                "tags": _write_tags(instance),
                "end_state": _PREEMPTED if is_taken else None,
            }
            allocations += [{"device_id": name, "share": share, **held, **span} for name in names]
        for from_ms, to_ms, price in answers.find_prices(instance, end_ms):
            paid = {"from_utc": from_ms, "to_utc": to_ms, "price_per_gpu_hour": price / (kind.gpus * kind.share)}
            prices += [{"device_id": name, **paid, **_PRICED, "retrieved_on": day} for name in names]
        if taken is not None and taken.is_notice:
            detail = f"spot interruption notice: {taken.code}"
            events += [{"device_id": name, "at_utc": taken.at_ms, "kind": "other", "detail": detail} for name in names]
    if not devices:
        raise SourceError(f"{label}: no instance with GPUs is among the {len(answers.instances):,} that are listed")
    for table, rows in ((DEVICES, devices), (ALLOCATIONS, allocations), (DEVICE_EVENTS, events), (PRICES, prices)):
        if rows:
            columns = {name: [row[name] for row in rows] for name in rows[0]}
            schema = pa.schema([table.schema.field(name) for name in columns])
            yield Rows(table.name, pa.table(columns, schema=schema), label)
    for what, count in gaps.items():
        if count:
            yield Gap(label, what, count)


def _write_tags(instance: Instance) -> str | None:
    """The tags of an instance as rules of tagging read them."""
    tags = {f"tag.{name.removeprefix('label.')}": value for name, value in choose_texts(instance.tags, {}).items()}
    return write_tags({"job_name": instance.tags.get("Name", ""), **tags})


SOURCE = Source("ec2", find_with((".json",), "JSON of EC2"), read_with(decode_ec2), float(S_PER_HOUR), watches=True)
