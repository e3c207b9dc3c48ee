"""HttpSink: records as requests to a web service."""
