"""Without widgets, outside of a kernel and after its end, a cluster shows its text and its HTML."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import pytest

import connectx.api.connect_cluster as home
from connectx.errors.clusters import ClusterClosedError
from tests.unit.api.test_forms import CARD, StandIn

WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """A cluster in a kernel."""
    monkeypatch.setattr(home, "in_kernel", lambda: True)
    return StandIn()


def check_static(bundle: Mapping[str, str]) -> None:
    assert set(bundle) == {"text/plain", "text/html"}
    assert bundle["text/html"].startswith(CARD)
    assert bundle["text/plain"].startswith("Cluster: ")


@pytest.mark.parametrize("missing", ["anywidget", "ipywidgets", "connectx_widgets"])
def test_what_a_panel_needs_may_be_missing(cluster: StandIn, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] in ("anywidget", "connectx_widgets")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.split(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    check_static(cluster._repr_mimebundle_())
    with pytest.raises(ImportError):
        cluster.panel()


def test_without_an_installed_panel_a_cluster_shows_its_forms(
    cluster: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home, "PANELS", "connectx.no-such-group")
    check_static(cluster._repr_mimebundle_())
    with pytest.raises(ImportError, match=r"connectx\[notebook\]"):
        cluster.panel()


def test_outside_of_a_kernel_no_panel_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = StandIn()
    check_static(cluster._repr_mimebundle_())
    assert cluster._panel is None


def test_a_closed_cluster_shows_its_history_and_no_panel(cluster: StandIn) -> None:
    cluster.close()
    bundle = cluster._repr_mimebundle_()
    assert bundle["text/plain"] == "Cluster: closed"
    assert "Cluster (closed)" in bundle["text/html"]
    assert "what happened" in bundle["text/html"]
    with pytest.raises(ClusterClosedError):
        cluster.panel()


def test_a_panel_that_ended_before_its_cluster_is_followed_by_a_new_one(cluster: StandIn) -> None:
    first = cluster.panel()
    assert cluster.panel() is first
    first.close()
    second = cluster.panel()
    assert second is not first
    assert not second.stopped
    cluster.close()
    second.close()


def test_in_a_kernel_the_panel_comes_with_both_forms_and_stays_behind_when_the_cluster_ends(cluster: StandIn) -> None:
    bundle = cluster._repr_mimebundle_()
    assert set(bundle) >= {"text/plain", "text/html", WIDGET}
    panel = cluster.panel()
    assert bundle[WIDGET]["model_id"] == panel.model_id
    cluster.close()
    assert panel.stopped
    assert WIDGET not in cluster._repr_mimebundle_()
    panel.close()
