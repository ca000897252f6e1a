"""Engines of DuckDB that a process shares."""

import subprocess
import sys

ASK_THEN_FORK = """
import os
from loadfactor.store.session import connect_reader
QUESTION = "SELECT sum(i) FROM range(100000) t(i)"
answer = connect_reader().execute(QUESTION).fetchall()
child = os.fork()
if not child:
    os._exit(connect_reader().execute(QUESTION).fetchall() != answer)
print(os.waitpid(child, 0)[1])
"""


def test_process_forked_after_a_question_asks_too() -> None:
    """A process asks and forks; its child asks the same, and ends with 0: no signal, and no other answer."""
    asked = subprocess.run([sys.executable, "-c", ASK_THEN_FORK], capture_output=True, text=True, check=True)
    assert asked.stdout.strip() == "0", asked.stderr
