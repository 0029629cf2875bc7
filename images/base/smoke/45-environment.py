"""The image's variables are its own: no proxy and no CA bundle of a site, and NVIDIA's on rows for GPUs alone."""

import os

import smokelib

SITE = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy", "ssl_cert_file", "ssl_cert_dir",
        "requests_ca_bundle", "curl_ca_bundle", "pip_index_url", "pip_extra_index_url", "uv_index_url")  # fmt: skip

left = [name for name in os.environ if name.lower() in SITE]
smokelib.require(not left, f"the image sets {', '.join(left)}", "a site's settings are for its builds: no ENV for them")
given = {name: value for name, value in os.environ.items() if name.startswith("NVIDIA_")}
print(given or "no variables of NVIDIA's")
if smokelib.is_cuda():
    capabilities = given.get("NVIDIA_DRIVER_CAPABILITIES", "").split(",")
    for wanted in ("compute", "utility"):
        smokelib.require(
            wanted in capabilities, f"NVIDIA_DRIVER_CAPABILITIES lacks {wanted}", "set it in base.Containerfile.j2"
        )
else:
    smokelib.require(not given, f"a cpu row sets {', '.join(given)}", "they belong to CUDA rows: base.Containerfile.j2")
