"""`helm` by Helm's own library: the commands that our tests use, with their arguments.

`template` and `lint` need no cluster; the others print what became of the release, as JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import helm_python as helm


def _template(chart: Path, name: str, namespace: str, values: dict[str, Any]) -> int:
    """Print the manifests, each behind the name of its template."""
    with helm.Chart.load(chart) as loaded:
        loaded.validate_schema(loaded.merge_values(values))
        manifests = loaded.render(values, name=name, namespace=namespace)
    for source, text in sorted(manifests.items()):
        if text.strip() and not source.endswith("NOTES.txt"):
            print(f"---\n# Source: {source}\n{text.strip().removeprefix('---').strip()}")
    return 0


def _lint(chart: Path, values: dict[str, Any]) -> int:
    report = helm.lint(chart, values, strict=True)
    for message in report["messages"]:
        print(f"[{message['severity']}] {message['path']}: {message['error']}")
    print(*report["errors"], sep="\n")
    return 1 if report["errors"] else 0


_CHANGES = ("install", "upgrade", "rollback", "uninstall", "test")
_TIMEOUT = 120  # seconds, of each


def _change(given: argparse.Namespace, values: dict[str, Any]) -> int:
    """Change a release of a cluster, or run its tests."""
    done: Any
    with helm.Config(kubeconfig_path=given.kubeconfig, namespace=given.namespace) as cluster:
        match given.command:
            case "install":
                done = cluster.install(given.chart, given.name, values, namespace=given.namespace)
            case "upgrade":
                done = cluster.upgrade(given.chart, given.name, values, namespace=given.namespace)
            case "rollback":
                done = cluster.rollback(given.name, version=given.revision, timeout=_TIMEOUT)
            case "uninstall":
                done = cluster.uninstall(given.name, timeout=_TIMEOUT)
            case _:
                done = cluster.test(given.name, timeout=_TIMEOUT)
    json.dump(done, sys.stdout)
    return 0


def main(arguments: Sequence[str]) -> int:
    """Run a command; returns its exit status."""
    parser = argparse.ArgumentParser("helm")
    commands = parser.add_subparsers(dest="command", required=True)
    template, lint = (commands.add_parser(name) for name in ("template", "lint"))
    changes = {name: commands.add_parser(name) for name in _CHANGES}
    template.add_argument("name")
    template.add_argument("--namespace", default="default")
    lint.add_argument("--strict", action="store_true", required=True)
    for command in changes.values():
        command.add_argument("name")
        command.add_argument("--namespace", default="default")
        command.add_argument("--kubeconfig", type=Path, required=True)
    changes["rollback"].add_argument("revision", type=int)
    for command in (template, lint, changes["install"], changes["upgrade"]):
        command.add_argument("chart", type=Path)
        command.add_argument("--values", type=Path)
    given = parser.parse_args(arguments)
    try:
        file = getattr(given, "values", None)
        values = helm.values_from_yaml(file.read_text()) if file else {}
        if given.command in _CHANGES:
            return _change(given, values)
        if given.command == "lint":
            return _lint(given.chart, values)
        return _template(given.chart, given.name, given.namespace, values)
    except helm.HelmError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
