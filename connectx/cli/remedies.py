"""Next steps of errors and findings for a terminal: commands and options instead of Python. Pure."""

from __future__ import annotations

import re
from typing import Final

_WORDS: Final = (
    (
        r'cluster\["([^"]+)"\]\.restart\(include_tasks=True, only_failed=True\)',
        r"connectx restart \1 --tasks --only-failed",
    ),
    (r'cluster\["([^"]+)"\]\.restart\(\)', r"connectx restart \1"),
    (r"restart\(include_tasks=True, only_failed=True\)", "connectx restart NAME --tasks --only-failed"),
    (r"timeout=, or see cluster\.events for what happened", "--wait, or see what happens with connectx watch"),
    (r"cx\.attach\(url, http=.*\)\), or (--basic-file or --bearer-file) of a command", r"\1"),
    (r'config=\{"[^"]*": \.\.\.\}; or --worker-config', "--worker-config"),
    (r"with config=", "with --worker-config"),
    (r'bootstrap_servers="host:port"', "--bootstrap-servers host:port"),
    (r"bootstrap_servers=", "--bootstrap-servers"),
    (r"group_id=", "--group-id"),
    (r"pass overwrite=True", "pass --overwrite"),
    (r"as secrets=\{.*\}, or export again with secrets=True", "with --secrets-file, or export again with --secrets"),
)


def in_terminal(text: str) -> str:
    """Replace the Python of next steps by what does the same on a command line."""
    for pattern, replacement in _WORDS:
        text = re.sub(pattern, replacement, text)
    return text
