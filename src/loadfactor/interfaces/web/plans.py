"""Plans as forms: fields made of the options of a plan's request, what an address gives of them, and two plans side by side."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from shlex import quote
from typing import Any, Final
from urllib.parse import parse_qs, urlencode

from loadfactor.base.errors import InputError, LoadfactorError, no_such
from loadfactor.base.paths import name_store
from loadfactor.base.request import Option, options_of, read_value
from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.clusters import cluster
from loadfactor.catalog.models import find_network, networks
from loadfactor.interfaces.document import Cell, DataTable, Document, Section
from loadfactor.interfaces.formats import percent
from loadfactor.interfaces.known import KNOWN
from loadfactor.interfaces.plans.process import PLANS, PlanKind
from loadfactor.interfaces.reach import RefusedError
from loadfactor.interfaces.tables import col, table
from loadfactor.interfaces.web.standing import Standing, show_standing

AGAINST: Final = "against"
"""The field of an address that holds the query of another plan."""
AS_IT_IS: Final = "default"
"""The query of a plan of which nothing is given."""
OF_BOOKS: Final = ("store", "job", "start", "end", "last")
"""Options about measured books; `store` is whether the served ones are asked."""
OF_MACHINE: Final = {"serve": ("measured",)}
"""Options, by plan, that read files or engines without being paths: nobody else lets the server read them."""
OF_PAGE: Final = (AGAINST, "format")
YES, NO = "yes", "no"
SHOWN_AT_ONCE: Final = 8
"""Fields of a part of a form; the others are one click away, unless they are given."""
MOST_COMPARED: Final = 40
MOST_ROWS: Final = 60
FLAG: Final = re.compile(r"--([a-z])")


@dataclass(frozen=True)
class PlanField:
    """An option as a field: `value` as it was typed, `choices` where it is one of them, `known` names that are suggested."""

    option: Option
    name: str
    value: str = ""
    error: str = ""
    choices: tuple[str, ...] = ()
    known: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Its name in words."""
        return self.name.replace("_", " ").replace("gpu", "GPU")

    @property
    def help(self) -> str:
        """What it is, and its range."""
        limits = self.option.limits
        has_range = self.option.kind in (int, float) and limits.words != "finite"
        return FLAG.sub(r"\1", self.option.help) + (f" {limits.words.capitalize()}." if has_range else "")

    @property
    def is_switch(self) -> bool:
        """Whether it is on or off."""
        return self.option.kind is bool and not self.choices

    @property
    def words(self) -> list[str]:
        """It on the command line."""
        flag = self.option.flag
        if self.option.kind is bool:
            return [flag if self.value == YES else f"--no-{flag.removeprefix('--')}"]
        return [flag, quote(self.value)]


@dataclass(frozen=True)
class FieldGroup:
    """Fields that belong together, and what they are about."""

    about: str
    fields: Sequence[PlanField]

    @property
    def shown(self) -> list[PlanField]:
        """Those to see at once."""
        return [f for n, f in enumerate(self.fields) if n < SHOWN_AT_ONCE or f.value or f.error]

    @property
    def others(self) -> list[PlanField]:
        """The rest."""
        return [f for f in self.fields if f not in self.shown]


@dataclass(frozen=True)
class PlanForm:
    """A plan as an address gives it. `given`: values for its request; `error`: what no field alone is wrong by."""

    kind: PlanKind
    groups: Sequence[FieldGroup]
    given: Mapping[str, Any]
    error: str = ""
    is_example: bool = False
    folder: Path | None = None

    @property
    def fields(self) -> list[PlanField]:
        """All of them."""
        return [field for group in self.groups for field in group.fields]

    @property
    def wrong(self) -> list[PlanField]:
        """Fields whose value cannot be, and those that are missing."""
        return [f for f in self.fields if f.error or (f.option.required and not f.value)]

    @property
    def can_be_made(self) -> bool:
        """Whether the plan can be made."""
        return not self.error and not self.wrong

    @property
    def is_measured(self) -> bool:
        """Whether it reads the served books."""
        return "store" in self.given

    @property
    def query(self) -> str:
        """The query of its address: what is given, and nothing else."""
        return urlencode([(field.name, field.value) for field in self.fields if field.value])

    @property
    def command(self) -> str:
        """The command that makes the same plan."""
        words = [word for f in self.fields if f.value and f.option.field != "store" for word in f.words]
        books = ["--store", quote(name_store(self.folder))] if self.is_measured and self.folder else []
        return " ".join(["loadfactor plan", self.kind.name, *words, *books])


def find_kind(path: str) -> PlanKind:
    """The plan of a page."""
    return next(kind for kind in PLANS if path == f"/plan/{kind.name}")


def read_forms(kind: PlanKind, state: Mapping[str, Sequence[str]], folder: Path | None) -> tuple[PlanForm, ...]:
    """The plan that an address gives, and the one that it is put against, if any. `folder`: of books that may be read."""
    form = _read_form(kind, state, folder)
    if AGAINST not in state:
        return (form,)
    return form, _read_form(kind, parse_qs(state[AGAINST][-1], max_num_fields=200), folder)


def _read_form(kind: PlanKind, state: Mapping[str, Sequence[str]], folder: Path | None) -> PlanForm:
    words = {name: values[-1].strip() for name, values in state.items() if name not in OF_PAGE and values[-1].strip()}
    is_example = not words
    words = words or {name: values[-1] for name, values in parse_qs(kind.example).items()}
    groups, given = [], {}
    for about, options in _list_groups(kind.name):
        listed = []
        for option in options:
            if option.field in OF_MACHINE.get(kind.name, ()) or not _has_field(option, folder):
                continue
            field = PlanField(option, _name_field(option), words.pop(_name_field(option), ""), "", *_list_names(option))
            if field.value:
                try:
                    given[option.field] = _read_field(field, folder)
                except InputError as error:
                    field = replace(field, error=_say(error))
            listed.append(field)
        groups.append(FieldGroup(about, listed))
    names = [field.name for group in groups for field in group.fields]
    unknown = _say(no_such("field", next(iter(words)), names)) if words else ""
    return PlanForm(kind, groups, given, unknown, is_example, folder)


@cache
def _list_groups(name: str) -> list[tuple[str, list[Option]]]:
    """The options of a plan by the class that declares them: what several plans have comes first."""
    request: Any = next(kind.request for kind in PLANS if kind.name == name)
    groups, left = [], list(options_of(request))
    for declaring in reversed(request.__mro__):
        names = {f.name for f in fields(declaring)} if is_dataclass(declaring) else set()
        if own := [option for option in left if option.field in names]:
            groups.append(((declaring.__doc__ or "").partition("\n")[0], own))
            left = [option for option in left if option.field not in names]
    return groups


def _has_field(option: Option, folder: Path | None) -> bool:
    """Files of the server are none of a page's, and the books only of who may read them."""
    return folder is not None if option.field in OF_BOOKS else option.kind is not Path


def _name_field(option: Option) -> str:
    return option.flag.lstrip("-").replace("-", "_").lower()


def _list_names(option: Option) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The choices of an option, and names that are suggested."""
    if option.field == "store":
        return (YES,), ()
    if option.kind is bool:
        return ((YES, NO) if option.optional or option.default is True else ()), ()
    if option.many:
        return (), option.choices
    return option.choices, tuple(KNOWN[option.field]()) if option.field in KNOWN else ()


def _read_field(field: PlanField, folder: Path | None) -> Any:
    """The value of a field for the request. Raises InputError."""
    option, text = field.option, field.value
    if option.kind is bool or option.field == "store":
        if text not in (YES, NO):
            raise InputError(f"{field.label} is {YES} or {NO}, got {text!r}")
        return folder if option.field == "store" else text == YES
    if option.field == "model" and find_network(text) is None:
        raise no_such("network", text, networks(), "the field lists the known ones")
    if option.field in ("accelerator", "cluster"):
        (accelerator if option.field == "accelerator" else cluster)(text)
    return read_value(text, option)


def _say(error: LoadfactorError | RefusedError) -> str:
    return FLAG.sub(r"\1", str(error))


def check_plan(form: PlanForm, standing: Sequence[Standing]) -> None:
    """Raises InputError where there is no such plan, and the error of one that could not be made."""
    for field in form.wrong:
        raise InputError(f"{field.label}: {field.error}" if field.error else f"{field.label} is missing: {field.help}")
    if form.error:
        raise InputError(form.error)
    show_standing(standing[0])


def show_plans(forms: Sequence[PlanForm], standing: Sequence[Standing]) -> Document:
    """The page of a plan, with what differs from the other in front; in one line why there is none."""
    form = forms[0]
    if not form.can_be_made:
        missing = ", ".join(f.label for f in form.wrong if not f.error)
        line = form.error or (f"Fill in {missing}, and the plan stands here." if missing else "")
        wrong = [f"{f.label}: {f.error}" for f in form.wrong if f.error]
        return Document(
            line or "The plan stands here when its fields can be.", [Section(lead="\n".join(wrong))] if wrong else ()
        )
    if refusal := standing[0].refusal:
        return Document("There is no such plan.", [Section(lead=_say(refusal))])
    page = show_standing(standing[0])
    if standing[0].document is None or len(forms) == 1:
        return page
    other = forms[1]
    wrong = [other.error, *(f"{f.label}: {f.error or 'is missing'}" for f in other.wrong)]
    if not other.can_be_made or standing[1].error:
        line = "; ".join(filter(None, wrong)) or standing[1].error
        sections = [Section("The other plan", f"There is no such plan: {line}")]
    elif standing[1].document is None:
        sections = [Section("The other plan", show_standing(standing[1]).headline)]
    else:
        sections = [_compare(form, other, standing[0].document, standing[1].document)]
    return replace(page, sections=[*sections, *page.sections])


def _compare(form: PlanForm, other: PlanForm, page: Document, other_page: Document) -> Section:
    """What two plans differ in, and what comes of it."""
    pairs = list(zip(form.fields, other.fields, strict=True))
    inputs = table(
        [(a.label, _say_value(a), _say_value(b)) for a, b in pairs if a.value != b.value],
        "field",
        "this plan",
        "the other",
        title="What they differ in",
    )
    found, others = dict(_list_cells(page)), dict(_list_cells(other_page))
    changed = [(*key, found[key], others[key]) for key in found if key in others and found[key][1] != others[key][1]]
    results = table(
        changed[:MOST_COMPARED],
        col("of", lambda row: f"{row[0]}: {row[1]}" if row[0] else row[1]),
        col("what", lambda row: row[2]),
        col("this plan", lambda row: row[3][1]),
        col("the other", lambda row: row[4][1]),
        col("change", lambda row: _say_change(row[3][0], row[4][0])),
        title="What comes of it",
        note=f"and {len(changed) - MOST_COMPARED} more" if len(changed) > MOST_COMPARED else "",
    )
    listed: list[DataTable] = [t for t in (inputs, results) if t.rows]
    return Section("Against the other plan", f"The other: {other_page.headline}", tables=listed)


def _say_value(field: PlanField) -> str:
    default = field.option.shown_default
    return field.value or (f"{default} (default)" if default else "not given")


def _list_cells(page: Document) -> Iterator[tuple[tuple[str, str, str], tuple[Cell, str]]]:
    """The cells of a page that have a name: that of their section, of their row and of their column."""
    for section in page.sections:
        for listed in section.tables:
            names = [row[0] for row in listed.text_rows()]
            if len(names) != len(set(names)) or len(names) > MOST_ROWS:
                continue
            for row, texts in zip(listed.rows, listed.text_rows(), strict=True):
                for column, cell, text in list(zip(listed.columns, row, texts, strict=True))[1:]:
                    yield (section.title, texts[0], column.title), (cell, text)


def _say_change(now: Cell, other: Cell) -> str:
    """The change from the other plan to this one."""
    if isinstance(now, str) or isinstance(other, str) or now is None or not other:
        return ""
    change = float(now) / float(other) - 1
    return f"{'+' if change > 0 else '−'}{percent(abs(change))}"
