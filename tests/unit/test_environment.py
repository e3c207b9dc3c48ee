"""pip users and conda users get the same environment."""

from __future__ import annotations

import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PYPI_NAMES = {"python-confluent-kafka": "confluent-kafka", "prometheus_client": "prometheus-client"}


def ranges(requirements: list[str]) -> dict[str, str]:
    """Version range by PyPI name; conda writes a space between the two."""
    parsed = [Requirement(text.replace(" ", "")) for text in requirements]
    return {PYPI_NAMES.get(one.name, one.name): str(one.specifier) for one in parsed}


def test_environment_yml_and_pyproject_name_the_same_packages_and_versions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [one for group in project["optional-dependencies"].values() for one in group]
    extras = [one for one in named if Requirement(one).name != project["name"]]
    wanted = ranges(project["dependencies"] + extras) | {"python": project["requires-python"]}
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    by_conda = [entry for entry in conda if isinstance(entry, str) and entry != "pip"]
    (by_pip,) = [entry["pip"] for entry in conda if isinstance(entry, dict)]
    assert "--editable ." in by_pip
    found = ranges(by_conda + [entry for entry in by_pip if entry != "--editable ."])
    assert found == wanted


def test_the_lock_pins_every_requirement_to_a_version_that_fits_with_hashes_and_names_no_host() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [*project["dependencies"], *(one for group in project["optional-dependencies"].values() for one in group)]
    text = (ROOT / "requirements.lock").read_text().replace("\\\n", "")
    locked = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert "://" not in text
    assert all("==" in line and "--hash=sha256:" in line for line in locked)
    versions: dict[str, list[str]] = {}
    for line in locked:
        pinned = Requirement(line.partition("--hash")[0].strip())
        versions.setdefault(pinned.name, []).append(str(pinned.specifier).removeprefix("=="))
    for one in map(Requirement, named):
        if one.name != project["name"]:
            found = versions[canonicalize_name(one.name)]
            assert all(version in one.specifier for version in found), f"make lock: {one} and {found}"


def test_conda_users_get_packages_from_conda_forge_only() -> None:
    assert yaml.safe_load((ROOT / "environment.yml").read_text())["channels"] == ["conda-forge"]
