"""EC2: saved answers about instances with GPUs → what is installed, who holds it, what spot costs, and what was taken away.

GPUs are called as those of CloudWatch's agent are, by instance and number: `i-0abc/0`; those of a node of Kubernetes by its name
there. Answers say what was just then; what is in the next ones, too, did not end in between.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from loadfactor.base.errors import SourceError
from loadfactor.base.units import BYTES_PER_MIB, MS_PER_S, S_PER_HOUR
from loadfactor.sources.base import Gap, Input, ReadOptions, Rows, Source
from loadfactor.sources.clouds.cloud_series import split_documents
from loadfactor.sources.clouds.ec2_answers import Ec2Answers, Instance
from loadfactor.sources.clouds.instance_tags import write_instance_tags
from loadfactor.sources.files import find_with, read_with
from loadfactor.sources.parsing.table_rows import TableRow, write_tables
from loadfactor.sources.parsing.text_blocks import join_pieces
from loadfactor.tables.schema import LIST, SEEN

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
    rows: list[TableRow] = []
    gaps: Counter[str] = Counter()
    for instance in answers.instances.values():
        gaps[NOT_DESCRIBED] += instance.type_name not in answers.described
        has_gpus = instance.type_name in answers.types
        gaps[NO_END] += has_gpus and instance.is_over and answers.find_end(instance) is None
        rows += tell_instance(answers, instance, options.at_ms, options.at_ms, options.pool)
    if not rows:
        raise SourceError(f"{label}: no instance with GPUs is among the {len(answers.instances):,} that are listed")
    yield from write_tables(rows, label)
    for what, count in gaps.items():
        if count:
            yield Gap(label, what, count)


def tell_instance(
    answers: Ec2Answers, instance: Instance, at_ms: int, until_ms: int | None, pool: str | None = None
) -> Iterator[TableRow]:
    """The rows of an instance; none of a type without GPUs. `at_ms`: when it was said; `until_ms`: until when what goes on is
    known, None where that is to be seen.
    """
    kind = answers.types.get(instance.type_name)
    if kind is None:
        return
    taken = answers.find_interruption(instance)
    end_ms, said_ms = until_ms, None
    if instance.is_over:
        said_ms = answers.find_end(instance)
        end_ms = at_ms if said_ms is None else said_ms
    if end_ms is not None and end_ms <= instance.began_ms:
        return
    names = [f"{instance.gpu_prefix}{number}" for number in range(kind.gpus)]
    span = {"from_utc": instance.began_ms, "to_utc": end_ms}
    share = kind.share if kind.share < 1 else None
    facts = {"node": instance.node, "accelerator": kind.accelerator, "pool": pool, "share": share, **span}
    facts["known_from"] = SEEN if said_ms is None else LIST
    yield from (("devices", {"device_id": name, **facts}) for name in names)
    if not instance.is_of_cluster:
        is_taken = instance.is_over and (instance.was_interrupted or taken is not None)
        end_state = _PREEMPTED if is_taken else None
        tags = write_instance_tags(instance.tags.get("Name", ""), instance.tags)
        held: dict[str, Any] = {"job_id": instance.name, "tags": tags, "end_state": end_state, "share": share, **span}
        yield from (("allocations", {"device_id": name, **held}) for name in names)
    for from_ms, to_ms, price in answers.find_prices(instance, end_ms):
        day = datetime.fromtimestamp(max(from_ms, at_ms) / MS_PER_S, UTC).date().isoformat()
        paid: dict[str, Any] = {
            "from_utc": from_ms,
            "to_utc": to_ms,
            "price_per_gpu_hour": price / (kind.gpus * kind.share),
        }
        yield from (("prices", {"device_id": name, **paid, **_PRICED, "retrieved_on": day}) for name in names)
    if taken is not None and taken.is_notice:
        detail = f"spot interruption notice: {taken.code}"
        event = {"at_utc": taken.at_ms, "kind": "other", "detail": detail}
        yield from (("device_events", {"device_id": name, **event}) for name in names)


SOURCE = Source("ec2", find_with((".json",), "JSON of EC2"), read_with(decode_ec2), float(S_PER_HOUR), watches=True)
