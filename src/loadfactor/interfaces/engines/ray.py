"""Tasks on a cluster of Ray, which retries those whose worker ended. Its workers read the books under the same path."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from loadfactor.base.errors import InputError, StoreError
from loadfactor.interfaces.engines.worker import TaskBooks, book_task

if TYPE_CHECKING:
    from loadfactor.store.importing import Progress

RETRIES: Final = 3


def run_ray(books: TaskBooks, names: Sequence[str], address: str | None, progress: "Progress") -> None:
    """Book tasks on the cluster at an address, or on one that Ray begins here. Raises InputError without Ray, StoreError."""
    try:
        import ray
    except ModuleNotFoundError as error:
        raise InputError("Ray is not installed: `pip install ray`") from error
    ray.init(address=address, include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        book = ray.remote(num_cpus=1, max_retries=RETRIES)(book_task)
        left = [book.remote(books, name) for name in names]
        while left:
            progress("booking days on Ray", 1 - len(left) / len(names))
            done, left = ray.wait(left)
            ray.get(done)
    except ray.exceptions.RayError as error:
        why = str(error).strip().splitlines()[-1]
        raise StoreError(f"Ray gave up: {why}; `loadfactor ledger plan` has what is left") from error
    finally:
        ray.shutdown()
