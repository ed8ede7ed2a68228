"""`TraceFiles`: which file a finished trace is written to, and when (contract T-08)."""

from __future__ import annotations

from contextlib import suppress

from penstock.settings import TraceSettings
from penstock.tracing.json_array import JsonArrayFile


class _Gathered:
    """Traces under one set of settings that go to a numbered file together."""

    def __init__(self) -> None:
        self.traces = 0
        self.size = 0
        self.texts: list[str] = []
        self.file: JsonArrayFile | None = None


class TraceFiles:
    """The trace file, and the numbered ones beside it. Used by one thread.

    With a log frequency N every N traces make a numbered file, `<file>.<index>`, the remaining ones
    too; so do those of a count of traces to make, once it is used up. Everything else goes to the
    file itself, at each `flush`. All settings share the file and the numbers, as in Triton. Texts
    are those of `trace_json`; `owner` stands for the settings that a trace was made under.
    `most_gathered` bytes of them wait for a numbered file to be full, or for `flush`.
    """

    def __init__(self, path: str, most_gathered: int = 8 << 20) -> None:
        self._path = path
        self._most_gathered = most_gathered
        self._index = 0
        self._file: JsonArrayFile | None = None
        self._texts: list[str] = []
        self._size = 0
        self._gathered: dict[object, _Gathered] = {}

    def add(self, owner: object, settings: TraceSettings, text: str) -> None:
        """Add a trace; raises `OSError`, and then traces are lost."""
        if not settings.log_frequency and settings.count < 0:
            self._append(text)
            return
        gathered = self._gathered.setdefault(owner, _Gathered())
        gathered.traces += 1
        if text:
            gathered.texts.append(text)
            gathered.size += len(text)
        if gathered.traces == settings.log_frequency:
            self.use_up(owner)
        elif gathered.size > self._most_gathered:
            self._begin_numbered(gathered)

    def use_up(self, owner: object) -> None:
        """Write what was gathered to a numbered file; raises `OSError`, and then it is lost."""
        gathered = self._gathered.pop(owner, None)
        if gathered is None:
            return
        try:
            self._begin_numbered(gathered)
        finally:
            if gathered.file is not None:
                gathered.file.close()

    def finish(self, owner: object, settings: TraceSettings) -> None:
        """Write what was gathered, since there is no more of it; raises `OSError`."""
        gathered = self._gathered.get(owner)
        if gathered is None:
            return
        if settings.log_frequency or gathered.file is not None:
            self.use_up(owner)
            return
        del self._gathered[owner]
        self._append(",".join(gathered.texts))

    def flush(self) -> None:
        """Write what goes to the file itself; raises `OSError`, and then it is lost."""
        texts, self._texts, self._size = self._texts, [], 0
        if not texts:
            return
        if self._file is not None and not self._file.in_place:
            self.close()
        if self._file is None:
            self._file = JsonArrayFile(self._path)
        self._file.append(",".join(texts))

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None

    def _append(self, text: str) -> None:
        if text:
            self._texts.append(text)
            self._size += len(text)
        if self._size > self._most_gathered:
            self.flush()

    def _begin_numbered(self, gathered: _Gathered) -> None:
        """Write what has been gathered to its numbered file."""
        texts, gathered.texts, gathered.size = gathered.texts, [], 0
        if not texts:
            return
        joined = ",".join(texts)
        if gathered.file is None:
            file = JsonArrayFile(f"{self._path}.{self._index}")
            file.append(joined)
            gathered.file = file
            self._index += 1
        else:
            gathered.file.append(joined)
