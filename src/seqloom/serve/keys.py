"""API keys: a file has the SHA-256 of each, never a key itself.

A line of the file is what `printf %s "$KEY" | sha256sum` prints, with a name in place of the dash: 64 hexadecimal
digits, spaces, a name. A key is drawn at random, 256 bits, so a plain hash cannot be turned back by guessing. Every
comparison looks at every hash in full, so that the time of an answer says nothing.
"""

import hashlib
import hmac
import re
import stat
from pathlib import Path

from seqloom.errors import ConfigError

_LINE = re.compile(r"([0-9a-fA-F]{64})\s+\*?(\S+)")


class Keys:
    """The keys of a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: list[tuple[str, bytes]] = []
        self.reload()

    def reload(self) -> None:
        """Read the file again; if it is faulty, the keys stay as they were."""
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
            open_to_all = bool(self.path.stat().st_mode & stat.S_IWOTH)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"{self.path}: the keys cannot be read: {getattr(error, 'strerror', None) or error}"
            ) from None
        if open_to_all:
            raise ConfigError(
                f"{self.path}: anyone on this machine may write it, and so add a key; chmod o-w {self.path}"
            )
        known: list[tuple[str, bytes]] = []
        for number, line in enumerate(lines, start=1):
            if not line.strip() or line.startswith("#"):
                continue
            found = _LINE.fullmatch(line.strip())
            if found is None:
                raise ConfigError(
                    f"{self.path}:{number}: expected the SHA-256 of a key and a name, as "
                    '`printf %s "$KEY" | sha256sum` prints them; a key itself does not belong here'
                )
            known.append((found[2], bytes.fromhex(found[1])))
        if not known:
            raise ConfigError(f"{self.path}: has no key in it")
        self._known = known

    def find(self, given: str) -> str | None:
        """The name of a key; None if it is not known."""
        digest, name = hashlib.sha256(given.encode("utf-8", "surrogateescape")).digest(), None
        for one, known in self._known:
            if hmac.compare_digest(digest, known):
                name = one
        return name
