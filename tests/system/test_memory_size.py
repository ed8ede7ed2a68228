"""The memory that control groups grant."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from penstock.system.body_room import memory_size

MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def size(root: Path, own: str, limits: Mapping[str, str]) -> int:
    """What is found where these files of limits say so much."""
    for name, limit in limits.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(limit)
    (root / "own").write_text(own)
    return memory_size(root, root / "own")


def test_limit_of_a_container_counts(tmp_path: Path) -> None:
    assert size(tmp_path, "0::/\n", {"memory.max": "1048576\n"}) == 1 << 20


def test_least_of_the_limits_around_the_process_counts(tmp_path: Path) -> None:
    limits = {"a/memory.max": "3000000", "a/b/memory.max": "max", "a/c/memory.max": "5"}
    assert size(tmp_path, "0::/a/b\n", limits) == 3_000_000


def test_older_groups_count_too(tmp_path: Path) -> None:
    own = "3:cpu,cpuacct:/x\n2:memory:/x\n"
    limits = {"memory/x/memory.limit_in_bytes": "9000\n", "memory.max": "5"}
    assert size(tmp_path, own, limits) == 9000


def test_no_limit_is_the_memory_of_the_machine(tmp_path: Path) -> None:
    assert size(tmp_path, "0::/\n", {"memory.max": "max\n"}) == MACHINE
    assert memory_size(tmp_path, tmp_path / "missing") == MACHINE
