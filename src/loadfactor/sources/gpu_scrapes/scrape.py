"""One scrape of one GPU or MIG instance in which a field came more than once: which of its values is the device's."""

from dataclasses import dataclass, field

from loadfactor.sources.gpu_scrapes.fields import BY_PROCESS


@dataclass
class Scrape:
    """What one scrape said of one GPU or MIG instance, put in value by value, and who held it."""

    holders: set[str] = field(default_factory=set)
    values: dict[str, float] = field(default_factory=dict)
    totals: dict[str, float] = field(default_factory=dict)
    _of: dict[str, str | None] = field(default_factory=dict)

    def put(self, key: str, counts: bool, value: float, holder: str | None) -> str | None:
        """Adds a value; says what is wrong where the same field was read otherwise before.

        One series a pod repeats what the device did, so equal values are one. Where they differ, those of fields that
        virtual GPUs report by process are of nobody but that process.
        """
        place = self.totals if counts else self.values
        if key not in self._of:
            self._of[key] = holder
            place[key] = value
            return None
        before = place.get(key)
        if before == value:
            return None
        if key in BY_PROCESS and holder != self._of[key]:
            if holder is None or self._of[key] is None:  # the row of the device itself
                if holder is None:
                    place[key], self._of[key] = value, None
                return None
            place.pop(key, None)
            return "read by process (virtual GPUs), not of the device"
        return "read twice with different values"
