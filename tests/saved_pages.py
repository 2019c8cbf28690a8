"""What a saved page holds, read as the page itself reads it."""

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any


def read_page(path: Path) -> dict[str, Any]:
    """The answers of a saved page, by address."""
    page = path.read_text(encoding="utf-8")
    found = re.search(r'<script type="application/gzip" id="seqloom-data">([^<]*)</script>', page)
    assert found is not None
    whole = gzip.decompress(base64.b64decode(found[1]))
    answers: dict[str, Any] = json.loads(whole[8 : 8 + int.from_bytes(whole[:8], "little")])["answers"]
    return answers
