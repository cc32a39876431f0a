"""A call that may block, made in a thread of its own so that the test can go on and look at it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Result = TypeVar("Result")


class Background(Generic[Result]):
    def __init__(self, call: Callable[[], Result]) -> None:
        self._call = call
        self._result: Result | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._call()
        except BaseException as error:  # noqa: BLE001 - handed to the test
            self._error = error

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def result(self, within: float = 10.0) -> Result:
        self._thread.join(within)
        assert not self._thread.is_alive(), "the call did not return"
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]
