"""A Java connector that ends or blocks its JVM, compiled for the tests that need it."""

from __future__ import annotations

import os
import subprocess
import zipfile
from pathlib import Path
from typing import Final

from connectx.jvm import jars
from connectx.jvm.java import find_java
from tests.support.connect_host import RELEASE

HOSTILE: Final = "hostile.Hostile"
"""A source without records. Its key `mode`: `exit` ends the JVM in poll, `poll` and `stop` block there forever."""

_SOURCE: Final = """
package hostile;

import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;

public class Hostile extends SourceConnector {
    private Map<String, String> config;

    public void start(Map<String, String> given) { config = given; }
    public Class<? extends Task> taskClass() { return HostileTask.class; }
    public List<Map<String, String>> taskConfigs(int most) { return List.of(config); }
    public void stop() { }
    public ConfigDef config() { return new ConfigDef(); }
    public String version() { return "1"; }

    public static class HostileTask extends SourceTask {
        private String mode;

        public void start(Map<String, String> given) { mode = String.valueOf(given.get("mode")); }
        public String version() { return "1"; }
        public void stop() { if (mode.equals("stop")) block(); }

        public List<SourceRecord> poll() throws InterruptedException {
            Thread.sleep(100);
            if (mode.equals("exit")) System.exit(7);
            if (mode.equals("poll")) block();
            return null;
        }

        private static void block() {
            while (true) {
                try {
                    Thread.sleep(60_000);
                } catch (InterruptedException ignored) {
                }
            }
        }
    }
}
"""


def add_hostile_plugin(plugin_path: Path, compiler: str) -> None:
    """Compile the connector into a folder of a plugin path."""
    class_path = os.pathsep.join(map(str, jars.fetch(jars.KAFKA_CONNECT, find_java())))
    folder = plugin_path / "hostile"
    classes = plugin_path.parent / "hostile-classes"
    folder.mkdir()
    classes.mkdir()
    source = classes / "Hostile.java"
    source.write_text(_SOURCE)
    subprocess.run(
        [compiler, "--release", str(RELEASE), "-d", str(classes), "-cp", class_path, str(source)], check=True
    )
    with zipfile.ZipFile(folder / "hostile-1.jar", "w") as jar:
        for path in classes.rglob("*.class"):
            jar.write(path, path.relative_to(classes).as_posix())
        jar.writestr("META-INF/services/org.apache.kafka.connect.source.SourceConnector", f"{HOSTILE}\n")
