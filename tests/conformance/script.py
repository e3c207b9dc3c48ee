"""Scripts that run against the model broker and against Kafka: what each step shows stands behind its arrow.

A step is `subject verb argument...`; it calls the verb's method of an adapter with the subject and the arguments. A
step that shows nothing has no arrow. Lines that begin with `#` say why.
"""

from __future__ import annotations

from typing import Any


def steps(script: str) -> list[str]:
    """The lines of a script, spaces made one, without comments."""
    lines = [" ".join(line.split()) for line in script.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def run(script: str, adapter: Any) -> list[str]:
    """The same lines, with what the adapter showed in place of what the script expects."""
    seen = []
    for line in steps(script):
        step, _, _ = line.partition(" ->")
        subject, verb, *arguments = step.split(" ")
        result = getattr(adapter, verb)(subject, *arguments)
        seen.append(step if result is None else f"{step} -> {result}")
    return seen
