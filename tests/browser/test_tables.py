"""What a page's table says and what `show` says are the same."""

import random
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.commands import Run

from loadfactor.books.books import Books
from loadfactor.metrics import METRICS

QUESTIONS = 50
DIMENSIONS = ("team", "job", "user", "pool", "accelerator", "node", "device", "day", "hour", "state")
FILTERED = ("team", "pool", "accelerator", "user")
WINDOWS = ({}, {"last": "1d"}, {"last": "9h"}, {"from": "2026-10-24", "to": "2026-10-25"}, {"from": "2026-10-25"})
ROWS = "all => all.map(row => [...row.cells].map(cell => cell.innerText.trim()))"


def make_questions(store: Path) -> list[dict[str, str]]:
    """Random metrics, splits, filters and windows, the same every time."""
    chance = random.Random(31)
    with Books(store).snapshot() as snapshot:
        values = {name: [k for (k,) in snapshot.show(("cost",), (name,)).keys if k] for name in FILTERED}
    questions = []
    for _ in range(QUESTIONS):
        name = chance.choice(FILTERED)
        where = f"{name}={chance.choice(values[name])}"
        questions.append(
            {
                "metric": ",".join(m.name for m in chance.sample(METRICS, chance.choice((1, 2, 4)))),
                "by": ",".join(chance.sample(DIMENSIONS, chance.choice((1, 1, 2)))),
                **({"where": where} if chance.random() < 0.5 else {}),
                **chance.choice(WINDOWS),
            }
        )
    return questions


def read_rows(markdown: str) -> list[list[str]]:
    """The cells of the tables of a page as Markdown, headings too."""
    lines = [line for line in markdown.splitlines() if line.startswith("|") and set(line) - set("|-:")]
    return [[cell.strip().replace("\\", "") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_tables_are_those_of_show(page: Any, store: Path, run: Run) -> None:
    """Fifty random questions, by an address and by a command; both refuse the same."""
    shown = 0
    for question in make_questions(store):
        answer = page.request.get(f"/time?{urlencode(question)}", headers={"accept": "text/html"})
        options = [f"--{name}={value}" for name, value in question.items() if name != "metric"]
        code, markdown, error = run(
            "show", *question["metric"].split(","), *options, "--store", store, "--format", "md"
        )
        assert (answer.status == 200) == (code == 0), (question, error)
        if code:
            continue
        page.goto(f"/time?{urlencode(question)}")
        assert page.eval_on_selector_all("tr", ROWS) == read_rows(markdown), question
        shown += bool(read_rows(markdown))
    assert shown > QUESTIONS / 2
