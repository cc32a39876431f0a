"""The adapters by name; each is imported only when it is asked for, so that an absent library harms no other."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, cast

from .spi import AdapterError, ClientAdapter

ADAPTERS = {
    "core": "adapters.core:CoreAdapter",
    "stomp": "adapters.stomp:StompAdapter",
}


def adapter_class(name: str) -> type[ClientAdapter]:
    """The adapter of that name; AdapterError if there is none or its library is missing."""
    try:
        module, _, attribute = ADAPTERS[name].partition(":")
    except KeyError:
        known = ", ".join(sorted(ADAPTERS))
        raise AdapterError(f"there is no adapter {name!r}; known are: {known}") from None
    try:
        found = getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise AdapterError(f"adapter {name!r} needs the Python package {error.name!r}, which is missing") from error
    return cast(type[ClientAdapter], found)


def make_adapter(name: str, settings: Mapping[str, Any] | None = None) -> ClientAdapter:
    """The adapter, configured."""
    return adapter_class(name)(settings)
