"""A Kubernetes API for tests: lists in pages, watches with bookmarks, selectors, 404, 403 and 410 Gone, over HTTP."""

import base64
import json
import re
import threading
import time
from copy import deepcopy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

Object = dict[str, Any]
TOKEN = "a-token-of-tests"
PATH = re.compile(
    r"/(?:api/(?P<core>v1)|apis/(?P<group>[^/]+)/(?P<version>[^/]+))(?:/namespaces/(?P<namespace>[^/]+))?"
    r"/(?P<plural>[a-z]+)(?:/(?P<name>[^/]+))?$"
)
SERVED = {
    "": "v1",
    "kueue.x-k8s.io": "v1beta1",
    "resource.k8s.io": "v1beta1",
    "apps": "v1",
    "batch": "v1",
    "kubeflow.org": "v1",
}


class FakeKubernetes:
    """Objects by plural; every change gets a version and goes to those that watch."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Object]] = {}
        self.history: list[tuple[int, str, str, Object]] = []  # version, plural, type, object
        self.version = 100
        self.oldest = 100
        """Watches from before this version are told 410 Gone."""
        self.absent: set[str] = {"resource.k8s.io"}
        """Groups that are not installed."""
        self.forbidden: set[str] = set()
        """Plurals that may not be read."""
        self.unwatchable: set[str] = set()
        """Plurals that may be listed and not watched."""
        self.requests: list[str] = []
        self.bookmark_every_s = 0.2
        self.delivered: dict[str, int] = {}
        """By plural: through which version a watch that is under way was told everything."""
        self._changed = threading.Condition()
        self._epoch = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _make_handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> "FakeKubernetes":
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()
        self._server.shutdown()
        self._server.server_close()

    def write_kubeconfig(self, path: Path) -> Path:
        """A file that says how to reach it."""
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "tests",
                    "contexts": [{"name": "tests", "context": {"cluster": "c", "user": "u"}}],
                    "clusters": [{"name": "c", "cluster": {"server": self.url}}],
                    "users": [{"name": "u", "user": {"token": TOKEN}}],
                }
            )
        )
        return path

    def put(self, *objects: Object, silently: bool = False) -> None:
        """Create or change objects; `silently`: nobody who watches hears of it."""
        for one in deepcopy(objects):
            plural = f"{one['kind'].lower()}s"
            with self._changed:
                self.version += 1
                one["metadata"]["resourceVersion"] = str(self.version)
                there = self.objects.setdefault(plural, {})
                what = "MODIFIED" if _key(one) in there else "ADDED"
                there[_key(one)] = one
                if not silently:
                    self.history.append((self.version, plural, what, one))
                self._changed.notify_all()

    def delete(self, *objects: Object, silently: bool = False) -> None:
        """Remove objects; what is given is how they were last."""
        for one in deepcopy(objects):
            plural = f"{one['kind'].lower()}s"
            with self._changed:
                self.version += 1
                one["metadata"]["resourceVersion"] = str(self.version)
                self.objects[plural].pop(_key(one))
                if not silently:
                    self.history.append((self.version, plural, "DELETED", one))
                self._changed.notify_all()

    def cut(self) -> None:
        """Every watch ends in the middle of an event."""
        with self._changed:
            self._epoch += 1
            self.delivered.clear()
            self._changed.notify_all()

    def forget_history(self) -> None:
        """Nobody can go on from before now."""
        with self._changed:
            self.version += 1
            self.oldest = self.version
            self.history.clear()

    def answer_list(self, plural: str, namespace: str | None, query: dict[str, str]) -> tuple[int, Object]:
        with self._changed:
            found = [
                one
                for key, one in sorted(self.objects.get(plural, {}).items())
                if (namespace is None or key.startswith(f"{namespace}/")) and _is_selected(one, query)
            ]
            version, start = self.version, 0
            if "continue" in query:
                version, start = json.loads(base64.b64decode(query["continue"]))
                if version < self.oldest:
                    return 410, _status(410, "Expired", "The provided continue parameter is too old")
            limit = int(query.get("limit", 0)) or len(found)
            metadata: Object = {"resourceVersion": str(version)}
            if start + limit < len(found):
                metadata["continue"] = base64.b64encode(json.dumps([version, start + limit]).encode()).decode()
                metadata["remainingItemCount"] = len(found) - start - limit
            # items of a list do not say their kind
            items = [
                {k: v for k, v in one.items() if k not in ("kind", "apiVersion")}
                for one in found[start : start + limit]
            ]
            return 200, {"kind": f"{plural.capitalize()}List", "apiVersion": "v1", "metadata": metadata, "items": items}

    def watch(self, plural: str, query: dict[str, str], send: Any) -> None:
        """Events after a version, until the time is over or the watch is cut."""
        seen, epoch = int(query.get("resourceVersion") or self.version), self._epoch
        end = time.monotonic() + float(query.get("timeoutSeconds", 300))
        if seen < self.oldest:
            send(
                json.dumps({"type": "ERROR", "object": _status(410, "Expired", f"too old resource version: {seen}")})
                + "\n"
            )
            return
        while time.monotonic() < end:
            with self._changed:
                if not any(of == plural and v > seen for v, of, _, _ in self.history) and epoch == self._epoch:
                    self._changed.wait(self.bookmark_every_s)
                new = [(v, what, one) for v, of, what, one in self.history if of == plural and v > seen]
                now = self.version
            if epoch != self._epoch:
                send('{"type":"MODIFIED","object":{"kind":"Po')
                raise ConnectionError
            for version, what, one in new:
                if _is_selected(one, query):
                    send(json.dumps({"type": what, "object": one}) + "\n")
                seen = version
            if not new and query.get("allowWatchBookmarks", "").lower() == "true":
                seen = max(seen, now)
                mark = {
                    "kind": plural[:-1].capitalize(),
                    "metadata": {"resourceVersion": str(seen), "creationTimestamp": None},
                }
                send(json.dumps({"type": "BOOKMARK", "object": mark}) + "\n")
                if epoch == self._epoch:
                    self.delivered[plural] = seen


def _key(one: Object) -> str:
    return f"{one['metadata'].get('namespace', '')}/{one['metadata']['name']}"


def _status(code: int, reason: str, message: str) -> Object:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }


def _is_selected(one: Object, query: dict[str, str]) -> bool:
    """Whether an object fits the selectors of labels and fields."""
    labels = one["metadata"].get("labels", {})
    fields = {"metadata.name": one["metadata"]["name"], "spec.nodeName": one.get("spec", {}).get("nodeName", ""),
              "status.phase": one.get("status", {}).get("phase", "")}  # fmt: skip
    for said, selector in ((labels, query.get("labelSelector", "")), (fields, query.get("fieldSelector", ""))):
        for term in filter(None, selector.split(",")):
            name, is_not, value = re.fullmatch(r"([^!=]+)(!?)=?=?(.*)", term).groups()  # type: ignore[union-attr]
            if (said.get(name) == value) == bool(is_not):
                return False
    return True


def _make_handler(api: FakeKubernetes) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(asked.query).items()}
            api.requests.append(self.path)
            found = PATH.match(asked.path)
            group = (found["group"] or "") if found else "?"
            version = (found["version"] or "v1") if found else "?"
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                self._answer(401, _status(401, "Unauthorized", "Unauthorized"))
            elif not found or group in api.absent or SERVED.get(group) != version:
                self._answer(404, _status(404, "NotFound", "the server could not find the requested resource"))
            elif found["plural"] in (api.unwatchable if "watch" in query else ()) or found["plural"] in api.forbidden:
                verb = "watch" if "watch" in query else "list"
                why = f'{found["plural"]} is forbidden: User "loadfactor" cannot {verb} resource "{found["plural"]}"'
                self._answer(403, _status(403, "Forbidden", why))
            elif found["name"]:
                one = api.objects.get(found["plural"], {}).get(f"{found['namespace']}/{found['name']}")
                missing = _status(404, "NotFound", f'{found["plural"]} "{found["name"]}" not found')
                self._answer(200 if one else 404, one or missing)
            elif query.get("watch", "").lower() == "true":
                self._watch(found["plural"], query)
            else:
                self._answer(*api.answer_list(found["plural"], found["namespace"], query))

        def _answer(self, status: int, content: Object) -> None:
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _watch(self, plural: str, query: dict[str, str]) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()

            def send(text: str) -> None:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(text.encode()), text.encode()))
                self.wfile.flush()

            try:
                api.watch(plural, query, send)
                self.wfile.write(b"0\r\n\r\n")
            except OSError:
                self.close_connection = True

        def log_message(self, *_: Any) -> None:
            """Silent."""

    return Handler
