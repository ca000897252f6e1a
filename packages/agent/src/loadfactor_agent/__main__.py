"""`python -m loadfactor_agent`, and of the light distribution `python -m loadfactor_agent`."""

from .main import main

main()
