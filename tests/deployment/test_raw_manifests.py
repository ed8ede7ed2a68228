"""The manifests beside the chart are the chart's."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from deployment.chart import Manifest, needs_helm
from deployment.raw_manifests import FOLDER, KUBECTL, OVERLAYS, built, from_chart, written

needs_kubectl = pytest.mark.needs("kubectl", "" if KUBECTL else "there is no kubectl")


def _by_name(manifests: list[Manifest]) -> dict[tuple[str, str], Any]:
    return {(each["kind"], each["metadata"]["name"]): _without_order(each) for each in manifests}


def _without_order(value: Any) -> Any:
    """A value whose lists of named things have no order."""
    if isinstance(value, dict):
        return {key: _without_order(each) for key, each in value.items()}
    if isinstance(value, list):
        items = [_without_order(each) for each in value]
        named = all(isinstance(each, dict) and "name" in each for each in items)
        return sorted(items, key=lambda each: str(each["name"])) if named else items
    return value


@needs_helm
def test_base_is_as_the_chart_renders_it() -> None:
    for manifest in from_chart({}):
        file = FOLDER / "base" / f"{manifest['kind'].lower()}.yaml"
        assert file.read_text() == written(manifest), "raw_manifests.py writes it anew"


@needs_helm
@needs_kubectl
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_overlay_comes_to_the_same_as_values_of_the_chart(overlay: str) -> None:
    assert _by_name(built(overlay)) == _by_name(from_chart(OVERLAYS[overlay]))


def test_folders_name_all_their_files() -> None:
    for folder in (FOLDER / "base", *(FOLDER / overlay for overlay in OVERLAYS)):
        named = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
        files = {each.name for each in folder.glob("*.yaml")} - {"kustomization.yaml"}
        assert {each for each in named if each != "../base"} == files
