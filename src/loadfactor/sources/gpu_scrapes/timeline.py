"""When the scrapes of some rows were taken, and the intervals they speak of."""

import numpy as np

from loadfactor.sources.gpu_scrapes.scrape_table import ScrapeColumns


class Timeline:
    """The scrapes of rows that are sorted by GPU, then time; a GPU cut by MIG has several rows a scrape.

    `first` is the first row of each scrape, `of_row` numbers the scrapes by row. Whoever knows the steps fills in `start_ms`, where
    the interval of a scrape begins, and `step_ms`.
    """

    def __init__(self, scrapes: ScrapeColumns) -> None:
        new = (scrapes.gpu[1:] != scrapes.gpu[:-1]) | (scrapes.at_ms[1:] != scrapes.at_ms[:-1])
        new = np.append(True, new)[: len(scrapes)]
        self.first = np.flatnonzero(new)
        self.of_row = np.cumsum(new) - 1
        self.gpu, self.at_ms = scrapes.gpu[self.first], scrapes.at_ms[self.first]
        self.start_ms = self.at_ms.copy()
        self.step_ms = np.zeros_like(self.at_ms)

    @property
    def is_first(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """True for the first scrape of each GPU."""
        return np.append(True, self.gpu[1:] != self.gpu[:-1])[: len(self.gpu)]
