"""The system's CA bundle is there and Python finds it; nothing of the build host is in it or beside it."""

import ssl
from pathlib import Path

import smokelib

authorities = ssl.create_default_context().get_ca_certs()
print(len(authorities), "certificate authorities")
smokelib.require(
    len(authorities) > 50,
    f"Python finds {len(authorities)} certificate authorities",
    "install ca-certificates in the base",
)
left = [path for path in Path("/run/secrets").glob("*") if path.name != "rhsm"]
smokelib.require(not left, f"the build left {left}", "secrets must be mounts of one RUN")
