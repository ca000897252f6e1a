"""`python -m loadfactor`: the command line of the Python that runs it."""

from loadfactor.interfaces.cli import main

if __name__ == "__main__":
    main()
