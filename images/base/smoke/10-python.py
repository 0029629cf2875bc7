"""The image's python is the row's, and lives in the virtual environment."""

import platform
import sqlite3
import ssl
import sys

import smokelib

wanted = smokelib.row()["python"]
smokelib.equal(
    "python",
    ".".join(platform.python_version_tuple()[:2]),
    wanted,
    "does the row's OS have this Python? see `python:` in matrix.yaml",
)
smokelib.equal("sys.prefix", sys.prefix, "/opt/venv", "PATH must begin with /opt/venv/bin")
print(ssl.OPENSSL_VERSION, "sqlite", sqlite3.sqlite_version)
