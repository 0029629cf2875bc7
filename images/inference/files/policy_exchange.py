"""The shared-memory exchange between a policy server and one control loop: its layout, and how one waits on it.

policy_exchange.h says the same to a C compiler, and explains the protocol. This file needs nothing but Python 3.8.

Order of memory accesses. The sequence counters are aligned 32-bit words, which CPython reads and writes with one
machine instruction. x86-64 keeps stores in order and loads in order, so a counter never overtakes the numbers that it
announces. Other machines (aarch64) may reorder them: there `fence` makes a system call whose path in the kernel has a
full barrier (FUTEX_WAKE, which must not miss a waiter).
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import platform
import sys
import time
from typing import Any, NamedTuple

MAGIC = b"BKPOLICY"
VERSION = 1
FILE_NAME = "exchange"
SOCKET_NAME = "policy.sock"
LINE = 64  # bytes: every part starts on a cache line of its own

#: `status`
STARTING, SERVING, STOPPED, FAILED = range(4)
STATUS_NAMES = ("starting", "serving", "stopped", "failed")
#: `action_type`: the format letter that `array` and `memoryview` use, by number
FORMATS = {1: "f", 2: "q"}
#: `error`
OK, BAD_OBSERVATION, BAD_ACTION, POLICY_FAILED = range(4)
ERROR_TEXTS = (
    "",
    "the observation has a number that is not finite",
    "the policy's action has a number that is not finite",
    "the policy could not be run: see the server's log",
)
#: A server says that it is alive ten times a second; after this many seconds without a word it counts as gone.
HEARTBEAT_SECONDS = 0.1
GONE_AFTER_SECONDS = 1.0


class Header(ctypes.LittleEndianStructure):
    """The first 256 bytes of the file. Offsets are those of policy_exchange.h."""

    _fields_ = [
        # what never changes while the file exists
        ("magic", ctypes.c_char * 8),
        ("version", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("observation_count", ctypes.c_uint32),
        ("action_count", ctypes.c_uint32),
        ("action_type", ctypes.c_uint32),
        ("observation_offset", ctypes.c_uint32),
        ("action_offset", ctypes.c_uint32),
        ("reserved0", ctypes.c_uint32),
        ("epoch", ctypes.c_uint64),
        ("pad0", ctypes.c_uint8 * 16),
        # the server's
        ("status", ctypes.c_uint32),
        ("reserved1", ctypes.c_uint32),
        ("heartbeat_ns", ctypes.c_uint64),
        ("decisions", ctypes.c_uint64),
        ("pad1", ctypes.c_uint8 * 40),
        # the client's
        ("request", ctypes.c_uint32),
        ("reserved2", ctypes.c_uint32),
        ("requested_ns", ctypes.c_uint64),
        ("pad2", ctypes.c_uint8 * 48),
        # the server's answer
        ("response", ctypes.c_uint32),
        ("error", ctypes.c_uint32),
        ("valid", ctypes.c_uint32),
        ("reserved3", ctypes.c_uint32),
        ("received_ns", ctypes.c_uint64),
        ("answered_ns", ctypes.c_uint64),
        ("pad3", ctypes.c_uint8 * 32),
    ]


class Layout(NamedTuple):
    """Where things lie in an exchange for a policy of a given size: counts of numbers, offsets and size in bytes."""

    observation_count: int
    action_count: int
    action_type: int
    observation_offset: int
    action_offset: int
    size: int

    @classmethod
    def of(cls, observation_count: int, action_count: int, action_type: int) -> Layout:
        """Return the layout for so many float32 observations and actions of a type of FORMATS."""
        first = ctypes.sizeof(Header)
        second = _next_line(first + 4 * observation_count)
        size = _next_line(second + ctypes.sizeof(_TYPES[action_type]) * action_count)
        return cls(observation_count, action_count, action_type, first, second, size)


_TYPES = {1: ctypes.c_float, 2: ctypes.c_int64}


def _next_line(offset: int) -> int:
    return -(-offset // LINE) * LINE


class ExchangeError(Exception):
    """The file is no exchange, or one that this code does not understand."""


class Exchange:
    """An exchange file, mapped: `header` has the fields, `observation` and `action` are views of the numbers."""

    def __init__(self, descriptor: int, *, writable: bool = True) -> None:
        """Map an open file; it stays open with the exchange, as its lock lives in the descriptor.

        Raises:
            ExchangeError: it is none, or not one of this version.
        """
        size = os.fstat(descriptor).st_size
        if size < ctypes.sizeof(Header):
            raise ExchangeError("the file is too short to be an exchange")
        if sys.byteorder != "little":
            raise ExchangeError("an exchange is little-endian, and this machine is not")
        self.descriptor = descriptor
        self._map = mmap.mmap(descriptor, size, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)
        try:
            self.layout = _checked(Header.from_buffer_copy(self._map), size)
        except ExchangeError:
            self._map.close()
            raise
        self.header = Header.from_buffer(self._map) if writable else Header.from_buffer_copy(self._map)
        self._views: list[memoryview] = []
        self.observation = self._view(self.layout.observation_offset, 4 * self.layout.observation_count)
        width = ctypes.sizeof(_TYPES[self.layout.action_type])
        self.action = self._view(self.layout.action_offset, width * self.layout.action_count)

    def _view(self, offset: int, length: int) -> memoryview:
        view = memoryview(self._map)[offset : offset + length]
        self._views.append(view)
        return view

    def refresh(self) -> None:
        """Read the header anew, where the file is mapped for reading only."""
        self.header = Header.from_buffer_copy(self._map)

    def address(self, field: str) -> int:
        """Return the address of a field of the header, to wait on."""
        return ctypes.addressof(self.header) + int(getattr(Header, field).offset)

    def close(self) -> None:
        """Unmap and close; the lock goes with it."""
        for view in self._views:
            with contextlib.suppress(BufferError):
                view.release()
        del self.header, self.observation, self.action
        with contextlib.suppress(BufferError):  # somebody still looks into it: unmapped when that ends
            self._map.close()
        os.close(self.descriptor)


def _checked(header: Header, size: int) -> Layout:
    if header.magic != MAGIC:
        raise ExchangeError("the file is not an exchange of a policy server")
    if header.version != VERSION:
        raise ExchangeError(f"the exchange has version {header.version}, this code reads version {VERSION}")
    if header.action_type not in FORMATS:
        raise ExchangeError(f"the exchange has actions of an unknown type, {header.action_type}")
    layout = Layout.of(header.observation_count, header.action_count, header.action_type)
    said = (header.observation_offset, header.action_offset, header.size)
    if said != (layout.observation_offset, layout.action_offset, layout.size) or size != layout.size:
        raise ExchangeError("the exchange's sizes contradict each other")
    return layout


def create(path: str, layout: Layout, mode: int) -> Exchange:
    """Make a new exchange under a name, in one step: whoever opens that name sees a whole one.

    A client that still has the old file mapped keeps it: nothing is cut off under it.
    """
    temporary = f"{path}.{os.getpid()}"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(descriptor, mode)
        # Every byte is written, so that the space is there: a full tmpfs is an error here and no SIGBUS later.
        header = Header(
            magic=MAGIC, version=VERSION, size=layout.size, observation_count=layout.observation_count,
            action_count=layout.action_count, action_type=layout.action_type,
            observation_offset=layout.observation_offset, action_offset=layout.action_offset,
            epoch=int.from_bytes(os.urandom(8), "little") or 1, status=STARTING, heartbeat_ns=time.monotonic_ns(),
        )  # fmt: skip
        os.write(descriptor, bytes(header) + bytes(layout.size - ctypes.sizeof(Header)))
        exchange = Exchange(descriptor)
        os.rename(temporary, path)
    except BaseException:
        os.close(descriptor)
        os.unlink(temporary)
        raise
    return exchange


# --- waiting ---------------------------------------------------------------------------------------------------------

_SYS_FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine(), 0)
_FUTEX_WAIT, _FUTEX_WAKE = 0, 1  # the shared kind: it works between processes, and so between containers of one host
_EVERYBODY = 2**31 - 1


class _TimeSpec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long
_syscall.argtypes = [ctypes.c_long, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p,
                     ctypes.c_uint32]  # fmt: skip


def wait(address: int, value: int, seconds: float) -> None:
    """Sleep while the word at an address has a value, at most so long; may also return for no reason."""
    if not _SYS_FUTEX:
        time.sleep(min(seconds, 0.0002))
        return
    whole = int(seconds)
    timeout = _TimeSpec(whole, int((seconds - whole) * 1e9))
    _syscall(_SYS_FUTEX, address, _FUTEX_WAIT, value, ctypes.addressof(timeout), None, 0)


def wake(address: int) -> None:
    """Wake whoever sleeps on a word."""
    if _SYS_FUTEX:
        _syscall(_SYS_FUTEX, address, _FUTEX_WAKE, _EVERYBODY, None, None, 0)


_fence_word = ctypes.c_uint32()


def _fence_by_futex() -> None:
    _syscall(_SYS_FUTEX, ctypes.addressof(_fence_word), _FUTEX_WAKE, 1, None, None, 0)


def _no_fence() -> None:
    pass


#: Keeps the accesses before it before those after it, where the machine does not do so itself.
fence = _no_fence if platform.machine() == "x86_64" else _fence_by_futex


def end(exchange: Exchange, status: int) -> None:
    """Say that nobody serves any more, and wake who waits for an answer."""
    exchange.header.status = status
    for field in ("request", "response"):
        wake(exchange.address(field))


def heartbeat_age(header: Any, now_ns: int | None = None) -> float:
    """Return how many seconds ago the server said that it lives."""
    return ((time.monotonic_ns() if now_ns is None else now_ns) - int(header.heartbeat_ns)) / 1e9
