"""Fleets with faults: the same seed makes the same rows, each fault is expected by its rule, rows are rows of the tables."""

import numpy as np
import pytest
from tests.faults.cases import ALL, MISSING, SAME, make_case
from tests.faults.kinds import FAULTS

from loadfactor.tables.schema import table

SEED = 3


@pytest.mark.parametrize("kind", FAULTS)
def test_each_fault_is_expected_by_the_rule_of_its_name(kind: str) -> None:
    """A fault of a kind makes certain that the rule of its name has something to tell; a healthy fleet makes nothing certain."""
    assert SAME.get(kind, kind) in {e.rule for e in make_case(SEED, (kind,)).expected if e.is_certain}
    assert not [e for e in make_case(SEED).expected if e.is_certain]


def test_a_seed_makes_the_same_rows() -> None:
    """Made twice, a case has the same rows; another seed has others."""
    first, again, other = (list(make_case(seed, ("pcie_saturated",)).rows()) for seed in (1, 1, 2))
    assert [batch.data for batch in first] == [batch.data for batch in again]
    assert first[-1].data != other[-1].data


def test_rows_are_rows_of_the_tables() -> None:
    """Every batch names a table and has its columns with their types; samples have the signals that are left, and no others."""
    for missing, signals in MISSING.items():
        for batch in make_case(SEED, missing=missing).rows():
            assert all(table(batch.table).schema.field(field.name) == field for field in batch.data.schema)
        assert {*batch.data.column_names} & ALL == signals


def test_what_is_late_comes_once() -> None:
    """The samples of both imports together are those that a case without late data has."""
    case, whole = make_case(SEED, is_late=True), list(make_case(SEED).rows())[-1]
    first, later = list(case.rows())[-1], next(case.late_rows())
    assert len(later.data) > 0
    assert len(first.data) + len(later.data) == len(whole.data)


def test_gaps_are_samples_that_are_not_there() -> None:
    """A tenth of the samples of every GPU is lost, and nothing else changes."""
    scene, healthy = make_case(SEED, has_gaps=True).scene, make_case(SEED).scene
    assert (scene.lost.mean(axis=1) >= 0.1).all()
    assert np.array_equal(scene.sm, healthy.sm)


def test_a_rule_without_its_signals_is_expected_to_be_silent() -> None:
    """Where nobody measures links, nothing is expected of rules about them; without profiling a busy GPU is no low utilization."""
    assert "pcie_saturated" not in {e.rule for e in make_case(SEED, ("pcie_saturated",), missing="no links").expected}
    blind = make_case(SEED, ("collective_bound",), missing="GPU_UTIL and memory only")
    assert not [e for e in blind.expected if e.is_certain]
