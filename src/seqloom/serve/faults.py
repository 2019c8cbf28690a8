"""What a server refuses: a sentence, and the status of HTTP that says which kind of refusal it is."""

from seqloom.errors import SeqloomError


class RefusalError(SeqloomError):
    """A request that is not answered; `wait` is after how many seconds it may be tried again."""

    status = 400

    def __init__(self, sentence: str, *, status: int | None = None, wait: int | None = None) -> None:
        super().__init__(sentence)
        self.status = status or self.status
        self.wait = wait


class UnknownModelError(RefusalError):
    """A model that is not served here."""

    status = 404


class QueueFullError(RefusalError):
    """Too much is waiting already."""

    status = 429


class DrainingError(RefusalError):
    """The server is about to end, and takes nothing new."""

    status = 503


class TooSlowError(RefusalError):
    """An answer that took longer than the limit."""

    status = 503


class KeyFaultError(RefusalError):
    """A key that is missing or wrong."""

    status = 401


class LostError(RefusalError):
    """A text at which workers ended."""

    status = 500
