"""Manifests as another machine, or another version, would have written them."""

import hashlib
import json
from pathlib import Path
from typing import Any


def rewrite_manifest(folder: Path, **changes: Any) -> None:
    """Change what a manifest says, and the hash of itself with it; None takes a key away."""
    path = folder / "manifest.json"
    manifest = {key: value for key, value in json.loads(path.read_bytes()).items() if key != "sha256"} | changes
    manifest = {key: value for key, value in manifest.items() if value is not None}
    path.write_bytes(_write({**manifest, "sha256": hashlib.sha256(_write(manifest)).hexdigest()}))


def _write(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True) + "\n").encode()
