"""Negative controls: wrong brokers and clients that the suite must catch, each by the requirement that it violates.

A verdict is only worth what it can catch. Every control is a defect that the reference carries at a named seam, armed
by name; the chapters and rules that cite the violated requirement must then fail, and pass when nothing is armed.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from reference_broker.defects import BROKER_DEFECTS, CLIENT_DEFECTS, Defect


class Side(StrEnum):
    """Which half of the reference is wrong."""

    BROKER = "broker"
    CLIENT = "client"


class Control(msgspec.Struct, frozen=True):
    """One wrong reference and the requirements it violates, of which the first must catch it."""

    name: str
    side: Side
    sentence: str
    requirement_ids: tuple[str, ...]


def _controls(side: Side, defects: tuple[Defect, ...]) -> tuple[Control, ...]:
    return tuple(Control(defect.name, side, defect.sentence, tuple(defect.violates)) for defect in defects)


CONTROLS: tuple[Control, ...] = (
    *_controls(Side.BROKER, BROKER_DEFECTS),
    *_controls(Side.CLIENT, CLIENT_DEFECTS),
)
