"""Records of training loops, as `loadfactor.track` writes them: lines of JSON, one file a process (docs/track-training.md)."""

from loadfactor.sources.base import Source
from loadfactor.sources.files import find_with, read_with
from loadfactor.sources.progress_records.decoder import decode_progress

SOURCE = Source("progress", find_with((".jsonl",), "progress of a tracked run", deep=True), read_with(decode_progress))
