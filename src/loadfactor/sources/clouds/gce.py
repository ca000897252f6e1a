"""Compute Engine: saved lists of instances with GPUs, and operations that took some away → what is installed, and who holds it."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from loadfactor.base.errors import SourceError
from loadfactor.base.units import BYTES_PER_MIB, S_PER_HOUR
from loadfactor.sources.base import Gap, Input, ReadOptions, Rows, Source
from loadfactor.sources.clouds.cloud_series import split_documents
from loadfactor.sources.clouds.gce_answers import GceAnswers, GceInstance
from loadfactor.sources.clouds.instance_tags import write_instance_tags
from loadfactor.sources.files import find_with, read_with
from loadfactor.sources.parsing.table_rows import TableRow, write_tables
from loadfactor.sources.parsing.text_blocks import join_pieces

LARGEST_ANSWER_BYTES: Final = 256 * BYTES_PER_MIB
NO_END: Final = "instances that are over, nobody says since when: taken to end when the list was taken"
NO_GPUS_SAID: Final = "instances of a type with GPUs that list none"


def decode_gce(inputs: Sequence[Input], options: ReadOptions) -> Iterator[Rows | Gap]:
    """Rows of all lists together. Raises SourceError for what is none, or where it is not said when they were taken."""
    answers = GceAnswers()
    for source in inputs:
        content = join_pieces(source.label, source.chunks, LARGEST_ANSWER_BYTES, "save fewer instances a file")
        try:
            documents = list(split_documents(content.decode()))
        except (ValueError, RecursionError):
            raise SourceError(f"{source.label} is no JSON of Compute Engine; is it whole?") from None
        for document in documents:
            answers.put(document, source.label)
    label = inputs[0].label
    if options.at_ms is None:
        raise SourceError(
            f"{label}: lists of instances do not say when they were taken: give --at; docs/connect-clouds.md"
        )
    rows: list[TableRow] = []
    gaps: Counter[str] = Counter()
    nodes = answers.name_nodes()
    for key, instance in answers.instances.items():
        gaps[NO_GPUS_SAID] += instance.lacks_gpus
        gaps[NO_END] += bool(instance.gpus) and instance.is_over and answers.find_end(instance) is None
        rows += tell_instance(answers, instance, nodes[key], options.at_ms, options.at_ms, options.pool)
    if not rows:
        raise SourceError(f"{label}: no instance with GPUs is among the {len(answers.instances):,} that are listed")
    yield from write_tables(rows, label)
    for what, count in gaps.items():
        if count:
            yield Gap(label, what, count)


def tell_instance(
    answers: GceAnswers, instance: GceInstance, node: str, at_ms: int, until_ms: int | None, pool: str | None = None
) -> Iterator[TableRow]:
    """The rows of an instance; none where it has no GPUs. `at_ms`: when it was said; `until_ms`: until when what goes on is known,
    None where that is to be seen.

    GPUs are known by their number alone (`node:gpu0`): where an exporter or the Ops Agent names them, they count once.
    """
    end_ms, taken_ms = until_ms, answers.find_preemption(instance)
    if instance.is_over:
        said_ms = answers.find_end(instance)
        end_ms = at_ms if said_ms is None else said_ms
    if not instance.gpus or (end_ms is not None and end_ms <= instance.began_ms):
        return
    span = {"from_utc": instance.began_ms, "to_utc": end_ms}
    kinds = [kind for kind, count in instance.gpus for _ in range(count)]
    for number, kind in enumerate(kinds):
        yield "devices", {"device_id": f"{node}:gpu{number}", "node": node, "accelerator": kind, "pool": pool, **span}
        if taken_ms is not None:
            event = {"at_utc": taken_ms, "kind": "other", "detail": "preempted by Compute Engine"}
            yield "device_events", {"device_id": f"{node}:gpu{number}", **event}
    if not instance.is_of_cluster:
        end_state = "preempted" if instance.is_over and taken_ms is not None else None
        held = {"job_id": node, "node": node, "gpus": len(kinds), "end_state": end_state}
        yield "allocations", {**held, "tags": write_instance_tags(instance.name, instance.labels), **span}


SOURCE = Source(
    "gce", find_with((".json",), "JSON of Compute Engine"), read_with(decode_gce), float(S_PER_HOUR), watches=True
)
