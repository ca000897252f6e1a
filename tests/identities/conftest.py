"""What tests of identities use: a loadfactor.toml of their own, as those of the books."""

from tests.books.conftest import write

__all__ = ["write"]
