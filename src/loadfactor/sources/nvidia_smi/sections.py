"""The sections of a log: query logs, dmon, XML and text, alone or one after the other in a recorded session."""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import Gap, Gaps, Input, ReadOptions, Rows
from loadfactor.sources.nvidia_smi.dmon import END, STARTS, DmonLog, XmlLog, parse_dmon_heading
from loadfactor.sources.nvidia_smi.query import QueryLog, find_heading, is_headless, parse_heading
from loadfactor.sources.nvidia_smi.samples import SampleBuilder
from loadfactor.sources.nvidia_smi.text_report import START, TextReport
from loadfactor.sources.parsing.steps import DevicesSeen
from loadfactor.sources.parsing.text_blocks import TextBlock, split_blocks

_HOPELESS_LINES: Final = 100_000  # a log that shows no reading in so many lines is something else
_RECORD: Final = (
    "record with nvidia-smi --query-gpu=timestamp,uuid,name,utilization.gpu,memory.used,memory.total,power.draw "
    "--format=csv -l 30"
)
_PMON: Final = "pmon, which lists processes"
_NO_DIGIT: Final = re.compile(rb"\n[ \t\r\v\f]*[^\s\d]")
_MARKS: Final = (b"#", b"<", b"=", b"+")


def _find_line_end(data: bytes, at: int) -> int:
    end = data.find(b"\n", at)
    return len(data) if end < 0 else end


def _find_lines(data: bytes, at: int) -> Iterator[int]:
    while at < len(data):
        yield at
        at = _find_line_end(data, at) + 1


def _find_candidates(data: bytes, at: int) -> Iterator[int]:
    """The same of a query log, but for lines that are surely rows of it: they begin with a digit and hold no heading."""
    if not data.endswith(b"\n", 0, at):
        yield at
        at = _find_line_end(data, at) + 1
    begin = heading = -1
    while at < len(data):
        if begin < at:
            found = _NO_DIGIT.search(data, at - 1)
            begin = found.start() + 1 if found else len(data)
        if heading < at:
            stamp = data.find(b"timestamp", at)
            heading = len(data) if stamp < 0 else data.rfind(b"\n", at - 1, stamp) + 1
        at = min(begin, heading)
        if at < len(data):
            yield at
        at = _find_line_end(data, at) + 1


class _OtherText:
    """Lines that are no readings of GPUs; counted, so that nothing vanishes unseen."""

    def __init__(self, builder: SampleBuilder, what: str) -> None:
        self._builder, self._what = builder, what

    def read(self, data: bytes, _line: int) -> Iterator[Rows]:
        count = sum(1 for line in data.split(b"\n") if line.strip())
        self._builder.gaps.add(self._builder.label, f"skipped: a line of {self._what}", count)
        return iter(())

    def read_last(self, line: bytes, number: int) -> Iterator[Rows]:
        return self.read(line, number)


class LogSections:
    """Reads one log once, from top to bottom, in blocks of lines."""

    def __init__(self, log: Input, builder: SampleBuilder) -> None:
        self._log, self._builder, self._label = log, builder, log.label
        self._xml = XmlLog(builder)
        self._section: QueryLog | DmonLog | TextReport | _OtherText = _OtherText(builder, "text")
        self._first = True
        self._found = False
        self._report = TextReport(builder, self._xml.hold)
        self._queried = self._has_processes = False

    def read(self) -> Iterator[Rows]:
        """Every row of the log. SourceError when nothing in it is a reading of nvidia-smi."""
        line = 1
        for block in split_blocks(self._log):
            line = block.line
            yield from self._read_block(block)
            if not self._found and line > _HOPELESS_LINES:
                break
        if self._queried:
            self._report.drop()
        yield from self._report.finish(line)
        yield from self._xml.finish(line)
        if not self._found:
            what = f"{_PMON} by PID, and " if self._has_processes else ""
            raise SourceError(f"{self._label}: {what}no readings of nvidia-smi in it; {_RECORD}")

    def _read_block(self, block: TextBlock) -> Iterator[Rows]:
        data, at, line, counted = block.data, 0, block.line, 0
        while at < len(data):
            line, counted = line + data.count(b"\n", counted, at), at
            if self._xml.inside:
                end = self._find_document_end(data, at)
                yield from self._xml.feed(data[at:end], line)
                if data.endswith(END, at, end):
                    yield from self._xml.end(line)
                elif end < len(data):
                    self._xml.begin()
                at = end
                continue
            end = self._find_section_end(data, at)
            lines = data[at:end]
            if lines and not lines.endswith(b"\n"):
                cut = lines.rfind(b"\n") + 1
                yield from self._section.read(lines[:cut], line)
                yield from self._section.read_last(lines[cut:], line + lines.count(b"\n"))
            elif lines:
                yield from self._section.read(lines, line)
            at = end
            if at < len(data):
                at = self._begin_section(data, at)

    def _find_document_end(self, data: bytes, at: int) -> int:
        """Where the open document ends in this block: behind its end tag, at the next document, or not at all."""
        end = data.find(END, at)
        ends = [end + len(END)] if end >= 0 else []
        ends += [i for i in (data.find(b"<?xml", at + 1),) if i >= 0]
        return min(ends, default=len(data))

    def _find_section_end(self, data: bytes, at: int) -> int:
        """Where the lines of the section being read end: at the next line that begins another, or with the block."""
        if not self._first and isinstance(self._section, QueryLog) and not self._may_change(data, at):
            return len(data)
        rows = not self._first and isinstance(self._section, QueryLog)
        for start in _find_candidates(data, at) if rows else _find_lines(data, at):
            line = data[start : _find_line_end(data, start)]
            if self._begins_section(line):
                return start
            cut = self._find_glued(line)
            if cut:
                return start + cut
        return len(data)

    def _may_change(self, data: bytes, at: int) -> bool:
        """False when no line from here on can begin another section; a quick look for the long logs."""
        assert isinstance(self._section, QueryLog)
        if at and data[at - 1 : at] != b"\n":
            return True
        if data[at : at + 1] in _MARKS or any(data.find(m, at) >= 0 and data.find(b"\n" + m, at) >= 0 for m in _MARKS):
            return True  # the single byte is looked for first: that is several times faster, and it is rarely there
        names = {b"timestamp", self._section.head.names[0].encode()}
        return any(data.find(name[-1:], at) >= 0 and data.find(name, at) >= 0 for name in names)

    def _begins_section(self, line: bytes) -> bool:
        text, section = line.strip(), self._section
        if not text or (isinstance(section, QueryLog) and text == section.line):
            return False
        if self._first:
            if is_headless(text) and parse_heading(text) is None:
                raise SourceError(
                    f"{self._label}, line 1: rows without a heading; record with --format=csv without noheader, "
                    "or write the names of the fields on top"
                )
            if parse_heading(text) is not None:
                return True
            if text.startswith((b"#", b"<", b"=", b"+")):
                self._first = text.startswith(b"#") and parse_dmon_heading(text) is not None
        if text.startswith(STARTS):
            return True
        if isinstance(section, DmonLog) and parse_dmon_heading(text) == section.names:
            return False
        if text.startswith(b"#"):
            return text.startswith(b"####") or parse_dmon_heading(text) is not None or b" pid " in text
        if text.startswith((b"=====", b"+-----")):
            return True
        head = parse_heading(text)
        return head is not None and len(head.names) > 1

    def _find_glued(self, line: bytes) -> int:
        """Where another heading begins within this line, because the row before it broke off; 0 when none does."""
        section = self._section
        if self._first or isinstance(section, (TextReport, _OtherText)):
            return 0
        if isinstance(section, DmonLog):
            at = max(0, line.find(b"#"))
            names = parse_dmon_heading(line[at:].strip())
            return 0 if names in (None, section.names) else at
        return 0 if line.strip() == section.line else find_heading(line)

    def _begin_section(self, data: bytes, at: int) -> int:
        """Begin the section that the line at `at` announces; returns where to read on."""
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end + 1
        text, alone, self._first = data[at:end].strip(), self._first, False
        if text.startswith(STARTS):
            self._found = True
            self._xml.begin()
            return at + data[at:end].index(b"<")
        names, head = parse_dmon_heading(text), parse_heading(text)
        if names is not None:
            self._section = DmonLog(names, self._builder, alone)
            self._found = self._queried = True
        elif text.startswith(b"#"):
            self._has_processes |= b" pid " in text
            self._section = _OtherText(self._builder, _PMON if b" pid " in text else "text")
        elif head is not None and head.other is not None:
            if alone:
                raise SourceError(f"{self._label}: a list of {head.other}, no readings of GPUs; {_RECORD}")
            self._section = _OtherText(self._builder, f"a list of {head.other}")
        elif head is not None:
            self._section = QueryLog(head, text, self._builder, alone)
            self._found = self._queried = True
        elif text.startswith(b"=====") and START in text:
            self._report.end()
            self._section = self._report
            self._found = True
        else:
            self._section = _OtherText(self._builder, "the table of nvidia-smi")
        return end


DEFAULT_STEP_S: Final = 1.0  # a single reading speaks for at most the second before it, NVML's longest sample period
_LEARN_FROM: Final = 1024  # instants of a GPU that its step is learnt from


def decode_logs(logs: Iterable[Input], options: ReadOptions) -> Iterator[Rows | Gap]:
    """The rows and gaps of these logs, one after the other; a node that nothing names is called like the log's file.

    Raises SourceError naming the log: nothing in it is a reading of GPUs, or it does not say when or of which GPU.
    """
    seen, gaps = DevicesSeen(options, DEFAULT_STEP_S, _LEARN_FROM), Gaps()
    for log in logs:
        yield from LogSections(log, SampleBuilder(log, options, seen, gaps)).read()
        yield from gaps.drain()
    yield from seen.make_rows()
