"""moto's CloudWatch on loopback, which remembers what it is asked; it throttles and gives pages where a test wants it."""

import json
import threading
from collections.abc import Iterable
from functools import partialmethod
from io import BytesIO
from types import TracebackType
from typing import Any

import httpx
from moto.cloudwatch.responses import CloudWatchResponse
from moto.core.responses import ActionResult
from moto.server import DomainDispatcherApplication, create_backend_app
from tests.waiting import LONGEST_S
from werkzeug.serving import make_server
from werkzeug.wrappers import Request, Response


class FakeCloudWatch:
    """The server; `requests` are the operations that it was asked for, `throttle` and `forbid` say how often not to answer them.

    `throttle_every`: of each so many requests one is throttled; `page_values`: so many values a page (moto gives all at once).
    `refuse`: operations that may not be asked; `refuse_objects`: nor S3; `altered`: what of an operation's answer is replaced.
    """

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.throttle: dict[str, int] = {}
        self.throttle_every = 0
        self.page_values = 0
        self.forbid = False
        self.refuse: set[str] = set()
        self.refuse_objects = False
        self.altered: dict[str, list[tuple[bytes, bytes]]] = {}
        self._whole = CloudWatchResponse.get_metric_data
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        request = Request(environ)
        body = request.get_data()
        environ["wsgi.input"] = BytesIO(body)
        operation = self._name_operation(request, body)
        self.requests.append(operation)
        if self.refuse_objects and "/s3/aws4_request" in request.headers.get("Authorization", ""):
            denied = "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
            return Response(denied, 403, content_type="application/xml")(environ, start_response)
        is_form = b"&Version=" in body or body.startswith(b"Action=")
        if operation in self.refuse:
            said = self._refuse_form("UnauthorizedOperation", "You are not authorized to perform this operation.", 403)
            return said(environ, start_response)
        if self.forbid and not is_form:
            return self._refuse("AccessDeniedException", "you may not", 400)(environ, start_response)
        is_due = self.throttle_every and len(self.requests) % self.throttle_every == 0
        if is_due or self.throttle.get(operation, 0) > 0:
            self.throttle[operation] = self.throttle.get(operation, 0) - (not is_due)
            if is_form:
                return self._refuse_form("RequestLimitExceeded", "Request limit exceeded.", 503)(
                    environ, start_response
                )
            return self._refuse("ThrottlingException", "Rate exceeded", 400)(environ, start_response)
        if operation in self.altered:
            answer = Response.from_app(self._moto, environ)
            content = answer.get_data()
            for before, after in self.altered[operation]:
                content = content.replace(before, after)
            answer.set_data(content)
            return answer(environ, start_response)
        return self._moto(environ, start_response)  # type: ignore[no-any-return]

    @staticmethod
    def _refuse(code: str, message: str, status: int) -> Response:
        text = json.dumps({"__type": f"com.amazonaws.cloudwatch#{code}", "message": message})
        return Response(text, status, content_type="application/x-amz-json-1.0")

    @staticmethod
    def _refuse_form(code: str, message: str, status: int) -> Response:
        error = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
        text = f"<Response><Errors>{error}</Errors><RequestID>1</RequestID></Response>"
        return Response(text, status, content_type="text/xml")

    @staticmethod
    def _name_operation(request: Request, body: bytes) -> str:
        # the client chooses its protocol: the operation is in a header, at the end of the path, or in a form
        target = request.headers.get("X-Amz-Target", "").rpartition(".")[2] or request.path.rpartition("/")[2]
        return target or body.partition(b"Action=")[2].partition(b"&")[0].decode()

    def _answer_page(self, request: CloudWatchResponse) -> ActionResult:
        """A page of values in the order of the metrics, with the token of the next one."""
        results = self._whole(request).result["MetricDataResults"]  # type: ignore[index]
        if not self.page_values:
            return ActionResult({"MetricDataResults": results})
        values = [
            (one, at, value) for one in results for at, value in zip(one["timestamps"], one["values"], strict=True)
        ]
        begin = int(request._get_params().get("NextToken") or 0)
        end = begin + self.page_values
        page: dict[str, dict[str, Any]] = {}
        for one, at, value in values[begin:end]:
            said = page.setdefault(one["id"], {**one, "timestamps": [], "values": []})
            said["timestamps"].append(at)
            said["values"].append(value)
        more = {"NextToken": str(end)} if end < len(values) else {}
        return ActionResult({"MetricDataResults": list(page.values()), **more})

    def __enter__(self) -> "FakeCloudWatch":
        CloudWatchResponse.get_metric_data = partialmethod(_give_page, self)  # type: ignore
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        httpx.post(f"{self.url}/moto-api/reset", timeout=LONGEST_S)  # what it was told lives as long as the process
        self.requests.clear()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        CloudWatchResponse.get_metric_data = self._whole  # type: ignore[method-assign]


def _give_page(request: CloudWatchResponse, fake: FakeCloudWatch) -> ActionResult:
    return fake._answer_page(request)
