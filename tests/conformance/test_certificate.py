"""A certificate is whole or nothing, and never credits a broker for what our engine did."""

import os

import msgspec
import pytest

from conformance import certificate as certificates
from conformance.certificate import credited_to, read, write
from conformance.errors import UserError
from conformance.outcomes import Outcome
from tests.conformance.sample_certificate import sample


def test_what_is_written_is_read_again(tmp_path):
    written = write(sample(), tmp_path / "run" / "certificate.json")
    assert written.complete
    assert read(tmp_path / "run") == written
    assert read(tmp_path / "run" / "certificate.json") == written


def test_the_mark_of_completeness_is_the_last_thing_in_the_file(tmp_path):
    write(sample(), tmp_path / "certificate.json")
    assert (tmp_path / "certificate.json").read_text().endswith('"complete": true\n}\n')


def test_no_part_of_a_file_is_ever_a_certificate(tmp_path):
    file = tmp_path / "certificate.json"
    write(sample(), file)
    whole = file.read_bytes()
    for length in range(0, len(whole) - 2, len(whole) // 97):
        file.write_bytes(whole[:length])
        with pytest.raises(UserError):
            read(file)


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path, monkeypatch):
    file = tmp_path / "certificate.json"
    write(sample(), file)
    before = file.read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write(sample(), file)
    assert file.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["certificate.json"]


def test_an_unfinished_certificate_certifies_nothing(tmp_path):
    file = tmp_path / "certificate.json"
    file.write_bytes(msgspec.json.encode(sample()))
    with pytest.raises(UserError, match="not complete"):
        read(file)


def test_another_schema_version_is_refused(tmp_path):
    file = tmp_path / "certificate.json"
    file.write_bytes(msgspec.json.encode({"schema_version": 99, "complete": True}))
    with pytest.raises(UserError, match="schema version 99"):
        read(file)


def test_a_missing_certificate_is_explained(tmp_path):
    with pytest.raises(UserError, match="Did the run finish"):
        read(tmp_path)


def test_credit_goes_where_it_belongs():
    assert credited_to("client", "rabbitmq", "reference failover engine") == "reference failover engine"
    assert credited_to("broker", "rabbitmq", "reference failover engine") == "rabbitmq"
    assert credited_to("pair", "rabbitmq", "reference failover engine") == "rabbitmq with reference failover engine"


def test_failover_times_of_one_fault_come_together_and_no_trial_counts_twice():
    times = {(time.fault, time.failover): time.seconds for time in sample().failover_times}
    assert times["kill-live", "RC"] == (0.31, 0.28, 0.95)


def test_results_know_the_exit_status():
    certificate = sample()
    assert certificate.exit_status == 1
    assert certificate.verdict == "does not conform"
    assert certificate.count(Outcome.FAILED) == 3
    assert certificate.schema_version == certificates.SCHEMA_VERSION
