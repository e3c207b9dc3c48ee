"""What converters share that keep their schemas in a schema registry: client, keys, subjects, framing."""
