"""Decoder of EC2 as it is asked again and again: instances with GPUs, their types, and requests and prices of the spot market."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import ClassVar, Final

from loadfactor.base.units import MS_PER_S
from loadfactor.sources.clouds.ec2 import tell_instance
from loadfactor.sources.clouds.ec2_answers import OVER, Ec2Answers, read_instance
from loadfactor.sources.clouds.live_instances import LiveInstanceDecoder, Said
from loadfactor.sources.parsing.table_rows import TableRow

TYPES, REQUESTS, PRICES = "InstanceTypes", "SpotInstanceRequests", "SpotPriceHistory"
"""Kinds of events, as EC2's answers name what is in them."""
_UNSEEN: Final = "terminated"


class LiveEc2Decoder(LiveInstanceDecoder):
    """The rows of one account in one region."""

    family: ClassVar[str] = "ec2"

    def name_run(self, said: Said) -> tuple[str, str]:
        """By its id, and since when it runs."""
        return str(said["InstanceId"]), f"{said['InstanceId']} {said['LaunchTime']}"

    def is_over(self, said: Said) -> bool:
        """Whether it is stopped or terminated, or on the way there."""
        return said["State"]["Name"] in OVER

    def write_end(self, said: Said, at_ms: int) -> Said:
        """As EC2 writes of instances that somebody ended."""
        at = datetime.fromtimestamp(at_ms / MS_PER_S, UTC)
        return {**said, "State": {"Name": _UNSEEN}, "StateTransitionReason": f"Seen last ({at:%Y-%m-%d %H:%M:%S} UTC)"}

    def needs(self, kind: str, said: Said, names: set[str]) -> bool:
        """Types and prices are few; requests count while their instance is known."""
        return kind != REQUESTS or said.get("InstanceId") in names

    def tell(self) -> Iterator[tuple[str, list[TableRow]]]:
        """The rows that `loadfactor import ec2` would make of the answers; what runs has no end."""
        answers = Ec2Answers()
        for kind, some in self.others.items():
            answers.put({kind: list(some.values())}, self.label)
        for run, (at_ms, said) in self.runs.items():
            yield run, list(tell_instance(answers, read_instance(said), at_ms, None))
