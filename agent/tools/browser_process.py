"""Chromium as a process of one run: who it runs as, what it may take, and that nothing of it is left.

Its own sandbox is always on. Where the harness is root it runs as a user that belongs to nobody, for Chromium gives up
its sandbox for root. It is asked for pages over a port on loopback, which only this machine's programs reach, and ends
with the thread that started it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from agent.errors import StoreError
from agent.sandbox.base import SandboxError
from agent.sandbox.leftovers import prefix
from agent.sandbox.usage import resident_bytes
from agent.sandbox.users import Borrower, borrowed
from agent.sandbox.walking import remove
from agent.tools.base import ToolError

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
START_SECONDS = 15.0
MAX_RESIDENT_BYTES = 3 << 30  # of all its processes; what they share counts for each, which is 1.2 GiB to begin with
_LOOK_SECONDS = 0.25
_END_SECONDS = 5.0

# All that is not a page's own traffic goes to a port where nobody listens, and no name is looked up here: pages have a
# proxy of their own, which does that. WebRTC would send datagrams past any proxy.
_ARGUMENTS = (
    "--headless=new",
    "--remote-debugging-port=0",
    "--proxy-server=socks5://127.0.0.1:1",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--disable-quic",
    "--disable-back-forward-cache",  # a page that is shown again is loaded again, which can be waited for
    "--disable-background-networking",
    "--disable-breakpad",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-features=AutofillServerCommunication",  # it tells its maker of the forms of a page
    "--disable-gpu",
    "--disable-sync",
    "--mute-audio",
    "--no-default-browser-check",
    "--no-first-run",
    "about:blank",
)


class Chromium:
    """A running Chromium. Start and stop it in the same thread; `kill` may come from any.

    Raises:
        ToolError: no_browser, none is installed; no_sandbox, its sandbox does not work here; tool_crashed.
        StoreError: there is no room for its profile.
    """

    def __init__(self, path: Path | None, *, trusted_machine: bool) -> None:
        executable = _executable(path)
        self.took_too_much = False
        self._burying = threading.Lock()
        self._lent = ExitStack()  # its user, until nothing of it is left
        try:
            user = self._lent.enter_context(borrowed())
            self._profile = Path(tempfile.mkdtemp(prefix=prefix("browser")))
        except SandboxError as error:
            raise ToolError(error.error_type, f"The browser cannot be run here: {error}.") from None
        except OSError as error:
            self._lent.close()
            raise StoreError(f"browse: no folder can be made for the browser: {error}") from error
        self._lent.callback(self._remove_profile)
        try:
            self._process = _started(executable, self._profile, user, trusted_machine)
        except BaseException:
            self._lent.close()
            raise
        self._watch = threading.Thread(target=self._look, name="browser-watch", daemon=True)
        self._watch.start()

    def endpoint(self) -> str:
        """Where it takes orders, once it does.

        Raises:
            ToolError: as the class.
        """
        found, deadline = self._profile / "DevToolsActivePort", time.monotonic() + START_SECONDS
        while not self._is_over() and time.monotonic() < deadline:
            with contextlib.suppress(OSError, ValueError):  # it is not there yet, or not yet whole
                port, path = found.read_text(encoding="ascii").split()
                return f"ws://127.0.0.1:{port}{path}"
            time.sleep(0.02)
        if "No usable sandbox" in self._said():
            raise ToolError("no_sandbox", "The browser cannot isolate pages on this machine, so none is opened.")
        raise ToolError("tool_crashed", "The browser does not start on this machine.")

    @property
    def has_ended(self) -> bool:
        """Whether it is gone, or as good as gone."""
        return self.took_too_much or self._is_over()

    def kill(self) -> None:
        """End it and all that it started."""
        with self._burying:
            self._kill_group()

    def close(self) -> None:
        """End it and remove what it wrote. May be called again."""
        self.kill()
        with self._burying:
            self._process.wait(_END_SECONDS)
        self._watch.join()
        self._lent.close()

    def _look(self) -> None:
        """Until it ends: whether it takes too much."""
        while not self._is_over():
            if resident_bytes(self._process.pid) > MAX_RESIDENT_BYTES:
                self.took_too_much = True
                self.kill()
            time.sleep(_LOOK_SECONDS)

    def _is_over(self) -> bool:
        """Whether it has ended. Where it has, what it left in its group is ended too, before it is buried."""
        with self._burying:
            if sys.platform == "linux" and self._process.returncode is None:  # macOS cannot look without burying
                if os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                    return False
                self._kill_group()
            return self._process.poll() is not None

    def _kill_group(self) -> None:
        """End all that has its number for a group; not once it is buried, for then that may be anybody's."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS says so where only the dead are left
                os.killpg(self._process.pid, signal.SIGKILL)

    def _said(self) -> str:
        with contextlib.suppress(OSError):
            return (self._profile / "stderr").read_text("utf-8", "replace")
        return ""

    def _remove_profile(self) -> None:
        deadline = time.monotonic() + _END_SECONDS
        while self._profile.exists() and time.monotonic() < deadline:  # what was killed may still be ending
            remove(self._profile)


def _executable(path: Path | None) -> str:
    if path is not None:
        if not (path.is_file() and os.access(path, os.X_OK)):
            raise ToolError("no_browser", "CHROMIUM_PATH names no program, so there is no browser.")
        return str(path.resolve())
    found = next((place for name in NAMES if (place := shutil.which(name))), None)
    if found is None:
        raise ToolError("no_browser", "No Chromium is installed (or set CHROMIUM_PATH), so there is no browser.")
    return found


def _started(executable: str, profile: Path, user: Borrower, trusted_machine: bool) -> subprocess.Popen[bytes]:
    os.chown(profile, user.uid, user.gid)
    launcher = _launcher(user.uid if user.is_other else None)
    unsafe = ("--no-sandbox",) if trusted_machine else ()
    with (profile / "stderr").open("wb") as errors:
        try:
            return subprocess.Popen(
                [*launcher, executable, *unsafe, f"--user-data-dir={profile}", *_ARGUMENTS],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                cwd=profile,
                env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": str(profile), "TMPDIR": str(profile)},
                start_new_session=True,
            )
        except OSError:
            raise ToolError("tool_crashed", "The browser does not start on this machine.") from None


def _launcher(uid: int | None) -> list[str]:
    """What gives root up, and ends the browser with the thread that started it. Only Linux has it."""
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        if uid is not None:
            raise ToolError(
                "no_sandbox", "The browser cannot be run as another user than root here: setpriv is missing."
            )
        return []
    who = [f"--reuid={uid}", f"--regid={uid}", "--clear-groups"] if uid is not None else []
    return [setpriv, *who, "--pdeathsig=KILL", "--"]
