"""Everything that is fuzzed, by name."""

from __future__ import annotations

from fuzz import control_doors, file_doors, request_doors, transport_doors

DOORS = {
    **control_doors.DOORS,
    **request_doors.DOORS,
    **file_doors.DOORS,
    **transport_doors.DOORS,
}
