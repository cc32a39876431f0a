from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.reference_broker.client.memory_wire import Network


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(5)
        assert not thread.is_alive(), f"thread {thread.name} is left"
