"""`connectx ui`: open the panel of a running cluster as a page in the browser."""

from __future__ import annotations

import webbrowser
from typing import Annotated, Final

import typer

from connectx.api.connect_cluster import panel_factory
from connectx.cli.common import At

_LOOPBACK: Final = "127.0.0.1"


def ui(
    at: At,
    address: Annotated[str | None, typer.Argument(metavar="[URL]", help="Address of any worker, like --url.")] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Remove every button that changes something.")] = False,
    host: Annotated[
        str, typer.Option(help="Address to listen on. Beyond loopback nothing is encrypted, and the link is the login.")
    ] = _LOOPBACK,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
) -> None:
    """Serve the panel of a notebook as a page in the browser, until Ctrl-C.

    Works with workers of connectx and of Kafka Connect. The page needs the token in the printed link. The login to the
    workers stays in this process.
    """
    at.url = address or at.url
    try:
        with panel_factory("page")(at.cluster, host=host, port=port, read_only=read_only) as page:
            at.show({"url": page.url}, f"The panel is at {page.url}\nPress Ctrl-C to end it. The cluster continues.")
            if browser:
                webbrowser.open(page.url)
            page.wait()
    except KeyboardInterrupt:
        return
