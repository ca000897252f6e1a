"""The catalog holds facts that can be believed: positive, sourced, dated, found under the names drivers use."""

from loadfactor.catalog.accelerators import accelerator, accelerators, find_accelerator
from loadfactor.catalog.prices import gpu_hour_prices


def test_every_fact_is_positive_and_sourced() -> None:
    """Every value is a positive number with a source, and every accelerator has the ones a roofline needs."""
    for item in accelerators().values():
        for name, fact in item.facts.items():
            assert fact.value > 0, (item.id, name)
            assert fact.source
        assert item.memory_bytes > 0
        assert item.memory_bandwidth_bytes_per_s > 0


def test_names_of_drivers_and_papers_are_found() -> None:
    """An accelerator is found by id, by the driver's name and by its short name, in any case; no name is claimed twice."""
    assert accelerator("nvidia h100 80gb hbm3").id == "h100-sxm"
    assert accelerator("A100-SXM-80GB").id == "a100-sxm"
    assert find_accelerator("abacus") is None
    names = [n for a in accelerators().values() for n in {x.lower() for x in (a.id, a.name, *a.aliases)}]
    assert sorted(names) == sorted(set(names))


def test_prices_are_positive_ordered_and_name_known_accelerators() -> None:
    """A price range is low ≤ typical ≤ high, dated YYYY-MM, for an accelerator of the catalog."""
    for price in gpu_hour_prices():
        assert price.accelerator in accelerators()
        assert 0 < (price.low or price.typical) <= price.typical <= (price.high or price.typical)
        assert len(price.as_of) == 7
