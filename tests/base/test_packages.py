"""Compiled functions where nothing can be written."""

import pytest
from numba.core import caching

from citerec.base.packages import compiled


@pytest.mark.parametrize("writable", [True, False])
def test_functions_are_compiled_without_a_cache_if_there_is_no_place_for_it(
    writable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not writable:  # neither the installation nor the user's folder
        monkeypatch.setattr(caching.CompileResultCacheImpl, "_locator_classes", [])

    @compiled(nogil=True)
    def doubled(value: int) -> int:
        return 2 * value

    assert doubled(21) == 42 and hasattr(doubled, "py_func")
