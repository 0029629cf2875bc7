"""The packages in the image, of the system and of Python, are known; they are written down for `buildkit diff`."""

import json
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

import smokelib

DPKG = Path("/var/lib/dpkg/status")
RPM_FORMAT = r"%{NAME} %{EPOCHNUM}:%{VERSION}-%{RELEASE}.%{ARCH}\n"


def of_dpkg() -> "dict[str, str]":
    """Return what dpkg has installed, with versions."""
    found = {}
    for stanza in DPKG.read_text(encoding="utf-8").split("\n\n"):
        fields = dict(re.findall(r"^(Package|Status|Version): (.*)$", stanza, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed"):
            found[fields["Package"]] = fields["Version"]
    return found


def of_rpm() -> "dict[str, str]":
    """Return what rpm has installed, with versions; several of one name (public keys) together."""
    command = ["rpm", "--query", "--all", "--queryformat", RPM_FORMAT]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: dict[str, list[str]] = {}
    for line in listing.splitlines():
        name, version = line.split()
        found.setdefault(name, []).append(version)
    return {name: " ".join(sorted(versions)) for name, versions in found.items()}


def of_python() -> "dict[str, str]":
    """Return the distributions in the virtual environment, with versions, named as PEP 503 spells them."""
    found = metadata.distributions()
    return {re.sub(r"[-_.]+", "-", one.metadata["Name"]).lower(): one.version for one in found}


system = of_dpkg() if DPKG.exists() else of_rpm() if shutil.which("rpm") else {}
python = of_python()
print(f"{len(system)} packages of the system, {len(python)} of Python")
slim = smokelib.expect()["stage"] == "inference"  # it has files of train's packages, and no database of packages
smokelib.require(
    system or slim, "the system's packages are not known", "the image has neither dpkg's nor rpm's database"
)
smokelib.require(python or not slim, "Python's packages are not known", "their metadata must stay in the image")
smokelib.OUT.mkdir(exist_ok=True)
(smokelib.OUT / "packages.json").write_text(json.dumps({"os": system, "python": python}, indent=1, sort_keys=True))
