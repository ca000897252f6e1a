"""Write the SBOM of what is shipped: `sbom.py ALL.json DIST`, from CycloneDX's list of all that is installed, into DIST.

What loadfactor needs is `required`, what its extras bring `optional`, what only its developers use left out; the wheels in DIST stand
in it with their checksums. It is an error where a licence is unknown.
"""

import json
import sys
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

STATED = {"google-cloud-bigquery": "Apache-2.0", "protobuf": "BSD-3-Clause", "pyarrow-hotfix": "Apache-2.0"}
"""Licences of packages whose metadata names none, as their LICENSE files state them."""
DEVELOPERS = "dev"


def find_needed(name: str, extras: frozenset[str], found: dict[str, set[str]]) -> None:
    """Add what a distribution needs with these extras to `found`: names, each with the extras that were followed."""
    key = canonicalize_name(name)
    if key in found and extras <= found[key]:
        return
    found.setdefault(key, set()).update(extras)
    try:
        requires = distribution(name).requires or ()
    except PackageNotFoundError:  # it is not for this platform
        del found[key]
        return
    for requirement in map(Requirement, requires):
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            find_needed(requirement.name, frozenset(requirement.extras), found)


def write_sbom(everything: Path, dist: Path) -> Path:
    """The SBOM of the wheels in a folder. Raises SystemExit naming the packages without a licence."""
    document: dict[str, Any] = json.loads(everything.read_text(encoding="utf-8"))
    extras = frozenset(distribution("loadfactor").metadata.get_all("Provides-Extra") or ()) - {DEVELOPERS}
    required: dict[str, set[str]] = {}
    shipped: dict[str, set[str]] = {}
    find_needed("loadfactor", frozenset(), required)
    find_needed("loadfactor", extras, shipped)
    wheels = {parse_wheel_filename(path.name)[0]: path for path in dist.glob("*.whl")}
    kept = []
    for part in document["components"]:
        name = canonicalize_name(part["name"])
        if name not in shipped or name == "loadfactor":
            continue
        if "licenses" not in part and name in STATED:
            part["licenses"] = [{"license": {"id": STATED[name]}}]
        part["scope"] = "required" if name in required else "optional"
        if name in wheels:
            part |= describe_wheel(wheels[name])
        kept.append(part)
    if unknown := [part["name"] for part in kept if "licenses" not in part]:
        sys.exit(f"sbom: no licence is known of {', '.join(unknown)}; read theirs and add it to STATED")
    root = document["metadata"]["component"]
    root |= {"version": distribution("loadfactor").version, **describe_wheel(wheels[canonicalize_name("loadfactor")])}
    document["metadata"].pop("properties", None)
    document["components"] = kept
    references = {root["bom-ref"], *(part["bom-ref"] for part in kept)}
    document["dependencies"] = [
        {"ref": entry["ref"], "dependsOn": [of for of in entry.get("dependsOn", ()) if of in references]}
        for entry in document["dependencies"]
        if entry["ref"] in references
    ]
    path = dist / f"loadfactor-{root['version']}.cdx.json"
    path.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return path


def describe_wheel(path: Path) -> dict[str, Any]:
    """A wheel as a part: its checksum, and no path of the machine it was built on."""
    return {
        "hashes": [{"alg": "SHA-256", "content": sha256(path.read_bytes()).hexdigest()}],
        "externalReferences": [{"type": "distribution", "url": path.name}],
    }


if __name__ == "__main__":
    write_sbom(Path(sys.argv[1]), Path(sys.argv[2]))
