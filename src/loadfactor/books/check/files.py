"""Whether every file of the books is what was written, and what was lost with those that were not."""

from collections.abc import Iterator

from loadfactor.base.errors import DamageError
from loadfactor.books.check.finding import Examined, Finding
from loadfactor.store.session import Session, check_file


def check_files(session: Session) -> None:
    """Read every file of the books. Raises DamageError naming the first damaged one, and how many more there are."""
    damaged = []
    for file in session.manifest.files:
        try:
            check_file(session.folder, file, again=True)
        except DamageError as error:
            damaged.append(error)
    if len(damaged) > 1:
        raise DamageError(f"{damaged[0]}; {len(damaged) - 1} more of its files are damaged")
    if damaged:
        raise damaged[0]


def find_losses(books: Examined) -> Iterator[Finding]:
    """What was lost with damaged files."""
    for loss in books.session.manifest.losses:
        yield Finding(
            "wrong",
            f"lost with a damaged file, now in quarantine: {loss.what}",
            "import again what `loadfactor imports` names",
        )
