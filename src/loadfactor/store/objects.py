"""Objects of an object store under a URL: s3://, gs:// or az://, through obstore, with credentials by the standard chains.

Raises FileNotFoundError where there is no object of a name, AlreadyExistsError and PreconditionError where the condition of a put
does not hold, and StoreError, in one line, for everything else.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import uuid4

from loadfactor.base.errors import InputError, StoreError
from loadfactor.store import disk

try:
    from obstore.exceptions import AlreadyExistsError, BaseError, NotModifiedError, PreconditionError
    from obstore.store import from_url
except ModuleNotFoundError as error:
    raise InputError("s3://, gs:// and az:// want `pip install 'loadfactor[object-store]'`") from error

if TYPE_CHECKING:
    from obstore.store import ObjectStore

__all__ = ["AlreadyExistsError", "Objects", "PreconditionError", "Version"]

Version = dict[str, str]
"""How the content of an object is known: its e_tag, and its version where there are some."""
ENDPOINTS: Final = (
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT",
    "AZURE_STORAGE_ENDPOINT",
    "AZURITE_BLOB_STORAGE_URL",
)


class Found(NamedTuple):
    """An object that was read."""

    version: Version
    content: bytes


class Objects:
    """The objects under a URL. Any thread may call its methods."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client: ObjectStore = _open(url)

    def get(self, name: str) -> bytes | None:
        """An object; None where there is none."""
        found = self.read(name)
        return None if found is None else found.content

    def read(self, name: str, known: Found | None = None) -> Found | None:
        """An object, or what is `known` of it where it is the same still; None where there is none."""
        options: Any = {} if known is None else {"if_none_match": known.version["e_tag"]}
        try:
            with self._saying("read"):
                answer = self.client.get(name, options=options)
                return Found(_version(answer.meta), bytes(answer.bytes()))
        except NotModifiedError:
            return known
        except FileNotFoundError:
            return None

    def put(self, name: str, content: bytes | Path, mode: "str | Version | None" = None) -> Version:
        """Put an object, whole; with "create" if there is none, with a version if it is that one."""
        options: Any = {} if mode is None else {"mode": mode}
        with self._saying("written"):
            return _version(self.client.put(name, content, use_multipart=False, **options))

    def find_size(self, name: str) -> int:
        """Bytes of an object."""
        with self._saying("read"):
            return int(self.client.head(name)["size"])

    def find_time(self, name: str) -> datetime:
        """When an object was put, by the clock of the object store."""
        with self._saying("read"):
            return self.client.head(name)["last_modified"]

    def list(self, folder: str = "") -> Iterator[tuple[str, datetime]]:
        """Names in a folder, or of all, and when each was put."""
        with self._saying("listed"):
            for page in self.client.list(folder or None):
                for meta in page:
                    yield meta["path"], meta["last_modified"]

    def list_sizes(self, folder: str) -> dict[str, int]:
        """Bytes of the objects in a folder, by name."""
        with self._saying("listed"):
            return {meta["path"]: meta["size"] for page in self.client.list(folder) for meta in page}

    def download(self, name: str, path: Path) -> None:
        """Put a copy of an object where it was not, or replace it, in one step."""
        disk.make_folder(path.parent)
        beside = path.with_name(f"{path.name}.{uuid4().hex}.tmp")
        try:
            with self._saying("read"), beside.open("wb") as file:
                for piece in self.client.get(name).stream():
                    file.write(piece)
            beside.rename(path)
        finally:
            beside.unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        """Remove an object; nothing happens where there is none."""
        with suppress(FileNotFoundError), self._saying("removed"):
            self.client.delete(name)

    @contextmanager
    def _saying(self, what: str) -> Iterator[None]:
        """Turn what the client raises into one line; what tells how an object is passes."""
        try:
            yield
        except (AlreadyExistsError, PreconditionError, NotModifiedError, FileNotFoundError):
            raise
        except BaseError as error:
            why = " ".join(str(error).split("Debug source:")[0].split())[:300]
            raise StoreError(
                f"{self.url} cannot be {what} ({why}); check the bucket's name, and credentials and endpoint in the environment"
            ) from error


def _allows_plain_http() -> bool:
    """True where a variable names an endpoint without TLS."""
    return any(os.environ.get(name, "").startswith("http://") for name in ENDPOINTS)


def _version(meta: Any) -> Version:
    return {key: meta[key] for key in ("e_tag", "version") if meta.get(key)}


def _open(url: str) -> "ObjectStore":
    """A client with the credentials, region and endpoint that environment, profiles and the machine give."""
    options: dict[str, Any] = {"client_options": {"allow_http": True}} if _allows_plain_http() else {}
    if url.startswith("s3://"):
        options |= _find_profile()
    return from_url(url, **options)


def _find_profile() -> dict[str, Any]:
    """Credentials of a profile, through Amazon's own client where it is installed; variables and the machine's own need none."""
    home = Path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or Path("~/.aws/credentials").expanduser())
    has_profile = "AWS_PROFILE" in os.environ or home.exists()
    if "AWS_ACCESS_KEY_ID" in os.environ or not has_profile:
        return {}
    try:
        import boto3
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ModuleNotFoundError as error:
        raise InputError("profiles in ~/.aws want `pip install 'loadfactor[aws]'`; or set AWS_ACCESS_KEY_ID") from error
    session = boto3.Session()
    region = {"region": session.region_name} if session.region_name else {}
    return {"credential_provider": Boto3CredentialProvider(session), **region}
