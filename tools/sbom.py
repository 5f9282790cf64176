"""Lists every package installed in this Python as a CycloneDX document, and checks the list.

    make sbom

`cyclonedx-py` writes the list; this program rejects an incomplete one: every installed package must
be listed with its version, and every installed pin of `constraints.txt` must have the listed
version.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main(tool: str, target: str) -> int:
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    words = [tool, "environment", "--pyproject", str(ROOT / "pyproject.toml")]
    words += ["--output-reproducible", "--output-format", "JSON", "--output-file", target]
    subprocess.run([*words, sys.executable], check=True)
    document = json.loads(Path(target).read_text())
    faults = faults_of(document, installed(), pins((ROOT / "constraints.txt").read_text()))
    for fault in faults:
        print(f"sbom: {fault}", file=sys.stderr)
    print(f"{target}: {len(document['components'])} packages, CycloneDX {document['specVersion']}")
    return 1 if faults else 0


def installed() -> dict[str, str]:
    """Return the installed versions by name."""
    return {normal(one.metadata["Name"]): one.version for one in distributions()}


def pins(text: str) -> dict[str, str]:
    """Return versions by name, from lines `name==version`."""
    pairs = (line.split("==") for line in text.split())
    return {normal(name): version for name, version in pairs}


def normal(name: str) -> str:
    """Return a package name in the normalized form of package indexes."""
    return re.sub(r"[-_.]+", "-", name).lower()


def faults_of(
    document: dict[str, object], present: dict[str, str], pinned: dict[str, str]
) -> list[str]:
    """Return the errors in a document; an empty list means it is complete."""
    if document.get("bomFormat") != "CycloneDX":
        return ["this is not a CycloneDX document"]
    components = document.get("components")
    assert isinstance(components, list)
    listed = {normal(one["name"]): one.get("version", "") for one in components}
    root = document.get("metadata", {})
    assert isinstance(root, dict)
    own = root.get("component")
    if own:
        listed.setdefault(normal(own["name"]), own.get("version", ""))
    faults = [f"{name} {version} is not listed" for name, version in present.items()
              if listed.get(name) != version]  # fmt: skip
    faults += [
        f"{name} is {listed[name]}, pinned is {version}"
        for name, version in pinned.items()
        if name in listed and listed[name] != version
    ]
    return faults


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
