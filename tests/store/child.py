"""The other process of test_whole_or_nothing."""

import sys
from pathlib import Path

from tests.store.test_whole_or_nothing import main

main(Path(sys.argv[1]), *sys.argv[2:])
