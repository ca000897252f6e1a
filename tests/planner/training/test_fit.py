"""The constants of training: one command gives them again from what was measured, whatever its file says now."""

from dataclasses import replace

import pytest
from benchmarks import fit_training

from loadfactor.catalog.constants import read_training_constants

FILES = ("megatron_sc21_table1.csv", "korthikanti2022_table5.csv")


@pytest.mark.long
def test_constants_do_not_depend_on_those_before() -> None:
    """The same rows give the same constants to a millionth, and the order of layouts too, whatever was fitted before.

    `python -m benchmarks.fit_training FOLDER --check` says that of all rows and of the file.
    """
    priors, kept = fit_training.read_priors(), read_training_constants()
    spoiled = replace(kept, **{name: 1.3 * getattr(kept, name) for name in priors})
    found = []
    for before in (kept, spoiled):
        start = replace(before, **priors)
        rows = fit_training.cases(fit_training.PUBLISHED, FILES, start)
        found.append(fit_training.fit(rows, priors, start))
    assert len(rows) == 10 + 8
    assert [getattr(found[0], name) for name in priors] == pytest.approx(
        [getattr(found[1], name) for name in priors], rel=fit_training.SAME
    )
