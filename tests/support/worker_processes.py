"""Real `connectx worker` processes, started from a settings file as an operator writes it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.profiles import dotted
from tests.support.waiting import until

START_S = 90.0

# The keys of the file that comes with Kafka (config/connect-distributed.properties), in its syntax.
SAMPLE = r"""
##
# settings of one distributed worker
##
bootstrap.servers=localhost:9092
group.id=connect-cluster
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
key.converter.schemas.enable=true
value.converter.schemas.enable=true
offset.storage.topic=connect-offsets
offset.storage.replication.factor=1
#offset.storage.partitions=25
config.storage.topic=connect-configs
config.storage.replication.factor=1
status.storage.topic=connect-status
status.storage.replication.factor=1
#status.storage.partitions=5
offset.flush.interval.ms=10000
#listeners=HTTP://:8083
plugin.path=/usr/local/share/java,\
            /opt/connectors,
"""


class WorkerProcess:
    """`connectx worker` with a settings file; `settings` use _ for the dots of a key and come last in the file."""

    def __init__(self, folder: Path, *options: str, **settings: str) -> None:
        folder.mkdir()
        file, self._log = folder / "connect-distributed.properties", folder / "stderr"
        own = {"listeners": "http://127.0.0.1:0", **dotted(settings)}
        file.write_text(SAMPLE + "".join(f"{key} = {value}\n" for key, value in own.items()), encoding="latin-1")
        command = [sys.executable, "-c", "from connectx.cli import main; main()", "worker", str(file), *options]
        with self._log.open("w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    @property
    def log(self) -> str:
        """What it has written to stderr."""
        return self._log.read_text()

    def wait_log(self, pattern: str) -> re.Match[str]:
        """Until a line matches."""

        def found() -> re.Match[str] | None:
            seen = re.search(pattern, self.log)
            assert seen or self.process.poll() is None, f"it ended with {self.process.returncode}:\n{self.log}"
            return seen

        match = until(found, f"{pattern!r} in its log", START_S)
        assert match is not None
        return match

    def wait_url(self) -> str:
        """Its REST address, once it may join the group."""
        return self.wait_log(r"REST listens at (http://\S+)/ ")[1]

    def end(self, number: signal.Signals) -> int:
        """Send a signal; the exit code."""
        self.process.send_signal(number)
        return self.process.wait(START_S)
