"""The C and the C++ library are the ones that the row's OS is known for, as wheels are chosen by them."""

import ctypes
import os

import smokelib
import wheellib

version = (os.confstr("CS_GNU_LIBC_VERSION") or "").replace("glibc ", "")
smokelib.equal(
    "glibc",
    version,
    smokelib.fact("glibc") or version,
    f"the base image is not {smokelib.row()['os']} (look at `base:` in matrix.yaml), or the fact is wrong",
)
ctypes.CDLL("libstdc++.so.6")
newest = wheellib.newest([wheellib.system_library("libstdc++.so.6")], "GLIBCXX")
smokelib.confirm("libstdcxx", ".".join(map(str, newest or ())), lambda known: wheellib.numbers(known) == newest)
