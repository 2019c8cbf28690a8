"""A model behind LitServe, for bench/serve_peers.py; LitServe finds the class of another process in a module."""

from pathlib import Path
from typing import Any

import litserve
from serve_peers import make_verb


class Api(litserve.LitAPI):  # type: ignore[misc]
    """Up to 64 requests within 5 ms, together."""

    def __init__(self, task: str, folder: Path) -> None:
        super().__init__(max_batch_size=64, batch_timeout=0.005)
        self.task, self.folder = task, folder

    def setup(self, device: str) -> None:
        """Load the model."""
        self.verb = make_verb(self.folder, self.task)

    def decode_request(self, request: dict[str, str]) -> str:
        """The text."""
        return request["text"]

    def predict(self, texts: list[str]) -> list[Any]:
        """The results of a batch."""
        return self.verb(texts)

    def encode_response(self, found: Any) -> Any:
        """An answer."""
        return {"found": found}
