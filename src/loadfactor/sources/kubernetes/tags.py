"""What Kubernetes says of a pod beside its GPUs, as the texts that rules of tagging read: bounded, and nothing secret."""

import json
import re
from collections.abc import Mapping
from typing import Final

from loadfactor.base.units import BYTES_PER_KIB
from loadfactor.sources.kubernetes.fields import Object, parts, text
from loadfactor.sources.parsing.environment_tags import tag_variables

MOST_BYTES: Final = 4 * BYTES_PER_KIB
"""Of all tags of a pod; what comes after that in the order of names is left out."""
LONGEST_TEXT: Final = 200
_NO_LABELS: Final = ("pod-template-hash", "controller-uid", "controller-revision-hash", "pod-template-generation")
"""Names, or ends of names, of labels that only number things."""
_NO_ANNOTATIONS: Final = re.compile(
    r"^(kubectl\.kubernetes\.io|kubernetes\.io|cni\.|k8s\.|k8s\.v1\.cni|checksum|prometheus\.io|sidecar\.istio\.io|istio\.io"
    r"|deployment\.kubernetes\.io|autoscaling\.|policies\.|cluster-autoscaler\.|hami\.io/(?!.*name))",
)
"""Annotations that controllers write for themselves; kubectl's holds whole objects."""
_SECRET: Final = re.compile(
    r"secret|passw|token|credential|api[-_.]?key|private[-_.]?key|auth(?!or)|cookie|session", re.IGNORECASE
)


def choose_texts(labels: Mapping[str, str], annotations: Mapping[str, str]) -> dict[str, str]:
    """Labels and annotations worth keeping, as label.KEY and annotation.KEY.

    >>> choose_texts({"experiment": "e1", "pod-template-hash": "5d8"}, {"slack-token": "xoxb", "owner": "ann"})
    {'label.experiment': 'e1', 'annotation.owner': 'ann'}
    """
    found = {
        f"label.{name}": value
        for name, value in sorted(labels.items())
        if value and not name.endswith(_NO_LABELS) and not _SECRET.search(name)
    }
    found |= {
        f"annotation.{name}": value
        for name, value in sorted(annotations.items())
        if value
        and len(value) <= LONGEST_TEXT
        and not value.startswith(("{", "["))
        and not _NO_ANNOTATIONS.match(name)
        and not _SECRET.search(name)
    }
    return found


def list_variables(container: Object) -> list[tuple[str, str]]:
    """The variables of a container's environment that tags are made of, as far as they are written there.

    >>> list_variables({"env": [{"name": "WANDB_PROJECT", "value": "llm"}, {"name": "WANDB_RUN_ID", "value": "$(POD_NAME)"}]})
    [('WANDB_PROJECT', 'llm')]
    """
    found = [(text(variable, "name"), text(variable, "value")) for variable in parts(container, "env")]
    return [(name, value) for name, value in found if "$(" not in value and tag_variables([(name, value)])]


def tag_environment(spec: Object) -> dict[str, str]:
    """The tags of the environments of a pod's containers."""
    return tag_variables(v for container in parts(spec, "containers") for v in list_variables(container))


def write_tags(texts: Mapping[str, str]) -> str | None:
    """Texts as the JSON object of the column `tags`; None where there is none. Those without a value are left out."""
    kept: dict[str, str] = {}
    size = 2
    for name, value in texts.items():
        if not value:
            continue
        size += len(json.dumps({name: value}, ensure_ascii=False).encode(errors="replace"))
        if size > MOST_BYTES:
            break
        kept[name] = value
    return json.dumps(kept, sort_keys=True, ensure_ascii=False) if kept else None
