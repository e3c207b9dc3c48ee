"""Live panels, in notebooks and as pages. connectx finds them as entry points; nothing in it imports this package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from connectx.api.connect_cluster import ConnectCluster
    from connectx_widgets.page import PanelPage
    from connectx_widgets.widget import ClusterPanel

__all__ = ["open_page", "open_panel"]

_shown: list[ClusterPanel] = []
"""Panels on some page. Those of closed clusters keep their last picture until the next panel is made: so a cell that is
run repeatedly leaks nothing."""


def open_panel(cluster: ConnectCluster) -> ClusterPanel:
    """A live panel of a cluster, which follows it from now on until it is closed.

    Raises:
        ImportError: anywidget or ipywidgets are not installed.
    """
    from connectx_widgets.widget import ClusterPanel

    for old in [old for old in _shown if old.stopped]:
        _shown.remove(old)
        old.close()
    made = ClusterPanel(cluster)
    made.start()
    _shown.append(made)
    return made


def open_page(cluster: ConnectCluster, **options: Any) -> PanelPage:
    """Return the panel of a cluster as a page in the browser, not started; for `options` see `PanelPage`."""
    from connectx_widgets.page import PanelPage

    return PanelPage(cluster, **options)
