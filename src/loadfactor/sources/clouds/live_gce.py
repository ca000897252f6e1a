"""Decoder of Compute Engine as it is asked again and again: instances with GPUs, and operations that took some away."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import ClassVar, Final

from loadfactor.base.units import MS_PER_S
from loadfactor.sources.clouds.gce import tell_instance
from loadfactor.sources.clouds.gce_answers import OVER, GceAnswers, read_instance
from loadfactor.sources.clouds.live_instances import LiveInstanceDecoder, Said
from loadfactor.sources.parsing.table_rows import TableRow

PREEMPTIONS: Final = "preemptions"
"""Operations by which Compute Engine took instances away."""


class LiveGceDecoder(LiveInstanceDecoder):
    """The rows of one project."""

    family: ClassVar[str] = "gce"

    def name_run(self, said: Said) -> tuple[str, str]:
        """By its number, and since when it runs: names are used again."""
        return str(said["id"]), f"{said['id']} {said.get('lastStartTimestamp') or said['creationTimestamp']}"

    def is_over(self, said: Said) -> bool:
        """Whether it is stopped, suspended or deleted, or on the way there."""
        return said["status"] in OVER

    def write_end(self, said: Said, at_ms: int) -> Said:
        """As Compute Engine writes of instances that are stopped; where it took the instance away, the operation says when."""
        answers = GceAnswers()
        self._put_preemptions(answers)
        instance = read_instance(said)
        taken_ms = None if instance is None else answers.find_preemption(instance)
        at = datetime.fromtimestamp((taken_ms or at_ms) / MS_PER_S, UTC)
        return {**said, "status": "TERMINATED", "lastStopTimestamp": at.isoformat()}

    def needs(self, _kind: str, said: Said, names: set[str]) -> bool:
        """Operations count while their instance is known."""
        return str(said.get("targetId")) in names

    def tell(self) -> Iterator[tuple[str, list[TableRow]]]:
        """The rows that `loadfactor import gce` would make of the lists; what runs has no end."""
        answers = GceAnswers()
        self._put_preemptions(answers)
        answers.put([said for _, said in self.runs.values()], self.label)
        nodes = answers.name_nodes()
        for run, (at_ms, said) in self.runs.items():
            instance = read_instance(said)
            if instance is not None:
                node = nodes[instance.number, instance.began_ms]
                yield run, list(tell_instance(answers, instance, node, at_ms, None))

    def _put_preemptions(self, answers: GceAnswers) -> None:
        answers.put(list(self.others.get(PREEMPTIONS, {}).values()), self.label)
