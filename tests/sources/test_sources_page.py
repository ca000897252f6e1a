"""docs/sources.md is generated from the declarations. `UPDATE_PAGES=1` writes it anew."""

import os
from pathlib import Path

import pytest

import loadfactor.sources.reference as reference
from loadfactor.base.errors import InputError
from loadfactor.sources import NOT_READ, SOURCES, find_source

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "sources.md"


def test_the_page_is_generated() -> None:
    """Run with UPDATE_PAGES=1 where a source was added or changed, and read the difference."""
    if os.environ.get("UPDATE_PAGES"):
        PAGE.write_text(reference.write_sources_page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == reference.write_sources_page()


def test_each_source_says_what_it_reads_gives_and_lacks() -> None:
    """None is empty, its page exists, and its name is that of what is imported."""
    for entry in SOURCES:
        assert all((entry.reads, entry.formats, entry.seen, entry.gives, entry.lacks, entry.record)), entry.name
        assert find_source(entry.name).name == entry.name
        assert not entry.page or (DOCS / f"{entry.page}.md").exists()


def test_what_is_not_read_names_what_to_import_instead() -> None:
    """A tool that prints for people alone is refused with another way."""
    for name, _, instead in NOT_READ:
        with pytest.raises(InputError, match="no source of its own; import") as error:
            find_source(name)
        assert instead in str(error.value)
