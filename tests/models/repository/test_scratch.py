"""Folders of files that came with load requests."""

from __future__ import annotations

from penstock.models.repository.override import ScratchFolder


async def test_a_scratch_folder_goes_with_its_last_holder() -> None:
    folder = ScratchFolder()
    folder.retain()
    folder.retain()
    await folder.release()
    assert folder.path.is_dir()
    await folder.release()
    assert not folder.path.exists()
