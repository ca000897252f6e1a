"""What can go wrong, and whose turn it is next?

    LoadfactorError
    ├── InputError          what the user gave is wrong: the command line exits with 2
    │   ├── SourceError     a file that was to be imported cannot be understood
    │   └── PlanError       a what-if that cannot be: names the constraint and the nearest thing that works
    ├── StoreError          the books on disk cannot be read or written
    │   └── DamageError     a file of the books is not what was written: it can be set aside
    └── CatalogError        a fact in the catalog is missing or malformed

Every message is one line: what is wrong, where, and what to do next.
"""


class LoadfactorError(Exception):
    """Base of everything this package raises on purpose."""


class InputError(LoadfactorError):
    """What the user gave is wrong; the message says what to do next."""


class SourceError(InputError):
    """A file that was to be imported cannot be understood; nothing of it was kept."""


class PlanError(InputError):
    """A what-if that cannot be; the message names the constraint and the nearest thing that works."""


class StoreError(LoadfactorError):
    """The books on disk cannot be read or written."""


class DamageError(StoreError):
    """A file of the books is missing or not what was written; set aside, the rest still answers."""


class CatalogError(LoadfactorError):
    """A fact in the catalog is missing or malformed."""
