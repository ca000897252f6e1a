"""The pages as a browser shows them."""

from typing import Any


def test_the_first_page_answers(page: Any) -> None:
    """In a sentence."""
    answer = page.goto("/")
    assert answer.status == 200
    assert page.locator("h1").inner_text().startswith("The fleet was ")
