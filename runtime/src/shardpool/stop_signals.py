"""SIGTERM and SIGINT, told from a thread: never lost while the main thread is about to wait."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator

from shardpool.log import logger

LOG = logger(__name__)
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_CLOSE = 0  # no signal has this number


@contextlib.contextmanager
def stop_signals(told: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Within the block, call `told` for each SIGTERM and SIGINT, from a thread of its own. For the main thread only.

    A Python handler runs when the main thread next executes Python: one that is just about to block in a lock, with the signal already
    taken by the interpreter, sleeps on until something else wakes it. The interpreter's own handler also writes the number to
    `signal.set_wakeup_fd` at once, whichever thread does what; that is what is listened to here. And unlike a Python handler, which may
    interrupt the main thread inside a lock that it then asks for, `told` may take locks.

    Raises:
        ValueError: not called from the main thread (as `signal.signal`).
    """
    listening, writing = socket.socketpair()
    writing.setblocking(False)

    def listen() -> None:
        while True:
            for number in listening.recv(64) or (_CLOSE,):
                if number == _CLOSE:
                    return
                if number in STOP_SIGNALS:  # the wake-up is for every signal that has a handler
                    try:
                        told(signal.Signals(number))
                    except Exception:
                        LOG.exception("%s was not acted upon", signal.Signals(number).name)

    with listening, writing:
        former = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
        thread = threading.Thread(target=listen, name="stop-signals", daemon=True)
        thread.start()
        handlers = {number: signal.signal(number, _noted) for number in STOP_SIGNALS}
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(former)
            writing.send(bytes((_CLOSE,)))
            thread.join()


def _noted(number: int, frame: object) -> None:
    """In place of the default action, which would end the process; the thread hears of the signal without it."""
