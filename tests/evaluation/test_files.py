from pathlib import Path

import pytest

from datasets.files import written_whole
from evaluation.report import write_text


def test_a_write_that_fails_leaves_the_former_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "new" / "report.md"
    write_text(path, "first")
    with pytest.raises(OSError, match="full"), written_whole(path) as part:
        part.write_text("sec")
        raise OSError(28, "full")
    assert path.read_text() == "first"
    assert [p.name for p in path.parent.iterdir()] == ["report.md"]
