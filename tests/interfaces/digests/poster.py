"""A process of a test that posts what is due by a clock that stands, until nothing is left; it may be killed at any moment.

python -m tests.interfaces.digests.poster FOLDER SETTINGS CLOCK_MS
"""

import sys
from pathlib import Path

from loadfactor.books.books import Books
from loadfactor.interfaces.digests.post import Post
from loadfactor.settings.config import choose_file

if __name__ == "__main__":
    folder, config, clock_ms = sys.argv[1:]
    post = Post(Books(folder), choose_file(Path(config)), lambda: int(clock_ms))
    while post.look():
        pass
    print("done", flush=True)
