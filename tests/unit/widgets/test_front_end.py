"""The page's pure functions, tested by Node's own runner; and that they become one module for the browser."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from connectx_widgets.widget import ClusterPanel

from connectx.history.render.shapes import LOOK
from tests.support.systems import NODE


def test_the_pages_pure_functions_keep_their_rules() -> None:
    node = NODE.require()
    file = Path(__file__).with_name("geometry.test.mjs")
    env = {**os.environ, "CONNECTX_LOOK": json.dumps(LOOK)}
    ran = subprocess.run([node, "--test", str(file)], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stdout[-4000:]


def test_the_front_end_is_one_module_without_imports(tmp_path: Path) -> None:
    node = NODE.require()
    module = tmp_path / "panel.mjs"
    module.write_text(str(ClusterPanel._esm))
    text = module.read_text()
    assert "\nimport " not in text
    assert text.count("export default") == 1
    ran = subprocess.run([node, "--check", str(module)], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr


def test_the_front_end_is_small() -> None:
    assert len(str(ClusterPanel._esm)) + len(str(ClusterPanel._css)) < 90_000
