"""`python -m loadfactor_agent`."""

from loadfactor_agent.main import main

main()
