"""Hand-written delivery logs in a few words: each call appends the events of one JMS operation."""

from pathlib import Path
from typing import Any

import msgspec

from spark_analysis.log import Log, LogWriter, log_path
from spark_analysis.rules import Finding, judge
from spark_analysis.schema import Event, Footer, Header, Kind, Outcome

ATTEMPT, OK, FAILED, INDETERMINATE = Outcome.ATTEMPT, Outcome.OK, Outcome.FAILED, Outcome.INDETERMINATE


class Scene:
    """A log in the making. Sessions are ``connection/session``; what is not said has the defaults below."""

    def __init__(self, mode: str = "AUTO", *, scenario: str = "scene", failover: str = "RC", **options: str) -> None:
        self.mode = mode
        self.events: list[Event] = []
        self.epochs: dict[str, int] = {}
        self.sequences: dict[tuple[str, str], int] = {}
        self.finished = True
        named = {name.replace("__", ":").replace("_", "-"): value for name, value in options.items()}
        self.header = Header(
            1, "run", scenario, f"tests::{scenario}", (), "core", "reference", failover, "kill-live", 1, 0, named
        )

    def add(self, kind: Kind, outcome: Outcome = OK, **fields: Any) -> int:
        position = len(self.events)
        fields.setdefault("epoch", self.epochs.get(fields.get("connection", ""), 0))
        self.events.append(Event(position=position, at_ns=position, kind=kind, outcome=outcome, **fields))
        return position

    def operation(self, kind: Kind, outcome: Outcome | None, session: str, **fields: Any) -> int:
        """An attempt and, unless ``outcome`` is None, its end. Returns the attempt's position."""
        connection, _, name = session.partition("/")
        error = {key: fields.pop(key) for key in ("error", "code") if key in fields}
        where = {"connection": connection, "session": name}
        attempt = self.add(kind, ATTEMPT, **where, **fields)
        if outcome is not None:
            self.add(kind, outcome, op=attempt, **where, **error)
        return attempt

    def send(self, *uids: str, outcome: Outcome | None = OK, session: str = "p/s", to: str = "q", **fields: Any) -> int:
        mode = "TRANSACTED" if fields.get("transaction") else "AUTO"
        first = len(self.events)
        for uid in uids:
            sequence = self.sequences.get((session, to), 0)
            self.sequences[session, to] = sequence + 1
            values = {"mode": mode, "endpoint": "p1", "sequence": sequence, "digest": f"d-{uid}", **fields}
            self.operation(Kind.SEND, outcome, session, destination=to, message=uid, **values)
        return first

    def receive(self, *uids: str, session: str = "c/s", at: str = "q", again: bool = False, **fields: Any) -> int:
        connection, _, name = session.partition("/")
        first = len(self.events)
        for uid in uids:
            values = {"mode": self.mode, "endpoint": f"{session}/c1", "digest": f"d-{uid}", **fields}
            count = {} if "delivery_count" in fields else {"delivery_count": 2 if again else 1}
            self.add(
                Kind.RECEIVE,
                connection=connection,
                session=name,
                destination=at,
                message=uid,
                redelivered=again,
                **count,
                **values,
            )
        return first

    def acknowledge(self, *uids: str, outcome: Outcome | None = OK, session: str = "c/s", **fields: Any) -> int:
        return self.operation(Kind.ACKNOWLEDGE, outcome, session, mode=self.mode, messages=uids, **fields)

    def commit(self, transaction: str, outcome: Outcome | None = OK, session: str = "c/s") -> int:
        return self.operation(Kind.COMMIT, outcome, session, mode="TRANSACTED", transaction=transaction)

    def rollback(self, transaction: str, session: str = "c/s") -> int:
        return self.operation(Kind.ROLLBACK, OK, session, mode="TRANSACTED", transaction=transaction)

    def recover(self, session: str = "c/s") -> int:
        return self.operation(Kind.RECOVER, OK, session, mode=self.mode)

    def fault(self, fault: str = "kill-live", connection: str = "") -> int:
        return self.add(Kind.FAULT, OK, fault=fault, connection=connection)

    def failover(self, *connections: str) -> None:
        """Each connection notices the failure and gets over it."""
        for connection in connections or ("c",):
            self.add(Kind.FAILOVER_BEGUN, connection=connection)
            self.epochs[connection] = self.epochs.get(connection, 0) + 1
            self.add(Kind.FAILOVER_DONE, connection=connection)

    def crash(self, *connections: str) -> None:
        self.fault()
        self.failover(*connections)

    def close(self, session: str) -> int:
        connection, _, name = session.partition("/")
        return self.add(Kind.CLOSE, connection=connection, session=name)

    def drain(self, *uids: str, again: bool = False, at: str = "q", **fields: Any) -> None:
        """The scene's last reader: an AUTO session of its own."""
        self.receive(*uids, session="drain/s", at=at, mode="AUTO", again=again)
        self.add(Kind.DRAINED, destination=at, connection="drain", session="s", **fields)

    def log(self) -> Log:
        footer = Footer(len(self.events), 0, 0) if self.finished else None
        return Log(self.header, tuple(self.events), footer, () if self.finished else ("scene: no footer",))

    def write(self, directory: Path) -> Path:
        """The scene as a file."""
        with LogWriter(log_path(directory, self.header.scenario), self.header) as writer:
            for event in self.events:
                fields = msgspec.structs.asdict(event)
                del fields["position"], fields["at_ns"]
                writer.record(**fields)
        return writer.path

    def findings(self) -> dict[str, Finding]:
        return {finding.rule: finding for finding in judge(self.log())}

    def outcomes(self) -> dict[str, str]:
        return {rule: finding.outcome.value for rule, finding in self.findings().items()}

    def failed(self) -> set[str]:
        return {rule for rule, outcome in self.outcomes().items() if outcome == "failed"}
