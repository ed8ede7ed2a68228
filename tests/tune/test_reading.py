"""The command line over a file of Model Analyzer."""

from __future__ import annotations

from pathlib import Path

from penstock.tune.reading import read_plans


def test_a_zero_on_the_command_line_is_a_value(tmp_path: Path) -> None:
    path = tmp_path / "analyzer.yaml"
    path.write_text("model_repository: /models\nprofile_models: m\n")
    (plan,) = read_plans(["-f", str(path), "--warmup", "0"])
    assert "--warmup=0" in plan.perf
