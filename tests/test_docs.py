"""The pages of docs/ are listed, and what they link to is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.glob("*.md")])
LINK = re.compile(r"\]\(([^)#]+?)(?:#[^)]*)?\)")


def test_every_page_is_in_the_index() -> None:
    """`docs/index.md` links to each page of docs/ by question."""
    by_question = (DOCS / "index.md").read_text(encoding="utf-8").split("## By reader", 1)[0]
    assert {page.name for page in DOCS.glob("*.md")} - {"index.md"} == set(LINK.findall(by_question))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """A link of a page to a file of this project names one that is there."""
    targets = [target for target in LINK.findall(page.read_text(encoding="utf-8")) if ":" not in target]
    assert not [target for target in targets if not (page.parent / target).exists()]


def test_the_readme_is_short() -> None:
    """A newcomer reads it whole: at most 120 lines."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120
