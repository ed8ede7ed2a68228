"""`make images`: builds the images that need no GPU, starts each, and measures it.

    python -m deploy.image [--only base,cpu] [--base debian] [--out build/images]

Built and run by docker where its daemon answers, else by podman. The Python below is the official
image, pulled where a registry is in reach; elsewhere one with Debian's own Python is made with
mmdebstrap, and is named so in what is printed. Layers that have not changed come from the cache.

Each image is started as its own user, without capabilities, on a root file system that nobody can
write to, and is asked by Triton's own client. In the folder of `--out` lie its list of layers, its
bill of materials (CycloneDX), the logs, and the table that is printed at the end.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from deploy.image.images import (
    ROOT,
    VARIANTS,
    ImageError,
    base,
    build,
    find_tool,
    measured,
    say,
    table,
    tag,
)
from deploy.image.trial import tried


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="make images", allow_abbrev=False)
    names = [variant.name for variant in VARIANTS]
    parser.add_argument("--only", default="base,cpu", help=f"of {', '.join(names)}: base,cpu")
    parser.add_argument("--base", default="", help="an image with Python, or 'debian' to make one")
    parser.add_argument("--interpreted", action="store_true", help="compile nothing to C: minutes")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "images")
    chosen = parser.parse_args(arguments)
    chosen.out = chosen.out.resolve()
    chosen.out.mkdir(parents=True, exist_ok=True)
    wanted = [variant for variant in VARIANTS if variant.name in chosen.only.split(",")]
    if not wanted:
        parser.error(f"--only takes names out of {', '.join(names)}")
    try:
        tool = find_tool()
        on = base(tool, chosen.base)
        rows = []
        for variant in wanted:
            log = chosen.out / f"{variant.name}.build.log"
            say(f"building {tag(variant)}, with ENGINE={variant.engine or '(none)'}")
            seconds = build(tool, variant, on, log, not chosen.interpreted)
            rows.append(measured(tool, variant, on, chosen.out, seconds, tried))
    except ImageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    report = table(rows, on, tool.name)
    (chosen.out / "report.md").write_text(report)
    print(report)
    return 1 if any(row.failures for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
