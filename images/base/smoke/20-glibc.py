"""The C library is the one that the row's OS is known for, as wheels are chosen by it."""

import os

import smokelib

RELEASES = {
    "debian12": "2.36", "debian13": "2.41", "ubuntu22.04": "2.35", "ubuntu24.04": "2.39",
    "rockylinux8": "2.28", "ubi8": "2.28", "rockylinux9": "2.34", "ubi9": "2.34",
}  # fmt: skip

version = os.confstr("CS_GNU_LIBC_VERSION")
system = smokelib.row()["os"]
smokelib.equal(
    "glibc", version, f"glibc {RELEASES[system]}", f"the base image is not {system}; look at `base:` in matrix.yaml"
)
