"""`helm template` and `helm lint` by Helm's own library, with the arguments that our tests use."""

from __future__ import annotations

import argparse
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


def main(arguments: Sequence[str]) -> int:
    """Run a command; returns its exit status."""
    parser = argparse.ArgumentParser("helm")
    commands = parser.add_subparsers(dest="command", required=True)
    template, lint = (commands.add_parser(name) for name in ("template", "lint"))
    template.add_argument("name")
    template.add_argument("--namespace", default="default")
    lint.add_argument("--strict", action="store_true", required=True)
    for command in (template, lint):
        command.add_argument("chart", type=Path)
        command.add_argument("--values", type=Path)
    given = parser.parse_args(arguments)
    try:
        values = helm.values_from_yaml(given.values.read_text()) if given.values else {}
        if given.command == "lint":
            return _lint(given.chart, values)
        return _template(given.chart, given.name, given.namespace, values)
    except helm.HelmError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
