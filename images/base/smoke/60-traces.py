"""Nothing of the build host or of the installation is left in the image."""

from pathlib import Path

import smokelib

LEFT_BEHIND = (
    "/etc/apt/sources.list.d/*", "/etc/pip.conf", "/etc/uv/*", "/etc/xdg/pip/*", "/var/lib/apt/lists/*_*",
    "/var/cache/apt/archives/*.deb", "/var/cache/ldconfig/aux-cache", "/var/cache/dnf/*",
    "/var/log/*.log", "/var/log/apt/*",
)  # fmt: skip

left = [str(path) for pattern in LEFT_BEHIND for path in Path("/").glob(pattern[1:])]
sources = Path("/etc/apt/sources.list")
if smokelib.row()["base"] != "bootstrap":
    left = [path for path in left if not path.startswith("/etc/apt/")]  # the base image's own
elif sources.exists() and sources.stat().st_size:
    left.append(str(sources))
smokelib.require(
    not left, f"the build left {', '.join(left)}", "remove them in the RUN that makes them, or mount a tmpfs there"
)
