"""The panel as a widget of a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from connectx.history.render.shapes import LOOK
from connectx_widgets import front_end
from connectx_widgets.panel import Panel

if TYPE_CHECKING:
    from connectx.api.connect_cluster import ConnectCluster


class ClusterPanel(anywidget.AnyWidget):
    """The live panel of a `Cluster`; get it by `cluster.panel()`, or show the cluster as the last line of a cell.

    Args:
        cluster: what it shows and acts on. The panel ends with it.
    """

    _esm = front_end.module()
    _css = front_end.style()
    _ipython_display_ = None  # ipywidgets 7 would hide the HTML twin for it

    snapshot = traitlets.Dict().tag(sync=True)
    look = traitlets.Dict(LOOK).tag(sync=True)

    def __init__(self, cluster: ConnectCluster) -> None:
        super().__init__()
        self._panel = Panel(cluster, self.send, self._keep)

    def start(self) -> None:
        """Show what there is and begin to follow the cluster."""
        _answer_everywhere(self.comm)
        self.on_msg(self._on_message)
        self._panel.start()

    @property
    def stopped(self) -> bool:
        """Whether it follows its cluster no more."""
        return self._panel.stopped

    def stop(self) -> None:
        """Stop following; what was shown last stays on the page."""
        self._panel.stop()

    def close(self) -> None:
        """Stop, and take the panel off the page."""
        self.stop()
        layout = self.layout
        super().close()
        if layout is not None:
            layout.close()

    def _keep(self, snapshot: dict[str, Any]) -> None:
        self.snapshot = snapshot

    def _on_message(self, _: object, content: Mapping[str, Any], __: object) -> None:
        """Called by the kernel, on whatever thread it likes."""
        self._panel.receive(content)


def _answer_everywhere(comm: Any) -> None:
    """Let a click be served while a cell runs.

    ipykernel 7.4 sends a page's messages to the loop that last published on their comm; as the pump publishes under the
    cell that made it, clicks would wait until no cell runs. The default route is the comm's own subshell.
    """
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = lambda data, default: default
