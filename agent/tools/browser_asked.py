"""What the actions on a page asked for, and which of them a file to be saved belongs to."""

from __future__ import annotations

from collections import deque

from agent.egress.target import MAX_URL_CHARS

_MAX_ASKED = 200  # addresses of an action, and of those before it, that are remembered

_OWN = "(The page offered a file to save. Nothing was saved.)"
_EARLIER = "(A file that an earlier action asked for came late. It was not saved.)"
_ANYBODYS = "(A file to be saved came, which this action or an earlier one asked for. It was not saved.)"


class Asked:
    """The addresses that the present action asked for, those of earlier ones, and the files that came.

    A link with `download` asks unseen: of its file nobody can say which action it belongs to.
    """

    def __init__(self) -> None:
        self._now = deque[str](maxlen=_MAX_ASKED)
        self._before = deque[str](maxlen=_MAX_ASKED)
        self._files = deque[str](maxlen=_MAX_ASKED)
        self._refused = set[str]()
        self._has_late_file = False

    def begin(self) -> None:
        """From here on, what is asked for is the next action's doing. A file that nobody was told of came late."""
        self._has_late_file = bool(self._files)
        self._before.extend(self._now)
        self._now.clear()
        self._files.clear()

    def note(self, url: str) -> None:
        """The page goes, or a frame in it, to this address."""
        self._now.append(_without_fragment(url))
        self._refused.discard(self._now[-1])

    def note_file(self, url: str) -> None:
        """What came from this address is a file to be saved."""
        file = _without_fragment(url)
        if file not in self._refused:
            self._files.append(file)

    def refuse(self) -> None:
        """The action has ended with the word that it led to a file: of that nothing more is said, whenever it comes."""
        self._refused = set(self._now)
        self._files.clear()

    @property
    def is_file(self) -> bool:
        """Whether this action was led to a file to be saved."""
        return any(url in self._now for url in self._files)

    def told(self) -> str:
        """What there is to say of the files that came since the last time: a line, or nothing."""
        own = self.is_file
        anybodys = any(url not in self._before for url in self._files)
        earlier = self._has_late_file or bool(self._files)
        self._files.clear()
        self._has_late_file = False
        return _OWN if own else _ANYBODYS if anybodys else _EARLIER if earlier else ""


def _without_fragment(url: str) -> str:
    return url.partition("#")[0][:MAX_URL_CHARS]
