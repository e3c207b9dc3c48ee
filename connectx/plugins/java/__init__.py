"""Java plugins: found in the folders of `plugin.path` without a JVM, and installed from Maven Central."""
