"""Lines on standard error for whoever runs a command: what there is to know besides its answer, and why it ended."""

import sys

from loadfactor.base.spelling import spell_out


def write_notice(text: str) -> None:
    """Write one line; characters that would act on a terminal are spelled out."""
    sys.stderr.write(f"loadfactor: {spell_out(text)}\n")
    sys.stderr.flush()
