"""Which parts of this file are readings, and of which kind? Query logs, dmon and XML, alone or mixed in a recorded session."""

from collections.abc import Iterator
from typing import Final

from loadfactor.errors import SourceError
from loadfactor.sources.base import Rows
from loadfactor.sources.nvidia_smi.dmon import DmonLog, dmon_heading
from loadfactor.sources.nvidia_smi.query import QueryLog, heading, heading_within, is_headless
from loadfactor.sources.nvidia_smi.recorder import Recorder
from loadfactor.sources.nvidia_smi.xml import END, STARTS, XmlLog
from loadfactor.sources.parsing.lines import Block, blocks

_HOPELESS_LINES: Final = 100_000  # a file that shows no reading in so many lines is something else
_RECORD: Final = (
    "record with nvidia-smi --query-gpu=timestamp,uuid,name,utilization.gpu,memory.used,memory.total,power.draw "
    "--format=csv -l 30"
)

_MARKS: Final = (b"#", b"<", b"=", b"+")


class _Text:
    """Lines that are no readings of GPUs; counted, so that nothing vanishes unseen."""

    def __init__(self, recorder: Recorder, what: str) -> None:
        self._recorder, self._what = recorder, what

    def rows(self, data: bytes, _line: int) -> Iterator[Rows]:
        count = sum(1 for line in data.split(b"\n") if line.strip())
        self._recorder.gaps.add(self._recorder.path, f"line of {self._what}", count)
        return iter(())

    def last(self, line: bytes, number: int) -> Iterator[Rows]:
        return self.rows(line, number)


class Parts:
    """Reads one file once, from top to bottom, in blocks of lines."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder, self._path = recorder, recorder.path
        self._xml = XmlLog(recorder)
        self._part: QueryLog | DmonLog | _Text = _Text(recorder, "text")
        self._first = True
        self._found = False

    def rows(self) -> Iterator[Rows]:
        """Every row of the file. SourceError when nothing in it is a reading of nvidia-smi."""
        line = 1
        for block in blocks(self._path):
            line = block.line
            yield from self._block(block)
            if not self._found and line > _HOPELESS_LINES:
                break
        yield from self._xml.finish(line)
        if not self._found:
            raise SourceError(f"{self._path}: no readings of nvidia-smi in it; {_RECORD}")

    def _block(self, block: Block) -> Iterator[Rows]:
        data, at, line, counted = block.data, 0, block.line, 0
        while at < len(data):
            line, counted = line + data.count(b"\n", counted, at), at
            if self._xml.inside:
                end = self._document_end(data, at)
                yield from self._xml.feed(data[at:end], line)
                if data.endswith(END, at, end):
                    yield from self._xml.end(line)
                elif end < len(data):
                    self._xml.begin()
                at = end
                continue
            end = self._stretch_end(data, at)
            stretch = data[at:end]
            if stretch and not stretch.endswith(b"\n"):
                cut = stretch.rfind(b"\n") + 1
                yield from self._part.rows(stretch[:cut], line)
                yield from self._part.last(stretch[cut:], line + stretch.count(b"\n"))
            elif stretch:
                yield from self._part.rows(stretch, line)
            at = end
            if at < len(data):
                at = self._turn(data, at)

    def _document_end(self, data: bytes, at: int) -> int:
        """Where the open document ends in this block: behind its end tag, at the next document, or not at all."""
        end = data.find(END, at)
        ends = [end + len(END)] if end >= 0 else []
        ends += [i for i in (data.find(b"<?xml", at + 1),) if i >= 0]
        return min(ends, default=len(data))

    def _stretch_end(self, data: bytes, at: int) -> int:
        """Where the lines of the part being read end: at the next line that begins another, or with the block."""
        if not self._first and isinstance(self._part, QueryLog) and not self._may_turn(data, at):
            return len(data)
        while at < len(data):
            end = data.find(b"\n", at)
            end = len(data) if end < 0 else end
            line = data[at:end]
            if self._begins(line):
                return at
            cut = self._glued(line)
            if cut:
                return at + cut
            at = end + 1
        return len(data)

    def _may_turn(self, data: bytes, at: int) -> bool:
        """False when no line from here on can begin another part; a quick look for the long logs."""
        assert isinstance(self._part, QueryLog)
        if at and data[at - 1 : at] != b"\n":
            return True
        if data[at : at + 1] in _MARKS or any(data.find(m, at) >= 0 and data.find(b"\n" + m, at) >= 0 for m in _MARKS):
            return True  # the single byte is looked for first: that is several times faster, and it is rarely there
        return any(data.find(name, at) >= 0 for name in {b"timestamp", self._part.head.names[0].encode()})

    def _begins(self, line: bytes) -> bool:
        """True when this line begins another part."""
        text, part = line.strip(), self._part
        if not text or (isinstance(part, QueryLog) and text == part.line):
            return False
        if self._first:
            if is_headless(text) and heading(text) is None:
                raise SourceError(
                    f"{self._path}, line 1: rows without a heading; record with --format=csv without noheader, "
                    "or write the names of the fields on top"
                )
            if heading(text) is not None:
                return True
            if text.startswith((b"#", b"<", b"=", b"+")):
                self._first = text.startswith(b"#") and dmon_heading(text) is not None
        if text.startswith(STARTS):
            return True
        if isinstance(part, DmonLog) and dmon_heading(text) == part.names:
            return False
        if text.startswith(b"#"):
            return text.startswith(b"####") or dmon_heading(text) is not None or b" pid " in text
        if text.startswith((b"=====", b"+-----")):
            return True
        head = heading(text)
        return head is not None and len(head.names) > 1

    def _glued(self, line: bytes) -> int:
        """Where another heading begins within this line, because the row before it broke off; 0 when none does."""
        part = self._part
        if self._first or isinstance(part, _Text):
            return 0
        if isinstance(part, DmonLog):
            at = max(0, line.find(b"#"))
            names = dmon_heading(line[at:].strip())
            return 0 if names in (None, part.names) else at
        return 0 if line.strip() == part.line else heading_within(line)

    def _turn(self, data: bytes, at: int) -> int:
        """Begins the part that the line at `at` announces; returns where to read on."""
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end + 1
        text, alone, self._first = data[at:end].strip(), self._first, False
        if text.startswith(STARTS):
            self._found = True
            self._xml.begin()
            return at + data[at:end].index(b"<")
        names, head = dmon_heading(text), heading(text)
        if names is not None:
            self._part = DmonLog(names, self._recorder, alone)
            self._found = True
        elif text.startswith(b"#"):
            self._part = _Text(self._recorder, "pmon, which lists processes" if b" pid " in text else "text")
        elif head is not None and head.other is not None:
            if alone:
                raise SourceError(f"{self._path}: a list of {head.other}, no readings of GPUs; {_RECORD}")
            self._part = _Text(self._recorder, f"a list of {head.other}")
        elif head is not None:
            self._part = QueryLog(head, text, self._recorder, alone)
            self._found = True
        elif text.startswith(b"====="):
            self._part = _Text(self._recorder, "nvidia-smi -q as text (its XML, -q -x, is read)")
        else:
            self._part = _Text(self._recorder, "the table of nvidia-smi")
        return end
