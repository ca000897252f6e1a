"""Installs the chart with Helm into a Kubernetes API that only remembers, and checks every object against the Kubernetes schema.

Needs Python 3.12 or newer with the packages helm-sdkpy (Helm as a library), kubernetes-validate (the schemas) and PyYAML:
`packaging/check_chart.sh` makes such an environment. No cluster is asked.
"""

import asyncio
import json
import sys
import tempfile
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import kubernetes_validate
import yaml
from helm_sdkpy import Configuration, Install, Lint

CHART = Path(__file__).parent / "chart"
ORGANISATION = CHART / "examples" / "one-organisation.yaml"
"""Values of a release of one of several organisations."""
VERSION = "1.31"
RESOURCES = {
    "v1": [("configmaps", "ConfigMap"), ("services", "Service"), ("serviceaccounts", "ServiceAccount"), ("secrets", "Secret"),
           ("persistentvolumeclaims", "PersistentVolumeClaim"), ("namespaces", "Namespace"), ("pods", "Pod")],
    "apps/v1": [("deployments", "Deployment"), ("daemonsets", "DaemonSet")],
    "networking.k8s.io/v1": [("networkpolicies", "NetworkPolicy"), ("ingresses", "Ingress")],
    "monitoring.coreos.com/v1": [("servicemonitors", "ServiceMonitor")],
    "rbac.authorization.k8s.io/v1": [("clusterroles", "ClusterRole"), ("clusterrolebindings", "ClusterRoleBinding")],
}  # fmt: skip
PACKED = b"k8s\0"
"""How a body in protobuf begins."""
WHOLE_CLUSTER = ("namespaces", "clusterroles", "clusterrolebindings")
EXPECTED = {
    *("ConfigMap", "Deployment", "Service", "ServiceAccount", "PersistentVolumeClaim"),
    *("ClusterRole", "ClusterRoleBinding", "DaemonSet"),
}
CHOICES: list[dict[str, Any]] = [
    {},
    {"agent": {"enabled": False}, "rbac": {"create": False}},
    {
        "server": {
            "prometheus": [{"name": "a", "url": "http://prometheus:9090", "every": "30s"}],
            "configuration": 'timezone = "Europe/Berlin"',
            "trustedProxies": ["10.0.0.0/8"],
            "userHeader": "X-Auth-Request-User",
            "storage": {"className": "fast"},
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"operator": "Exists"}],
        },
        "agent": {"runtimeClassName": "nvidia"},
        "imagePullSecrets": [{"name": "pull"}],
        "ingress": {
            "enabled": True,
            "className": "nginx",
            "host": "loadfactor.example.com",
            "tlsSecret": "loadfactor-tls",
            "annotations": {"nginx.ingress.kubernetes.io/auth-url": "https://auth.example.com/oauth2/auth"},
        },
        "backup": {"to": "/backups", "schedule": "hourly", "keep": 48, "claim": "copies", "secret": "bucket-keys"},
        "retention": {"samples": "90d", "ledger": "3y"},
        "networkPolicy": {"enabled": True, "fromNamespaces": ["ingress"]},
        "serviceMonitor": {"enabled": True, "labels": {"release": "monitoring"}},
    },
]
WRONG: dict[str, Any] = {"server": {"storage": {"sise": "1Gi"}}}
"""Values that the schema of the chart refuses."""
OF_OPERATORS = ("ServiceMonitor",)
"""Kinds that are none of Kubernetes itself."""


class RememberingApi(BaseHTTPRequestHandler):
    """Enough of the Kubernetes API for Helm: it says what there is, has nothing, and remembers what is made."""

    made: list[dict[str, Any]] = []  # noqa: RUF012 (of the class: a request has an instance of its own)

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        groups = [group for group in RESOURCES if "/" in group]
        version = path.removeprefix("/api/").removeprefix("/apis/")
        if path == "/version":
            self._say(200, {"major": "1", "minor": VERSION.partition(".")[2], "gitVersion": f"v{VERSION}.0"})
        elif path == "/api":
            self._say(200, {"kind": "APIVersions", "versions": ["v1"]})
        elif path == "/apis":
            named = [{"groupVersion": g, "version": g.partition("/")[2]} for g in groups]
            listed = [
                {"name": g["groupVersion"].partition("/")[0], "versions": [g], "preferredVersion": g} for g in named
            ]
            self._say(200, {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed})
        elif version in RESOURCES:
            resources = [
                {
                    "name": name,
                    "kind": kind,
                    "namespaced": name not in WHOLE_CLUSTER,
                    "verbs": ["create", "get", "list"],
                }
                for name, kind in RESOURCES[version]
            ]
            self._say(
                200, {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}
            )
        elif path.endswith("/secrets"):
            self._say(200, {"kind": "SecretList", "apiVersion": "v1", "metadata": {}, "items": []})
        else:
            self._say(
                404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
            )

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if content.startswith(PACKED):  # Helm's own record of the release
            self._say(201, content)
            return
        body = json.loads(content)
        if body["kind"] != "Secret":
            self.made.append(body)
        self._say(201, body)

    def do_PUT(self) -> None:
        self._say(200, self.rfile.read(int(self.headers["Content-Length"])))

    def _say(self, status: int, answer: dict[str, Any] | bytes) -> None:
        content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        kind = "application/vnd.kubernetes.protobuf" if content.startswith(PACKED) else "application/json"
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


def install(kubeconfig: Path, values: dict[str, Any], release: str = "fleet") -> list[dict[str, Any]]:
    """Return the objects that Helm makes of the chart with these values."""
    RememberingApi.made.clear()
    configuration = Configuration(namespace="books", kubeconfig=str(kubeconfig))
    asyncio.run(Install(configuration).run(release, str(CHART), values=values, wait=False, timeout=30))
    return list(RememberingApi.made)


def check_organisations(kubeconfig: Path) -> int:
    """Install a release for each of two organisations and count their objects; exits with 1 if they share one."""
    values = yaml.safe_load(ORGANISATION.read_text())
    count, owners = 0, {}
    for release in ("red", "blue"):
        values["ingress"]["host"] = f"{release}.loadfactor.example.com"
        for item in install(kubeconfig, values, release):
            kubernetes_validate.validate(item, VERSION, strict=True)
            name = item["kind"], item["metadata"]["name"]
            if name in owners:
                sys.exit(f"the releases {owners[name]} and {release} share {' '.join(name)}")
            if item["kind"] in ("ClusterRole", "DaemonSet"):
                sys.exit(f"the release of an organisation makes {' '.join(name)}, which sees those of others")
            owners[name] = release
            count += 1
    return count


def main() -> None:
    """Exits with 1 where an object is none that Kubernetes takes."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), RememberingApi)
    Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = Path(folder) / "config"
        cluster = {"server": f"http://127.0.0.1:{server.server_address[1]}"}
        kubeconfig.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "a", "cluster": cluster}],
                    "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
                    "users": [{"name": "a", "user": {}}],
                    "current-context": "a",
                }
            )
        )
        said = asyncio.run(Lint(Configuration(kubeconfig=str(kubeconfig))).run(str(CHART)))
        print(f"lint: {json.dumps(said)[:200]}")
        checked = 0
        for values in CHOICES:
            objects = install(kubeconfig, values)
            for one in (one for one in objects if one["kind"] not in OF_OPERATORS):
                kubernetes_validate.validate(one, VERSION, strict=True)
            checked += len(objects)
            kinds = {one["kind"] for one in objects}
            if not values and kinds != EXPECTED:
                sys.exit(f"the chart makes {sorted(kinds)}, not {sorted(EXPECTED)}")
            for role in (one for one in objects if one["kind"] == "ClusterRole"):
                verbs = {verb for rule in role["rules"] for verb in rule["verbs"]}
                if not verbs <= {"get", "list", "watch"}:
                    sys.exit(f"the role may {sorted(verbs)}: only reading was meant")
            if "server" in values:
                written = next(one["data"]["loadfactor.toml"] for one in objects if one["kind"] == "ConfigMap")
                print(written)
                read = tomllib.loads(written)
                if not read["backup"].items() <= values["backup"].items() or read["retention"] != values["retention"]:
                    sys.exit(f"of {values['backup']} and {values['retention']} it writes {read}")
        checked += check_organisations(kubeconfig)
        try:
            install(kubeconfig, WRONG)
        except Exception as error:
            if "sise" not in str(error):
                raise
        else:
            sys.exit(f"the chart takes {WRONG}")
    print(
        f"{checked} objects of {len(CHOICES)} choices of values and two organisations pass the schema of Kubernetes {VERSION}"
    )


if __name__ == "__main__":
    main()
