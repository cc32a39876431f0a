"""SIGTERM and SIGHUP end a run as Ctrl-C does: in order, with nothing left behind."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ORDERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def interrupt_when_terminated() -> None:
    """For the rest of this process: what would end it at once raises KeyboardInterrupt, as Ctrl-C does already."""
    if threading.current_thread() is threading.main_thread():
        for number in ORDERS:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _interrupt)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextmanager
def interrupted_once() -> Iterator[None]:
    """Within the block the first such signal raises KeyboardInterrupt; others do not disturb the ending then begun."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        for number in ORDERS:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in ORDERS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
