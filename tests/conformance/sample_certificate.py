"""A certificate as a run against ActiveMQ Classic might give it: every outcome and every kind of evidence once."""

import datetime as dt

from conformance.catalogue import load
from conformance.certificate import Certificate, InjectedFault, Tally, certify
from conformance.outcomes import Finding, Outcome, Trial, Waiver, judge

NODE = "conformance/chapters/test_transactions.py"
LOG = "runs/2026-11-21T034512/logs/tx-consume-kill-live-4f1c2a90.delivery.jsonl"


def trial(test: str, rows: tuple[str, ...], outcome: Outcome = Outcome.PASSED, **fields) -> Trial:
    settings = {
        "test": test,
        "requirements": rows,
        "outcome": outcome,
        "fault": "kill-live",
        "failover": "RC",
        "seconds": 2.41,
        "replay": f"jms-conformance certify --broker activemq.toml --adapter stomp --seed 20261121 --only '{test}'",
        "log": LOG,
        **fields,
    }
    return Trial(**settings)


def tally(mode: str, fault: str, scenarios: int, **counts: int) -> Tally:
    return Tally(mode=mode, fault=fault, failover="RC", scenarios=scenarios, **counts)


SHOWINGS = (
    trial(
        f"{NODE}::test_commit_after_failover[consume-RC]",
        ("TX-03",),
        Outcome.FAILED,
        message=(
            "TX-03: commit() returned although the transaction was rolled back\n\n"
            "consumed in transaction t-7: 5 messages, commit() returned normally after 0.34 s\n"
            "delivered again by the new live broker: 5 messages, 2 of them not flagged redelivered\n\n"
            "E       AssertionError: expected TransactionRolledBackException, nothing was raised"
        ),
        failover_seconds=(0.31,),
    ),
    trial(f"{NODE}::test_commit_after_failover[produce-RC]", ("TX-03",), failover_seconds=(0.28,)),
    trial(f"{NODE}::test_commit_after_failover[mixed-RC]", ("TX-03", "TX-06"), failover_seconds=(0.95,)),
    Finding(
        rule="transaction-all-or-nothing",
        scenario="tx-consume-kill-live",
        outcome=Outcome.FAILED,
        requirements=("TX-03", "MSG-09"),
        messages=("m-000231", "m-000232", "m-000233"),
        positions=(412, 413, 419, 466, 467),
        mode="TRANSACTED",
        fault="kill-live",
        message="3 messages of the committed transaction t-7 were delivered again, 2 of them not flagged redelivered",
        log=LOG,
    ),
    Finding(
        rule="no-loss", scenario="auto-kill-live", outcome=Outcome.PASSED, requirements=("MSG-11",), fault="kill-live"
    ),
    trial("conformance/chapters/test_messages.py::test_first_delivery[AUTO]", ("MSG-08",), fault="none", log=""),
    trial("conformance/chapters/test_messages.py::test_selectors[truth-table]", ("MSG-20", "MSG-21"), fault="none"),
    trial("conformance/chapters/test_producing.py::test_lost_reply[RC]", ("SND-01", "SND-02"), fault="drop-reply"),
    trial(
        "conformance/chapters/test_producing.py::test_send_waits[RC]",
        ("SND-05",),
        Outcome.FAILED,
        message="SND-05: the send raised ConnectionLostException after 0.02 s instead of waiting",
    ),
    trial(
        "conformance/chapters/test_auto.py::test_flag_survives[RC]",
        ("ACK-AUTO-03",),
        Outcome.FAILED,
        message="ACK-AUTO-03: message m-000017 came again without JMSRedelivered",
    ),
    trial(
        "conformance/chapters/test_auto.py::test_prefetch_not_flagged[RC]",
        ("ACK-AUTO-10",),
        Outcome.FAILED,
        message="ACK-AUTO-10: 41 prefetched messages came flagged",
    ),
    trial("conformance/chapters/test_listener.py::test_one_notification[cut]", ("LSN-01",), fault="cut"),
    trial(
        "conformance/chapters/test_listener.py::test_one_notification[blackhole]",
        ("LSN-11",),
        Outcome.SETUP_FAILED,
        fault="blackhole",
        message="broker node-b was not listening on 127.0.0.1:41234 after 30 s",
        log="",
    ),
    trial(
        "conformance/chapters/test_order.py::test_parked_send",
        ("ORD-03",),
        Outcome.HARNESS_FAILED,
        message="the log has no footer: the recording process ended early",
    ),
)

ROWS = (
    *("MSG-08", "MSG-09", "MSG-11", "MSG-20", "MSG-21", "SND-01", "SND-02", "SND-05", "ACK-AUTO-03", "ACK-AUTO-10"),
    *("TX-03", "TX-06", "TX-10", "XA-01", "XA-04", "LSN-01", "LSN-11", "ORD-03", "DUP-01"),
)


def sample() -> Certificate:
    catalogue = load()
    judgement = judge(
        [catalogue.requirement(row) for row in ROWS],
        SHOWINGS,
        excused={
            "XA-01": "no xa: STOMP has no distributed transactions",
            "XA-04": "no xa: STOMP has no distributed transactions",
            "DUP-01": "no dup-detection: the broker drops duplicates only for its own client",
        },
        waivers=[
            Waiver(
                requirement="ACK-AUTO-03",
                reason="persistJMSRedelivered is off in this deployment",
                owner="m.keller",
                expires=dt.date(2027, 3, 31),
                broker="activemq-classic",
            ),
            Waiver(requirement="SND-02", reason="was AMQ-1234", owner="m.keller", expires=dt.date(2027, 3, 31)),
        ],
        broker="activemq-classic",
        adapter="stomp",
        today=dt.date(2026, 11, 21),
    )
    return certify(
        judgement,
        broker="activemq-classic",
        adapter="stomp",
        engine="reference failover engine",
        certification_profile="ha-failover",
        failover_profiles=("RC", "NF"),
        seed=20261121,
        proxy="toxiproxy 2.12.0",
        products={"ActiveMQ Classic": "5.17.2", "stomp.py": "8.2.0", "jms-conformance": "0.1.0"},
        versions={"Python": "3.11.7", "Spark": "4.0.1", "Java": "17.0.16", "Linux": "6.1.0"},
        started=dt.datetime(2026, 11, 21, 3, 45, 12, tzinfo=dt.UTC),
        finished=dt.datetime(2026, 11, 21, 3, 52, 41, tzinfo=dt.UTC),
        replay="jms-conformance certify --broker activemq.toml --adapter stomp --profile ha-failover --seed 20261121",
        faults=(
            InjectedFault(
                kind="kill-live",
                count=41,
                evidence=(
                    "03:46:02.114 node-a pid 48213 killed, exit by signal 9 seen after 3 ms",
                    "03:46:09.870 node-b pid 48301 killed, exit by signal 9 seen after 2 ms",
                ),
            ),
            InjectedFault(kind="cut", count=18, evidence=("03:47:31.220 proxy client-a reset 3 connections",)),
            InjectedFault(
                kind="drop-reply",
                count=6,
                evidence=(
                    "03:48:12.004 downstream of client-a held back; SEND seen at the broker by a second connection",
                ),
            ),
            InjectedFault(kind="blackhole", count=2, evidence=("03:49:40.731 node-a stopped, state T",)),
        ),
        tallies=(
            tally("AUTO", "kill-live", 9, confirmed=18000, received=18000, duplicates_allowed=6, indeterminate=4),
            tally("AUTO", "cut", 6, confirmed=12000, received=12000, duplicates_allowed=3),
            tally("CLIENT", "kill-live", 8, confirmed=16000, received=16000, duplicates_allowed=112),
            tally("DUPS_OK", "kill-live", 4, confirmed=8000, received=8000, duplicates_allowed=240),
            tally(
                "TRANSACTED",
                "kill-live",
                12,
                confirmed=24000,
                received=24000,
                duplicates_not_allowed=3,
                flags_missing=2,
            ),
            tally("TRANSACTED", "drop-reply", 6, confirmed=6000, received=5998, lost=2, indeterminate=6),
        ),
        notes=("The embedded proxy was not needed: a Toxiproxy server was on PATH.",),
    )
