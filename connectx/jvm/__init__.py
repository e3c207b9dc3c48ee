"""Shared parts of the embedded broker and the local Spark driver: Java, jars, processes, archives."""
