"""Stop signals reach whoever stops, whatever the main thread is doing."""

from __future__ import annotations

import contextlib
import queue
import signal
import threading

import pytest

from shardpool.stop_signals import STOP_SIGNALS, stop_signals


def _taken_by_another_thread(number: int) -> None:
    """A signal that the main thread is not interrupted by, as when it comes just before the main thread blocks."""
    thread = threading.Thread(target=lambda: signal.pthread_kill(threading.get_ident(), number))
    thread.start()
    thread.join(10)


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_is_told_although_the_main_thread_is_blocked(number: signal.Signals) -> None:
    told: queue.SimpleQueue[signal.Signals] = queue.SimpleQueue()
    with stop_signals(told.put):
        threading.Timer(0.1, _taken_by_another_thread, (number,)).start()
        assert told.get(timeout=20) == number


def test_each_signal_is_told_in_order_and_also_after_one_that_could_not_be_acted_upon() -> None:
    told: queue.SimpleQueue[signal.Signals] = queue.SimpleQueue()

    def tell(number: signal.Signals) -> None:
        told.put(number)
        raise RuntimeError("not acted upon")

    with stop_signals(tell):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            signal.raise_signal(number)
            assert told.get(timeout=20) == number
    assert told.empty()


def test_what_stops_may_take_a_lock_that_the_main_thread_holds() -> None:
    lock = threading.Lock()
    stopped = threading.Event()

    def stop(number: signal.Signals) -> None:
        with lock:
            stopped.set()

    with stop_signals(stop):
        with lock:
            signal.raise_signal(signal.SIGTERM)
            assert not stopped.is_set()
        assert stopped.wait(20)


def test_afterwards_handlers_and_wakeup_are_as_before_and_no_thread_is_left() -> None:
    handlers = [signal.getsignal(number) for number in STOP_SIGNALS]
    threads = threading.active_count()
    with contextlib.suppress(ZeroDivisionError), stop_signals(lambda _: None):
        assert [signal.getsignal(number) for number in STOP_SIGNALS] != handlers
        raise ZeroDivisionError
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == handlers
    assert threading.active_count() == threads
    former = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(former)
    assert former == -1
