"""docs/sources.md: every source with what it reads, gives and lacks, generated from the declarations."""

from typing import Final

from loadfactor.sources import NOT_READ, SOURCES, find_source
from loadfactor.sources.origins import FEWER, ORIGINS

_HEAD: Final = """# What can be read

Every source of `loadfactor import`, generated from its declaration. What a source lacks stays unknown, never zero; what a file
holds and nothing reads is counted on the receipt. Live, the same decoders run behind [collect live](collect-live.md),
[Kubernetes](connect-kubernetes.md), [Slurm](connect-slurm.md) and [the clouds](connect-clouds.md).

"""
_OPTIONS: Final = {"begun": "--start"}


def write_sources_page() -> str:
    """The text of docs/sources.md."""
    parts = [_HEAD, "| source | reads |\n|---|---|\n"]
    parts += [f"| [`{entry.name}`](#{entry.name}) | {_escape(entry.reads)} |\n" for entry in SOURCES]
    for entry in SOURCES:
        options = ", ".join(f"`{_OPTIONS.get(name, f'--{name}')}`" for name in find_source(entry.name).uses)
        rows = [
            ("formats", entry.formats),
            ("versions seen", entry.seen),
            ("gives", entry.gives),
            ("lacks", entry.lacks),
            ("record", entry.record),
            ("tested with", _list_origins(entry.name)),
            ("options", options or "none"),
        ]
        parts.append(f"\n## {entry.name}\n\n| | |\n|---|---|\n")
        parts += [f"| {name} | {_escape(text)} |\n" for name, text in rows]
        if entry.page:
            parts.append(f"\nMore: [{entry.page.replace('-', ' ')}]({entry.page}.md).\n")
    parts.append("\n## No sources of their own\n\n| | what it is | instead |\n|---|---|---|\n")
    parts += [f"| {' | '.join(map(_escape, row))} |\n" for row in NOT_READ]
    return "".join(parts)


def _list_origins(name: str) -> str:
    """The origins of the files of a source's tests and, where they are fewer than three, why."""
    return "; ".join((*ORIGINS.get(name, ()), *([f"fewer are public: {FEWER[name]}"] if name in FEWER else [])))


def _escape(text: str) -> str:
    return text.replace("|", "\\|")
