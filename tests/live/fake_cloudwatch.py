"""moto's CloudWatch on loopback, which remembers what it is asked and throttles where a test wants it."""

import json
import threading
from collections.abc import Iterable
from io import BytesIO
from types import TracebackType
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
from werkzeug.wrappers import Request, Response


class FakeCloudWatch:
    """The server; `requests` are the operations that it was asked for, `throttle` and `forbid` say how often not to answer them."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.throttle: dict[str, int] = {}
        self.forbid = False
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        request = Request(environ)
        body = request.get_data()
        environ["wsgi.input"] = BytesIO(body)
        operation = self._name_operation(request, body)
        self.requests.append(operation)
        if self.forbid:
            return self._refuse("AccessDeniedException", "you may not", 400)(environ, start_response)
        if self.throttle.get(operation, 0) > 0:
            self.throttle[operation] -= 1
            return self._refuse("ThrottlingException", "Rate exceeded", 400)(environ, start_response)
        return self._moto(environ, start_response)  # type: ignore[no-any-return]

    @staticmethod
    def _refuse(code: str, message: str, status: int) -> Response:
        text = json.dumps({"__type": f"com.amazonaws.cloudwatch#{code}", "message": message})
        return Response(text, status, content_type="application/x-amz-json-1.0")

    @staticmethod
    def _name_operation(request: Request, body: bytes) -> str:
        # the client chooses its protocol: the operation is in a header, at the end of the path, or in a form
        target = request.headers.get("X-Amz-Target", "").rpartition(".")[2] or request.path.rpartition("/")[2]
        return target or body.partition(b"Action=")[2].partition(b"&")[0].decode()

    def __enter__(self) -> "FakeCloudWatch":
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
