"""Writer of the dashboards' JSON, which is checked in.

python -m deploy.observability.dashboards           write deploy/observability/grafana/dashboards
"""

from __future__ import annotations

from pathlib import Path

from deploy.observability.dashboards.written import FOLDER, written


def main(folder: Path = FOLDER) -> None:
    """Write each dashboard into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in written().items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    main()
