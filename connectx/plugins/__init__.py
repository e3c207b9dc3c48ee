"""The plugin framework: base classes, configuration keys, class lookup and validation."""
