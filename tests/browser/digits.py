"""Compare a number as a page shows it with the number that Python has: equal to the digits that are shown."""

import re

_NUMBER = re.compile(r"(?P<sign>[-−+]?)(?P<digits>\d[\d,]*(?:\.\d+)?)(?:[eE](?P<power>[-−+]?\d+))?(?P<percent>\s*%)?")
_FLOAT32 = 1e-6
"""The relative error of a number that has been through float32 on its way to the page."""


def read_number(text: str) -> tuple[float, float]:
    """A shown number and half a unit of its last digit; a share in percent counts as a fraction of one."""
    found = _NUMBER.search(text)
    assert found is not None, f"no number in {text!r}"
    digits = found["digits"].replace(",", "")
    decimals = len(digits.partition(".")[2])
    scale = 10.0 ** int((found["power"] or "0").replace("−", "-")) * (0.01 if found["percent"] else 1.0)
    value = float(digits) * (-1.0 if found["sign"] in ("-", "−") else 1.0)
    return value * scale, 0.5 * 10.0**-decimals * scale


def assert_shows(text: str, value: float) -> None:
    """The text is the value, rounded to the digits that it has; `< 0.1%` is anything below that."""
    shown, half = read_number(text)
    if text.strip().startswith("<"):
        assert 0 <= value < shown + _FLOAT32, f"the page shows {text!r}, Python has {value!r}"
        return
    assert abs(shown - value) <= half * 1.001 + _FLOAT32 * max(1.0, abs(value)), (
        f"the page shows {text!r}, Python has {value!r}"
    )
