"""A local Spark session that starts fast, says nothing, listens on loopback only and leaves nothing behind.

Spark is a JVM driven over a socket. We start it ourselves, so that its output goes to a file (shown only if it fails)
and so that it sits in a process group of its own: Ctrl-C reaches us, and we end it. Should we die without a word, the
JVM sees its standard input end and exits by itself.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING, Any

from spark_analysis.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"
START_SECONDS = 120
STOP_SECONDS = 10
LOG4J = """\
status = error
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d %p %c: %m%n%ex
"""


class SparkFailed(Exception):
    """Spark could not start or judge; the text says why and holds the end of its own output."""


@contextmanager
def spark_session() -> Iterator[SparkSession]:
    """The session of an application that was submitted to Spark, or else a local one for the time of the block.

    Raises ``JavaMissing`` or ``SparkFailed``. SIGTERM becomes ``SystemExit`` meanwhile, so that the JVM is ended.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - half a second that only judging needs

        yield SparkSession.builder.config("spark.executorEnv.PYTHONPATH", _python_path()).getOrCreate()
        return
    java = find_java()
    scratch = Path(tempfile.mkdtemp(prefix="jms-conformance-spark-"))
    try:
        with _signals_unwind(), _jvm(java.path, scratch) as gateway:
            yield _connect(gateway, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def _jvm(java_home: Path, scratch: Path) -> Iterator[Any]:
    """Start the JVM of Spark with its output in ``scratch``; on the way out end it and wait until it is gone."""
    (scratch / "log4j2.properties").write_text(LOG4J)
    output = scratch / "spark.out"
    with output.open("wb") as sink, _start(java_home, scratch, sink) as process:
        try:
            gateway = _gateway(process, scratch, output)
            try:
                yield gateway
            except Exception as error:  # translated while the JVM can still tell its part of the story
                if type(error).__module__.startswith(("py4j", "pyspark")):
                    raise SparkFailed(f"Spark failed: {error}{_tail(output)}") from error
                raise
            finally:
                _stop(gateway, process)
        finally:
            _end(process)


def _start(java_home: Path, scratch: Path, sink: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start what ``pyspark.java_gateway.launch_gateway`` starts, but hold on to the process from its first moment."""
    from pyspark.find_spark_home import _find_spark_home  # noqa: PLC0415

    changes = {
        "JAVA_HOME": str(java_home),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_CONF_DIR": str(scratch),
        "SPARK_LOCAL_DIRS": str(scratch),
        "SPARK_CONNECT_MODE": "0",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(scratch / "gateway"),
    }
    command = [str(Path(_find_spark_home(), "bin", "spark-submit"))]
    for name, value in _settings(scratch):
        command += ["--conf", f"{name}={value}"]
    return subprocess.Popen(
        [*command, "pyspark-shell"],
        env={**os.environ, **changes},
        stdin=subprocess.PIPE,
        stdout=sink,
        stderr=sink,
        process_group=0,
    )


def _gateway(process: subprocess.Popen[bytes], scratch: Path, output: Path) -> Any:
    """Wait until the JVM says where it listens, and connect."""
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415

    told = scratch / "gateway"
    deadline = time.monotonic() + START_SECONDS
    while not told.exists():
        if process.poll() is not None:
            raise SparkFailed(f"Spark ended at its start with status {process.returncode}{_tail(output)}")
        if time.monotonic() > deadline:
            raise SparkFailed(f"Spark did not start within {START_SECONDS} s{_tail(output)}")
        time.sleep(0.02)
    port, length = struct.unpack(">ii", (data := told.read_bytes())[:8])  # then the secret
    where = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": data[8 : 8 + length].decode()}
    os.environ.update(where)  # how a Python driver is told of a JVM that runs already
    try:
        return launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        for name in where:
            del os.environ[name]


def _connect(gateway: Any, scratch: Path) -> SparkSession:
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    conf = SparkConf(_jvm=gateway.jvm).setAll(_settings(scratch))
    with _workers_run_this_python():
        return SparkSession(SparkContext(gateway=gateway, conf=conf))


@contextmanager
def _workers_run_this_python() -> Iterator[None]:
    """A context takes its workers' Python from the environment alone, and from PATH without it: not always ours."""
    before = os.environ.get("PYSPARK_PYTHON")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYSPARK_PYTHON"]
        else:
            os.environ["PYSPARK_PYTHON"] = before


def _stop(gateway: Any, process: subprocess.Popen[bytes]) -> None:
    """Stop Spark in good order, whatever state it is in, and let a later session start afresh."""
    from pyspark import SparkContext  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    context = SparkContext._active_spark_context
    with suppress(Exception):  # a JVM that is dead already answers nothing
        if context is not None and process.poll() is None:
            context.stop()
        gateway.shutdown()
    SparkSession._instantiatedSession = None
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the JVM and the Python workers that are in its process group, if they are there still."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _settings(scratch: Path) -> list[tuple[str, str]]:
    java_options = (
        f"-Dlog4j2.configurationFile={(scratch / 'log4j2.properties').as_uri()}",
        f"-Djava.io.tmpdir={scratch}",
        f"-Dderby.system.home={scratch}",
        "-Djava.net.preferIPv4Stack=true",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",  # a run is judged in seconds: the second compiler would not pay
        "-XX:-UsePerfData",
        "-Xshare:auto",
    )
    return [
        ("spark.app.name", "jms-conformance"),
        ("spark.master", f"local[{max(1, min(os.cpu_count() or 1, 8))}]"),
        ("spark.driver.host", LOOPBACK),
        ("spark.driver.bindAddress", LOOPBACK),
        ("spark.driver.memory", "1g"),
        ("spark.driver.defaultJavaOptions", shlex.join(java_options)),
        ("spark.ui.enabled", "false"),
        ("spark.ui.showConsoleProgress", "false"),
        ("spark.local.dir", str(scratch)),
        ("spark.sql.warehouse.dir", (scratch / "warehouse").as_uri()),
        ("spark.sql.catalogImplementation", "in-memory"),
        ("spark.sql.shuffle.partitions", "2"),
        ("spark.sql.files.openCostInBytes", "65536"),
        ("spark.executorEnv.PYTHONPATH", _python_path()),
    ]


@contextmanager
def _signals_unwind() -> Iterator[None]:
    """Have SIGTERM unwind the stack, and put back the SIGINT handler that Spark replaces."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminate(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    interrupt = signal.getsignal(signal.SIGINT)
    before = signal.getsignal(signal.SIGTERM)
    if before is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, interrupt)
        signal.signal(signal.SIGTERM, before)


def _python_path() -> str:
    """Where Spark's workers find this package."""
    package_root = str(Path(__file__).resolve().parent.parent)
    return os.pathsep.join(filter(None, (package_root, os.environ.get("PYTHONPATH", ""))))


def _tail(output: Path, lines: int = 20) -> str:
    with suppress(OSError):
        text = output.read_text(errors="replace").splitlines()[-lines:]
        if text:
            return "\nThe end of its output:\n  " + "\n  ".join(text)
    return ""
