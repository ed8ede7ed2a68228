"""Tables look as they do in the log of `tritonserver`."""

import re

from hypothesis import given
from hypothesis import strategies as st

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


def test_the_widest_columns_are_folded_where_a_width_is_given() -> None:
    rows = [["python", "/opt/penstock/python/backend.py", '{"cmdline":{"a":"b","c":"d"}}']]
    assert table(["Backend", "Path", "Config"], rows, 50).splitlines()[3:5] == [
        """| python  | /opt/penstock/ | {"cmdline":{"a":" |""",
        """|         | python/        | b","c":"d"}}      |""",
    ]


def test_a_table_that_fits_is_not_folded() -> None:
    rows = [["m", "READY"]]
    assert table(["Model", "Status"], rows, 18) == table(["Model", "Status"], rows)


@given(st.lists(st.lists(st.text("ab ,/", max_size=90), min_size=3, max_size=3)))
def test_a_folded_table_fits_and_loses_no_letter(rows: list[list[str]]) -> None:
    folded = table(["One", "Two", "Three"], rows, 60)
    whole = table(["One", "Two", "Three"], rows)
    assert max(map(len, folded.splitlines())) <= 60
    assert folded.count("a") == whole.count("a")


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
