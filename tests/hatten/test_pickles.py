"""The restricted unpickler: reads what the reference release needs, rejects all else without running it."""

from __future__ import annotations

import builtins
import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from citerec.base.errors import InputError
from citerec.hatten.published.pickles import load_array, load_word_list
from citerec.tests.hatten.made import Evil

PROTOCOLS = range(6)


def written(folder: Path, data: bytes) -> Path:
    path = folder / "data.pkl"
    path.write_bytes(data)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pickles")


@given(words=st.lists(st.text(max_size=6), max_size=20), protocol=st.sampled_from(PROTOCOLS))
def test_a_list_of_words_survives(folder: Path, words: list[str], protocol: int) -> None:
    assert load_word_list(written(folder, pickle.dumps(words, protocol))) == words


@given(
    array=npst.arrays(
        st.sampled_from(["<f4", ">f4", "<f8", ">f8", "<f2", "<i4", "|u1"]),
        npst.array_shapes(max_dims=3, max_side=5),
    ),
    protocol=st.sampled_from(PROTOCOLS),
    layout=st.sampled_from(["C", "F", "strided"]),
    numpy_1=st.booleans(),
)
def test_an_array_survives(
    folder: Path, array: np.ndarray[Any, Any], protocol: int, layout: str, numpy_1: bool
) -> None:
    order: Literal["C", "F"] = "F" if layout == "F" else "C"
    given_array = array[::-1] if layout == "strided" else np.asarray(array, order=order)
    data = pickle.dumps(given_array, protocol)
    if numpy_1 and protocol < 4:  # later protocols store the lengths of names
        data = data.replace(b"numpy._core.", b"numpy.core.")
    loaded = load_array(written(folder, data))
    np.testing.assert_array_equal(loaded, given_array)
    assert loaded.dtype == pickle.loads(data).dtype


def hostile() -> dict[str, object]:
    return {
        "os.system": Evil(os.system, "touch hacked"),
        "builtins.exec": Evil(exec, "open('hacked', 'w')"),
        "builtins.eval": Evil(eval, "open('hacked', 'w')"),
        "getattr": Evil(getattr, "text", "upper"),
        "import": Evil(builtins.__import__, "antigravity"),
        "inside a list": ["word", Evil(os.system, "touch hacked")],
        "inside a dict": {"word": Evil(os.system, "touch hacked")},
        "np.load": Evil(np.load, "data.npy"),
        "np.frombuffer": Evil(np.frombuffer, b"\0" * 8),
        "object array": np.array([Evil(os.system, "touch hacked"), "word"], dtype=object),
        "object array of words": np.array(["word", "other"], dtype=object),
        "array of text": np.array(["word", "other"]),
        "structured array": np.zeros(3, dtype=[("x", "f4")]),
        "dates": np.zeros(3, dtype="M8[s]"),
        "complex": np.zeros(3, dtype="c8"),
        "scalar": np.float32(1),
        "an array in a list": [np.zeros(3)],
        "a set": {"word"},
        "a class": Path,
        "a file": Path("word"),
        "number": 3,
        "bytes": b"word",
        "none": None,
        "a tuple of words": ("word",),
        "words and a number": ["word", 3],
    }


@pytest.mark.parametrize("name", hostile())
def test_anything_else_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    for protocol in PROTOCOLS:
        path = written(tmp_path, pickle.dumps(hostile()[name], protocol))
        for load in (load_word_list, load_array):
            with pytest.raises(InputError, match=r"data\.pkl"):
                load(path)
    assert not Path("hacked").exists()


def test_kinds_are_not_mixed_up_and_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="list of words"):
        load_word_list(written(tmp_path, pickle.dumps(np.zeros(2))))
    with pytest.raises(InputError, match="array of numbers"):
        load_array(written(tmp_path, pickle.dumps(["word"])))
    with pytest.raises(InputError, match=r"nowhere\.pkl: .*No such file"):
        load_word_list(tmp_path / "nowhere.pkl")


# Hand-written pickles: (g)lobal, (M)ark, (T)uple, (R)educe, (B)uild and so on.
RECONSTRUCT = b"cnumpy.core.multiarray\n_reconstruct\n"
NEW_ARRAY = RECONSTRUCT + b"(cnumpy\nndarray\n(I0\ntVb\ntR"
FLOAT = b"cnumpy\ndtype\n(Vf4\nI0\nI1\ntR(I3\nV<\nNNNI-1\nI-1\nI0\ntb"
EIGHT_BYTES = b"c_codecs\nencode\n(Vabcdefgh\nVlatin1\ntR"


def test_the_hand_written_array_is_read(tmp_path: Path) -> None:
    data = NEW_ARRAY + b"(I1\n(I2\nt" + FLOAT + b"I0\n" + EIGHT_BYTES + b"tb."
    loaded = load_array(written(tmp_path, data))
    np.testing.assert_array_equal(loaded, np.frombuffer(b"abcdefgh", "<f4"))


CRAFTED = {
    "too few bytes": NEW_ARRAY + b"(I1\n(I3\nt" + FLOAT + b"I0\n" + EIGHT_BYTES + b"tb.",
    "negative size": NEW_ARRAY + b"(I1\n(I-2\nt" + FLOAT + b"I0\n" + EIGHT_BYTES + b"tb.",
    "list for bytes": NEW_ARRAY + b"(I1\n(I2\nt" + FLOAT + b"I0\n(lVa\naVb\natb.",
    "attributes of an array": NEW_ARRAY + b"(dVvalue\nVx\nsb.",
    "attributes of a function": RECONSTRUCT + b"(dV_call\nVx\nsb.",
    "slots of a function": RECONSTRUCT + b"(N(dV_call\nVx\nstb.",
    "object type": b"cnumpy\ndtype\n(VO\nI0\nI1\ntR.",
    "two types in one": b"cnumpy\ndtype\n(Vf4,O\nI0\nI1\ntR.",
    "a bare type": b"cnumpy\ndtype\n.",
    "another codec": b"c_codecs\nencode\n(Vab\nVrot13\ntR.",
    "dotted name": b"\x80\x04\x8c\x05numpy\x8c\x10ndarray.__init__\x93.",
    "extension registry": b"\x80\x02\x82\x01.",
    "buffer from outside": b"\x80\x05\x97.",
    "persistent id": b"Pname\n.",
    "empty": b"",
    "nothing on the stack": b".",
    "text": b"not a pickle at all",
    "cut off": pickle.dumps(np.zeros(9))[:-20],
}


@pytest.mark.parametrize("name", CRAFTED)
def test_broken_and_crafted_pickles_are_clear_errors(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"data\.pkl"):
        load_array(written(tmp_path, CRAFTED[name]))


COPIES = (
    b"c_codecs\nencode\nq\x01(V" + b"x" * 10**6 + b"\nq\x00Vlatin1\ntR" + b"h\x01(h\x00Vlatin1\ntR" * 10**4
)
NOT_THERE = struct.pack("<Q", 1 << 62) + b"word."


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"]r\xff\xff\xff\x7f.", id="a place in the memo far away"),
        pytest.param(b"]p2147483647\n.", id="such a place in text"),
        pytest.param(COPIES + b".", id="many copies of a text"),
        pytest.param(b"\x80\x04\x8d" + NOT_THERE, id="a long text that is not there"),
        pytest.param(b"\x80\x05\x96" + NOT_THERE, id="many bytes that are not there"),
    ],
)
def test_a_small_file_does_not_fill_the_memory(tmp_path: Path, data: bytes) -> None:
    """A pickle of a few bytes can request gigabytes; load it in a process limited to 512 MB more memory."""
    code = f"""
import resource
from citerec.base.errors import InputError
from citerec.hatten.published.pickles import load_array
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 29),) * 2)
try:
    load_array({str(written(tmp_path, data))!r})
except InputError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "refused" in done.stdout, done.stdout + done.stderr
