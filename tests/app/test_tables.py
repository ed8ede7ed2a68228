"""Tables look as they do in the log of `tritonserver`."""

import re

from harness import recorded
from penstock.app.report import table


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    drawn = table(["Model", "Version", "Status"], [["m", "1", "READY"], ["encoder", "12", "READY"]])
    assert drawn.splitlines() == [
        "+---------+---------+--------+",
        "| Model   | Version | Status |",
        "+---------+---------+--------+",
        "| m       | 1       | READY  |",
        "| encoder | 12      | READY  |",
        "+---------+---------+--------+",
    ]


def test_an_empty_table_has_its_head() -> None:
    assert table(["Repository Agent", "Path"], []).splitlines() == [
        "+------------------+------+",
        "| Repository Agent | Path |",
        "+------------------+------+",
        "+------------------+------+",
    ]


def test_a_cell_may_have_several_lines() -> None:
    assert table(["Model", "Status"], [["m", "UNAVAILABLE:\nno file"]]).splitlines()[3:5] == [
        "| m     | UNAVAILABLE: |",
        "|       | no file      |",
    ]


@recorded.needs_answers
def test_recorded_tables_are_drawn_the_same() -> None:
    # Paths were replaced after the recording, so only the tables without one still fit.
    tables = re.findall(r"^\+-.*(?:\n[+|].*)*", recorded.log("control_server.log"), re.MULTILINE)
    complete = [text for text in tables if "$" not in text]
    cells = [
        [
            [cell.strip() for cell in line.split("|")[1:-1]]
            for line in text.splitlines()
            if "|" in line
        ]
        for text in complete
    ]
    assert complete
    assert [table(head, rows) for head, *rows in cells] == complete
