from pathlib import Path

import pytest

from evaluation.files import replacing, write_text


def test_a_write_that_fails_leaves_the_former_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "new" / "report.md"
    write_text(path, "first")
    with pytest.raises(OSError, match="full"), replacing(path) as part:
        part.write_text("sec")
        raise OSError("full")
    assert path.read_text() == "first"
    assert [p.name for p in path.parent.iterdir()] == ["report.md"]


def test_the_file_appears_only_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    with replacing(path) as part:
        part.write_text("half")
        assert not path.exists() and part.suffix == ".png" and part.parent == tmp_path
    assert path.read_text() == "half" and not part.exists()
