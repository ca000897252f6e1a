"""`loadfactor top`: its pages as somebody has read and kept them, what keys change, and the same answers from books and server.

`UPDATE_PAGES=1 pytest tests/interfaces/top` writes the pages anew; read the difference before it is kept.
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import astuple, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient
from tests.interfaces.server.conftest import LOCAL, Remembering

from loadfactor.base.errors import InputError
from loadfactor.books import window_ledger
from loadfactor.books.books import Books
from loadfactor.collect.http_fetch import FetchError
from loadfactor.interfaces.cli import main
from loadfactor.interfaces.document import Document
from loadfactor.interfaces.render.ascii import to_ascii
from loadfactor.interfaces.render.terminal import render_text
from loadfactor.interfaces.server.app import make_app
from loadfactor.interfaces.server.guard import Guard
from loadfactor.interfaces.top.page import DOWN, ENTER, ESCAPE, RUB_OUT, TopView, build_history, build_page
from loadfactor.interfaces.top.readers import (
    Grouping,
    ServerReader,
    StoreReader,
    TopAnswer,
    TopQuestion,
    ask_history,
    ask_top,
    find_gpu,
)
from loadfactor.store.tokens import TokenFile

KEPT = Path(__file__).parent / "pages"


@pytest.fixture(scope="module")
def reader(simulated_books: Books) -> StoreReader:
    """Reads the simulated fleet."""
    return StoreReader(simulated_books)


@pytest.fixture(scope="module")
def by_gpu(reader: StoreReader) -> TopAnswer:
    """What its GPUs did last."""
    return ask_top(reader, "gpu", "1h")


def keep(name: str, page: Document) -> None:
    """The page is the one that was kept, at 80 and 100 columns, and ASCII where it must be."""
    for width in (80, 100):
        text = render_text(page, width) + "\n"
        assert max(map(len, text.splitlines())) <= width
        for suffix, shown in (("txt", text), ("ascii.txt", to_ascii(text))):
            path = KEPT / f"{name}.{width}.{suffix}"
            if os.environ.get("UPDATE_PAGES"):
                path.write_text(shown, encoding="utf-8")
            assert path.read_text(encoding="utf-8") == shown, (
                f"{path.name} changed; run with UPDATE_PAGES=1 once it is read"
            )


class OneByOne:
    """Asks each question on its own."""

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader

    def ask(self, questions: Sequence[TopQuestion]) -> list[list[dict[str, Any]]]:
        return [self._reader.ask([question])[0] for question in questions]


def test_an_hour_is_booked_once_for_all_its_steps(
    reader: StoreReader, by_gpu: TopAnswer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twelve steps of a GPU's hour come of one booking, and are what they are asked one by one."""
    gpu = by_gpu.rows[0].names[0]
    assert gpu
    assert by_gpu.end
    end = by_gpu.end - timedelta(minutes=22)
    alone = ask_history(OneByOne(reader), gpu, end)
    booked = []
    book = window_ledger.book
    monkeypatch.setattr(window_ledger, "book", lambda *given: booked.append(given) or book(*given))
    together = ask_history(reader, gpu, end)
    assert len(booked) == 1
    assert together.ends == alone.ends
    for step, expected in zip(together.steps, alone.steps, strict=True):
        assert astuple(step)[1:] == pytest.approx(astuple(expected)[1:], rel=1e-12)


@pytest.mark.parametrize("grouping", ["gpu", "node", "job", "team"])
def test_a_page_is_as_it_was_read(reader: StoreReader, grouping: Grouping) -> None:
    """Each grouping is one page."""
    view = TopView(grouping, "utilization", descending=True)
    keep(f"by-{grouping}", build_page(ask_top(reader, grouping, "1h"), view, limit=8))


def test_the_last_hour_of_a_gpu(reader: StoreReader, by_gpu: TopAnswer) -> None:
    """One GPU's hour is twelve steps; what is over is not asked again."""
    assert by_gpu.end is not None
    gpu = by_gpu.rows[0].names[0]
    assert gpu is not None
    history = ask_history(reader, gpu, by_gpu.end)
    keep("one-gpu", build_history(history))
    assert len(history.steps) == 12
    marked = replace(history, steps=tuple(replace(step, power_w=-1.0) for step in history.steps))
    again = ask_history(reader, gpu, by_gpu.end, marked)
    assert [step.power_w == -1.0 for step in again.steps] == [True] * 10 + [False] * 2
    assert again.steps[-2:] == history.steps[-2:]


def test_rows_add_up_to_the_fleet(reader: StoreReader) -> None:
    """GPUs and cost of the nodes are those of the fleet."""
    answer = ask_top(reader, "node", "1h")
    assert answer.fleet is not None
    assert sum(row.gpus or 0 for row in answer.rows) == pytest.approx(answer.fleet.gpus)
    assert sum(row.cost_per_hour or 0 for row in answer.rows) == pytest.approx(answer.fleet.cost_per_hour)


def test_keys_change_the_view(by_gpu: TopAnswer) -> None:
    """Letters group and order, arrows choose, enter shows one GPU, a filter is typed."""
    rows, view = by_gpu.rows, TopView("gpu")
    assert view.press("j", rows).grouping == "job"
    assert [view.press("s", rows).order, view.press("s", rows).descending] == ["gpus", True]
    assert view.press("r", rows).arrange(rows) == view.arrange(rows)[::-1]
    below = view.press(DOWN, rows).press(DOWN, rows)
    chosen = below.press(ENTER, rows)
    assert chosen.gpu == view.arrange(rows)[2].names[0]
    assert chosen.press(ESCAPE, rows).gpu is None
    typing = view.press("/", rows)
    for key in "q9x":
        typing = typing.press(key, rows)
    typed = typing.press(RUB_OUT, rows).press(ENTER, rows)
    assert (typed.filter, typed.is_typing, typed.is_over) == ("q9", False, False)
    assert typed.arrange(rows) == []
    assert typed.press("q", rows).is_over


def test_a_filter_and_unknown_values(by_gpu: TopAnswer) -> None:
    """A filter keeps rows with the text in any name; what is unknown stands last either way."""
    name = by_gpu.rows[0].names[1]
    assert name is not None
    assert {row.names[1] for row in TopView("gpu", filter=name.upper()).arrange(by_gpu.rows)} == {name}
    for descending in (False, True):
        values = [row.utilization for row in TopView("gpu", "utilization", descending).arrange(by_gpu.rows)]
        known = [value for value in values if value is not None]
        assert values[: len(known)] == known


def test_a_gpu_by_the_beginning_of_its_name(by_gpu: TopAnswer) -> None:
    """A beginning that several GPUs or none have is refused."""
    name = by_gpu.rows[0].names[0]
    assert name is not None
    assert find_gpu(by_gpu, name) == name
    for begins in ("", "nothing"):
        with pytest.raises(InputError, match="begin"):
            find_gpu(by_gpu, begins)


def test_a_server_answers_as_the_books(reader: StoreReader, simulated_books: Books) -> None:
    """Asked over HTTP the rows are the same; a server that refuses or is none is said in one line."""
    app = make_app(simulated_books, Remembering(), Guard(TokenFile(simulated_books.store.folder)))
    with TestClient(app, LOCAL, client=("127.0.0.1", 5000)) as client:
        server = ServerReader(str(client.base_url), client=client)
        assert ask_top(server, "job", "1h") == ask_top(reader, "job", "1h")
        with pytest.raises(InputError, match="nobody-knows"):
            ask_top(server, "job", "1h", ("team=nobody-knows",))
    closed = httpx.Client(
        transport=httpx.MockTransport(lambda _: httpx.Response(401, json={"error": "a token is needed"}))
    )
    with pytest.raises(FetchError, match="token is needed; give a token"):
        ask_top(ServerReader("http://closed", client=closed), "node", "1h")
    other = httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(200, text="<html>")))
    with pytest.raises(FetchError, match="does not answer as"):
        ask_top(ServerReader("http://other", client=other), "node", "1h")


def test_into_a_pipe_it_prints_one_page(
    simulated_books: Books, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where nobody watches, one page is printed and the command ends."""
    folder = str(simulated_books.store.folder)
    monkeypatch.setattr(sys, "argv", ["loadfactor", "top", "--store", folder, "--last", "1h", "--limit", "3"])
    with pytest.raises(SystemExit) as left:
        main()
    assert not left.value.code
    assert "By node, ordered by name." in capsys.readouterr().out
