"""How the panel looks and is used without a mouse, on a plain page: themes, colour vision, widths, names, focus."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tests.support.histories import crowded
from tests.support.stage import Show, Stage, shoot

VISION = ("deuteranopia", "protanopia", "tritanopia", "achromatopsia")
# Rules for whole pages, which a widget is not.
NOT_OURS = ("page-has-heading-one", "region", "landmark-one-main")
TRACE = "ProducerFencedError: another producer of flights-in-0 has a newer epoch\n  at commit (source_task.py)"
CONTRASTS = """() => {
  const parse = (text) => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const light = (rgb) => {
    const [r, g, b] = rgb.map((c) => c / 255).map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ink = (node, property) => {
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    canvas.fillStyle = getComputedStyle(document.querySelector(".cxp")).backgroundColor;
    canvas.fillRect(0, 0, 1, 1);
    canvas.fillStyle = getComputedStyle(node)[property];
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const ground = ink(document.querySelector(".cxp"), "backgroundColor");
  return [...document.querySelectorAll(".cxp-svg text:not([fill]), .cxp-svg .m, .cxp-legend")].map((node) => ({
    what: node.textContent || node.getAttribute("class"),
    ratio: ratio(ink(node, node.tagName === "text" ? "fill" : node.tagName === "path" ? "stroke" : "color"), ground),
  }));
}"""


def open_everything(stage: Stage, connector: str = "flights-in") -> None:
    """Details with a trace, the error strip, and the form with mistakes."""
    page = stage.page
    stage.cluster.task_state(f"{connector}-0", "FAILED", TRACE)
    page.click(f'button[data-open="{connector}"]')
    stage.until(".cxp-details pre")
    page.locator('button[data-verb="stop"][data-worker]').first.press("Enter")
    stage.until('.cxp-error:has-text("does not answer")')
    page.click('button[data-form="new"]')
    stage.wait(lambda: page.locator('[data-field="connector.class"] option').count() > 3)
    page.select_option('[data-field="connector.class"]', label="FileSource (source)")
    stage.until(".cxp-field .bad")


def see_as(page: Page, vision: str) -> None:
    page.context.new_cdp_session(page).send("Emulation.setEmulatedVisionDeficiency", {"type": vision})


def overflowing(page: Page) -> list[str]:
    """What reaches out of the panel on the right."""
    return list(
        page.evaluate(
            """() => { const edge = document.querySelector(".cxp").getBoundingClientRect().right + 1;
            return [...document.querySelectorAll(".cxp *")].filter((node) => node.getBoundingClientRect().right > edge)
              .filter((node) => !node.closest(".cxp-details, .cxp-form, .cxp-said, defs"))
              .map((node) => node.outerHTML.slice(0, 100)); }"""
        )
    )


@pytest.mark.parametrize("theme", ["light", "dark", ""])
def test_names_roles_and_contrasts_hold_in_every_theme(show: Show, theme: str) -> None:
    scheme = {"color_scheme": "dark"} if not theme else {}
    stage = show(theme=theme, **scheme)
    shoot(stage.page, f"panel-{theme or 'no-jupyter-dark'}")
    assert [found for found in stage.page.evaluate(CONTRASTS) if found["ratio"] < 4.5] == []
    open_everything(stage)
    shoot(stage.page, f"panel-{theme or 'no-jupyter-dark'}-all-open")
    found = Axe().run(stage.page).response["violations"]
    said = [(rule["id"], node["html"][:120]) for rule in found if rule["id"] not in NOT_OURS for node in rule["nodes"]]
    assert said == []


def test_states_are_told_by_form_so_that_they_are_seen_without_hues(show: Show) -> None:
    stage = show(crowded())
    for vision in VISION:
        see_as(stage.page, vision)
        shoot(stage.page, f"panel-{vision}")
    forms = stage.page.evaluate(
        """() => { const form = (part) => part.tagName + (part.getAttribute("fill") ?? "").slice(0, 3)
            + ["stroke", "stroke-dasharray", "fill-opacity"].map((name) => part.hasAttribute(name));
          return Object.fromEntries([...document.querySelectorAll(".cxp-svg [data-task][data-state]")].map((bar) =>
            [bar.dataset.state, [...bar.children].map(form).join()])); }"""
    )
    assert sorted(forms) == ["failed", "paused", "running", "starting", "zombie"]
    assert len(set(forms.values())) == 5
    signs = stage.page.locator(".cxp-worker").evaluate_all(
        "nodes => nodes.map(node => [node.dataset.state, node.querySelector('.cxp-sign').textContent])"
    )
    assert len({sign for _, sign in signs}) == len({state for state, _ in signs})


@pytest.mark.parametrize("width", [420, 620, 900, 1300])
def test_nothing_reaches_out_at_any_width_and_at_200_percent(show: Show, width: int) -> None:
    stage = show(crowded(), theme="dark", width=width)
    stage.wait(lambda: overflowing(stage.page) == [])
    shoot(stage.page, f"panel-{width}")
    if width == 1300:
        stage.page.evaluate("() => { document.body.style.zoom = '200%'; }")
        stage.until(".cxp-narrow")
        stage.wait(lambda: overflowing(stage.page) == [])
        shoot(stage.page, "panel-zoomed")
    if width == 420:
        open_everything(stage, "audit")
        shoot(stage.page, f"panel-{width}-all-open")


def test_everything_is_reached_and_used_by_the_keyboard(show: Show) -> None:
    stage = show()
    page = stage.page
    seen: list[str] = []
    while "delete flights-out" not in seen:
        page.keyboard.press("Tab")
        focused = page.evaluate(
            """() => { const node = document.activeElement, look = getComputedStyle(node);
            return { name: node.getAttribute("aria-label") ?? node.innerText, outline: look.outlineStyle,
              opacity: getComputedStyle(node.closest(".cxp-verbs") ?? node).opacity }; }"""
        )
        assert focused["outline"] != "none", focused
        assert focused["opacity"] == "1", focused
        assert len(seen) < 60, seen
        seen.append(focused["name"])
    buttons = page.locator(".cxp button:visible").evaluate_all(
        "nodes => nodes.map(node => node.getAttribute('aria-label') ?? node.innerText)"
    )
    assert [name for name in buttons if name not in seen] == []

    # the timeline by arrows: the sentence is shown, and said to screen readers
    page.focus(".cxp-svg")
    page.keyboard.press("ArrowLeft")
    said = page.locator(".cxp-said").inner_text()
    assert said
    assert page.locator(".cxp-tip").inner_text() == said
    page.keyboard.press("ArrowLeft")
    assert page.locator(".cxp-said").inner_text() != said
    page.keyboard.press("Escape")
    assert page.locator(".cxp-tip").is_hidden()

    # Escape closes what was opened last, and the focus goes back to what opened it
    page.focus('button[data-open="flights-in"]')
    page.keyboard.press("Enter")
    stage.until(".cxp-config")
    page.focus('button[data-form="new"]')
    page.keyboard.press("Enter")
    stage.until(".cxp-form")
    page.keyboard.press("Escape")
    assert page.locator(".cxp-form").is_hidden()
    assert page.evaluate("() => document.activeElement.innerText") == "new connector"
    page.keyboard.press("Escape")
    assert page.locator(".cxp-details").is_hidden()
    assert page.evaluate("() => document.activeElement.dataset.open") == "flights-in"

    # a fault by Enter
    page.focus('button[data-verb="kill"][data-worker="worker-3"]')
    page.keyboard.press("Enter")
    stage.until('.cxp-svg [data-mark="fault"][data-worker="worker-3"]')
    assert "cluster.kill" in page.locator(".cxp-call").inner_text()


def test_a_connector_is_deleted_by_two_presses_and_by_neither_a_double_click_nor_a_key_held_down(show: Show) -> None:
    stage = show()
    page, connector = stage.page, stage.cluster["flights-in"]
    button = 'button[data-verb="delete"][data-connector="flights-in"]'
    page.dblclick(button)
    stage.until(f"{button}.sure")
    page.focus(button)
    page.keyboard.down("Enter")  # it is sure by now
    stage.until('.cxp-call:has-text("done in")')
    page.keyboard.down("Enter")
    page.keyboard.down("Enter")
    page.keyboard.up("Enter")
    assert page.locator(f"{button}.sure").count() == 0
    assert connector.deleted == 1

    # the same by the keyboard alone: the button that asks again still has the focus
    page.focus(button)
    page.keyboard.press("Enter")
    stage.until(f"{button}.sure")
    assert page.evaluate("() => document.activeElement.innerText") == "really delete?"
    page.keyboard.press("Enter")
    stage.wait(lambda: connector.deleted == 2)


def test_when_a_button_goes_the_focus_stays_in_its_line(show: Show) -> None:
    stage = show()
    stage.page.focus('button[data-verb="stall"][data-worker="worker-3"]')
    stage.cluster.kill("worker-3")
    stage.until('.cxp-worker[data-worker="worker-3"][data-state="killed"]')
    assert stage.page.evaluate("() => document.activeElement.className") == "cxp-worker"
    assert stage.page.evaluate("() => document.activeElement.dataset.worker") == "worker-3"


def test_a_click_on_a_closed_cluster_is_not_said_to_wait(show: Show) -> None:
    stage = show()
    stage.panel.stop()
    stage.until('.cxp-still:has-text("the cluster is closed")')
    stage.page.click('button[data-verb="pause"][data-connector="flights-in"]')
    stage.until('.cxp-call:has-text("this has no effect")')


def test_who_asks_for_less_motion_gets_one_picture_a_second(show: Show) -> None:
    count = """() => new Promise((done) => { let count = 0; const target = document.querySelector(".cxp-svg");
      new MutationObserver(() => { count += 1; }).observe(target, { childList: true });
      setTimeout(() => done(count), 2500); })"""
    assert show(reduced_motion="reduce").page.evaluate(count) <= 3 < show().page.evaluate(count)
