"""Text is UTF-8 everywhere."""

import locale
import sys

import smokelib

smokelib.equal(
    "locale",
    locale.setlocale(locale.LC_ALL, ""),
    "C.UTF-8",
    "the base must set LANG=C.UTF-8, and the OS must have that locale",
)
smokelib.equal("file names", sys.getfilesystemencoding(), "utf-8", "the base must set LANG=C.UTF-8")
smokelib.equal(
    "files", locale.getpreferredencoding(do_setlocale=False).lower(), "utf-8", "the base must set LANG=C.UTF-8"
)
