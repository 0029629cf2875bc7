"""Nothing that was installed says when or from where: another build of the same inputs gives the same bytes."""

import sys
import sysconfig
from pathlib import Path

import smokelib


def is_dated(bytecode: Path) -> bool:
    """Say whether compiled Python carries its source's time, instead of a hash (PEP 552)."""
    with bytecode.open("rb") as file:
        return not int.from_bytes(file.read(8)[4:], "little") & 1


site_packages = Path(sysconfig.get_path("purelib"))
stamps = [str(path) for pattern in ("uv_cache.json", "direct_url.json") for path in site_packages.glob(f"*/{pattern}")]
smokelib.require(not stamps, f"the installer left {', '.join(stamps)}", "remove them in the RUN that installs")
listed = [path.parent.name for path in site_packages.glob("*/RECORD") if "/uv_cache.json," in path.read_text("utf-8")]
smokelib.require(not listed, f"the RECORD of {', '.join(listed)} lists uv_cache.json", "remove the line with the file")
compiled = [path for top in (sys.prefix, sysconfig.get_path("stdlib")) for path in Path(top).rglob("*.pyc")]
dated = [str(path) for path in compiled if is_dated(path)]
print(f"{len(compiled)} files of bytecode")
smokelib.require(
    not dated, f"{len(dated)} files of bytecode are dated, such as {dated[:1]}", "compile with unchecked-hash"
)
