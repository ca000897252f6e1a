"""Every link from the first page, with each kind of token, in a browser."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
from tests.browser.chromium import Heard, serve

from loadfactor.interfaces.server.guard import GRANTS
from loadfactor.interfaces.server.pages import PAGE_NEEDS
from loadfactor.interfaces.web.pages import PAGES
from loadfactor.store.tokens import create_token

TEAM = "assistant"
RIGHTS = ("read", "read-team")
LINKS = "all => all.map(a => a.getAttribute('href'))"


@pytest.fixture(scope="module")
def guarded(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    """Where the same books are shown to tokens alone, and a token of each kind."""
    folder = tmp_path_factory.mktemp("guarded") / "books"
    shutil.copytree(store, folder)
    made = {right: create_token(folder, right, None, "", 1)[1] for right in ("read", "write")}  # type: ignore[arg-type]
    made["read-team"] = create_token(folder, "read-team", TEAM, "", 1)[1]
    with serve(folder) as address:
        yield address, made


def kind_of(link: str) -> tuple[str, tuple[str, ...]]:
    """The page of an address and the names in its state: one filter is like another."""
    path, _, state = link.partition("?")
    return re.sub(r"^(/\w+)/.+", r"\1/{id}", path) if state else path, tuple(name for name, _ in parse_qsl(state))


def crawl(page: Any) -> dict[str, int]:
    """The status of every page without a state that links lead to, and of one page of each kind of state."""
    found: dict[str, int] = {}
    kinds = {("/", ())}
    waiting = ["/"]
    while waiting:
        link = waiting.pop()
        if "format=" in link:
            found[link] = page.request.get(link, timeout=300_000).status  # a plan compiles once
            continue
        found[link] = page.goto(link).status
        for other in page.eval_on_selector_all("a[href]", LINKS):
            kind = kind_of(other.partition("#")[0])
            if kind[0] and kind not in kinds:
                kinds.add(kind)
                waiting.append(other.partition("#")[0])
    return found


@pytest.mark.parametrize("right", RIGHTS)
def test_every_link_leads_to_a_page(chromium: Any, guarded: tuple[str, dict[str, str]], right: str) -> None:
    """Signed in by the form; a page that this token may not see is not linked, and refused."""
    address, tokens = guarded
    with chromium.new_context(base_url=address) as context:
        heard = Heard(address)
        context.on("page", heard.listen)
        page = context.new_page()
        page.goto("/jobs")
        page.get_by_label("Token").fill(tokens[right])
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url("**/jobs")
        found = crawl(page)
        assert {link: status for link, status in found.items() if status != 200} == {}
        for declared in PAGES:
            path = declared.path.replace("{id}", TEAM)
            needs = PAGE_NEEDS["GET", declared.path]
            if needs not in GRANTS[right]:
                assert path not in found
                assert page.request.get(path).status == 403
            elif declared.name:
                assert path in found
        teams = {link.split("/")[2].partition("?")[0] for link in found if link.startswith("/teams/")}
        assert teams == {TEAM} if right == "read-team" else len(teams) > 1
        assert len([link for link in found if link.startswith("/jobs/")]) > 10
        page.get_by_role("button", name="Sign out").click()
        page.wait_for_url("**/login")
        assert heard.found == []


def test_a_token_that_only_sends_sees_no_page(chromium: Any, guarded: tuple[str, dict[str, str]]) -> None:
    """As a header or by the form."""
    address, tokens = guarded
    with chromium.new_context(base_url=address) as context:
        page = context.new_page()
        for declared in PAGES:
            headers = {"authorization": f"Bearer {tokens['write']}", "accept": "text/html"}
            assert context.request.get(declared.path.replace("{id}", TEAM), headers=headers).status == 403
        page.goto("/login")
        page.get_by_label("Token").fill(tokens["write"])
        page.get_by_role("button", name="Sign in").click()
        assert "only sends" in page.get_by_role("alert").inner_text()
