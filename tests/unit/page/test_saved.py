"""A saved page holds what the page shows beside the model, digit by digit, and asks nobody for anything."""

import base64
import gzip
import json
import re

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from seqloom.page.bundle import framed_page, saved_page, served_page, served_policy, static_files
from seqloom.page.saved import Saved, encode


def decode(kind: str, data: bytes, count: int) -> np.ndarray:
    """As saved.js does it."""
    if kind == "floats":
        return np.frombuffer(data, "<f4").astype(np.float64)
    planes = np.frombuffer(data, np.uint8).reshape(4, count)
    coded = np.ascontiguousarray(planes.T).view("<u4")[:, 0]
    sizes = np.where(coded >> 1 == 0, 0.0, ((coded >> 1) + 0.5) * 1e-6)
    return np.where(coded & 1, -sizes, sizes)


def show(value: float) -> str:
    """Four decimals, half up, as the page shows a weight (toFixed)."""
    whole = int(abs(value) * 10_000 + 0.5)  # exact: a float32 times 10⁴ fits into a float64
    return f"{'-' if value < 0 and whole else ''}{whole / 10_000:.4f}"


WEIGHTS = st.floats(0, 1, width=32) | st.sampled_from([1 / 32, 1 / 64, 3 / 32, 0.12345, 0.00005, 1e-7])


@given(arrays(np.float32, 40, elements=WEIGHTS | WEIGHTS.map(lambda weight: -weight) | st.floats(1, 2000, width=32)))
def test_every_shown_digit_survives(weights: np.ndarray) -> None:
    kind, data = encode(weights)
    assert kind == "decimals"
    again = decode(kind, data, len(weights))
    assert [show(float(value)) for value in again] == [show(float(value)) for value in weights]
    assert np.abs(again - weights).max() <= 1e-6


def test_numbers_that_do_not_fit_are_kept_as_they_are() -> None:
    large = np.array([1e9, -3.5, 0.25], np.float32)
    kind, data = encode(large)
    np.testing.assert_array_equal(decode(kind, data, 3), large)


def test_answers_and_state_are_packed() -> None:
    answers = {"/model": {"name": "<script>alert(1)</script> ü"}}
    saved = Saved(
        answers, {"/trace/x/grid?stack=a": ({"grid": np.arange(6, dtype=np.uint8).reshape(1, 2, 3)}, {"sites": ["s"]})}
    )
    whole = gzip.decompress(base64.b64decode(saved.pack()))
    length = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + length])
    assert header["answers"] == answers
    assert header["tensors"]["/trace/x/grid?stack=a"] == {
        "metadata": {"sites": ["s"]},
        "arrays": {"grid": ["bytes", [1, 2, 3], 0]},
    }
    assert whole[8 + length :] == bytes(range(6))
    assert saved.pack() == saved.pack()


def test_a_saved_page_is_one_file() -> None:
    page = saved_page(Saved({"/model": {"name": "<script>alert(1)</script>"}}))
    assert "alert(1)" not in page  # it is in the packed part
    assert not re.search(r'(src|href)="(?!data:)', page)
    assert "connect-src" not in page  # so that default-src 'none' forbids every connection
    assert "default-src 'none'" in page
    imports = json.loads(re.search(r'<script type="importmap">(.*?)</script>', page, re.S)[1])["imports"]
    assert {address.partition(":")[0] for address in imports.values()} == {"data"}
    assert 'sandbox="allow-scripts allow-downloads"' in framed_page(Saved())


def test_modules_import_what_the_page_maps() -> None:
    imports = json.loads(re.search(r'<script type="importmap">(.*?)</script>', served_page())[1])["imports"]
    names = {
        f"seqloom/{name.removesuffix('.js')}": f"/static/{name}" for name in static_files() if name.endswith(".js")
    }
    assert imports == names
    for name, content in static_files().items():
        if name.endswith(".js"):
            assert set(re.findall(r'(?:from|import) "([^"]+)"', content.decode())) <= set(imports), name


def test_the_page_names_no_other_machine() -> None:
    for name, content in static_files().items():
        found = set(re.findall(r"https?://[^\s\"'`<)]+", content.decode()))
        assert found <= {"http://www.w3.org/2000/svg"}, name  # the name of SVG's elements, never fetched


def test_the_policy_names_the_inline_scripts() -> None:
    scripts = re.findall(r"<script[^>]*>(.+?)</script>", served_page(), re.S)
    assert len(scripts) == 2
    assert served_policy().count("sha256-") == 2
