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
ANCHORS = ("/usr/local/share/ca-certificates", "/etc/pki/ca-trust/source/anchors")
baked = [str(path) for folder in ANCHORS for path in Path(folder).glob("*") if path.is_file()]
smokelib.require(
    not baked, f"the image trusts {', '.join(baked)} of a site", "a site's CA bundle is a secret of builds"
)
left = [path for path in Path("/run/secrets").glob("*") if path.name != "rhsm"]
smokelib.require(not left, f"the build left {left}", "secrets must be mounts of one RUN")
