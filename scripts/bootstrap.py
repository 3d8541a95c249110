"""Makes `.venv`: pinned, hash-checked packages and the embedded model. A second call changes nothing.

Run by `make setup` with whatever Python the machine has, so it uses only the standard library, and nothing in it
may need more than Python 3.7 before the version is checked.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST_PYTHON = (3, 11)
LOCKS = ("requirements.txt", "requirements-extras.txt", "requirements-dev.txt")  # each holds all of the one before it


class BootstrapError(Exception):
    """The machine lacks something; the message says what, and how to mend it."""


def check_python(version: tuple[int, ...]) -> None:
    """Refuse a Python that is too old, before anything is made with it."""
    if tuple(version[:2]) < OLDEST_PYTHON:
        found = ".".join(str(part) for part in version[:2])
        raise BootstrapError(
            f"Python 3.11 or newer is needed and {sys.executable} is {found}: "
            "apt-get install python3 python3-venv (Debian 12), or make PYTHON=/path/to/python3.11 setup"
        )


def venv_python(venv: Path) -> Path:
    """The interpreter of a virtual environment."""
    return venv / "bin" / "python"


def is_usable(venv: Path) -> bool:
    """Whether the environment's Python starts: it does not after the system's Python was removed or upgraded."""
    python = venv_python(venv)
    if not python.exists():
        return False
    probe = [str(python), "-c", "import pip, sys; sys.exit(sys.version_info[:2] < (3, 11))"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


def make_venv(venv: Path) -> None:
    """Create the environment, replacing one that no longer works."""
    if is_usable(venv):
        return
    print(f"making {venv.name} with Python {sys.version.split()[0]}", flush=True)
    made = subprocess.run(
        [sys.executable, "-m", "venv", "--clear", str(venv)], capture_output=True, text=True, check=False
    )
    if made.returncode == 0 and is_usable(venv):
        return
    shutil.rmtree(venv, ignore_errors=True)
    # Debian splits venv off, and then says so in a paragraph; any other failure has its reason in the last line.
    reason = (made.stderr.strip() or made.stdout.strip() or "no reason given").splitlines()[-1]
    if importlib.util.find_spec("ensurepip") is None:
        reason = "ensurepip is missing"
    raise BootstrapError(f"{sys.executable} -m venv failed ({reason}): apt-get install python3-venv, then make setup")


def stamp_for(requirements: Path) -> str:
    """What a stamp holds: the content of the requirements, so that a new checkout of the same file is no change."""
    return hashlib.sha256(requirements.read_bytes()).hexdigest() + "\n"


def install(venv: Path, requirements: Path) -> bool:
    """Install one requirements file unless its stamp says that it is installed already; True where it was."""
    stamp = venv / f".installed-{requirements.stem}"
    wanted = stamp_for(requirements)
    if stamp.is_file() and stamp.read_text() == wanted:
        return False
    print(f"installing {requirements.name} (hash-checked)", flush=True)
    # While packages change no stamp may vouch for them: all files share the environment.
    for old in venv.glob(".installed-*"):
        old.unlink()
    pip = [str(venv_python(venv)), "-m", "pip", "--disable-pip-version-check", "--no-input"]
    wheels_only = ["--require-hashes", "--only-binary", ":all:"]  # a machine without a compiler is enough
    # A lock names everything, and `check` below says whether it does. The pip that comes with older Pythons, where it
    # looks for what packages need, warns of extras that it writes in another way than they do.
    command = [*pip, "install", "--quiet", *wheels_only, "--no-deps", "-r", str(requirements)]
    if subprocess.run(command, check=False).returncode != 0:
        raise BootstrapError(
            f"pip could not install {requirements.name} (its reason is above): "
            "mend the network or pip's configuration, then make setup"
        )
    if subprocess.run([*pip, "check"], stdout=subprocess.DEVNULL, check=False).returncode != 0:
        raise BootstrapError(
            f"the packages of {requirements.name} do not fit together (python -m pip check): make lock"
        )
    stamp.write_text(wanted)
    return True


def chosen_lock(venv: Path, wanted: str) -> Path:
    """The lock file to install: the one that is wanted, or a larger one that is installed already."""
    installed = [place for place, name in enumerate(LOCKS) if (venv / f".installed-{Path(name).stem}").is_file()]
    return ROOT / LOCKS[max([LOCKS.index(wanted), *installed])]


OPENMP = "libgomp.so.1"


def has_openmp(library: str = OPENMP) -> bool:
    """Whether the OpenMP runtime that llama.cpp is linked with on Linux is there: minimal Debians lack it."""
    if not sys.platform.startswith("linux"):
        return True
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def ensure_openmp(library: str = OPENMP, *, uid: int | None = None) -> None:
    """Install the OpenMP runtime where that needs no question asked; elsewhere say how. No reason to stop: only the
    embedded model needs it. `uid` is who asks: this process's user, unless told.
    """
    if has_openmp(library):
        return
    apt_get = shutil.which("apt-get")
    if (os.geteuid() if uid is None else uid) == 0 and apt_get:
        print("installing libgomp1 with apt-get, for the embedded model", flush=True)
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for step in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", "libgomp1"]):
            subprocess.run([apt_get, *step], env=environment, capture_output=True, check=False)
        if has_openmp(library):
            return
    print("setup: the embedded model needs libgomp1 (Ollama does not): apt-get install libgomp1", file=sys.stderr)


def fetch_model(venv: Path) -> None:
    """Unpack the embedded model; the script says itself what it did or why it could not."""
    fetch = [str(venv_python(venv)), str(ROOT / "scripts" / "fetch_model.py")]
    if subprocess.run(fetch, check=False).returncode != 0:
        raise BootstrapError("the embedded model is not unpacked (reason above): make setup tries again")


def main(argv: list[str] | None = None) -> int:
    """Set up the checkout; 0 when everything is in place, 2 with one line on stderr otherwise."""
    parser = argparse.ArgumentParser(description="Make .venv with pinned packages and unpack the model.")
    parser.add_argument("--extras", action="store_true", help="also install the libraries of the optional toolsets")
    parser.add_argument("--dev", action="store_true", help="also install what tests, lint and types need")
    args = parser.parse_args(argv)
    venv = ROOT / ".venv"
    try:
        check_python(tuple(sys.version_info[:3]))
        make_venv(venv)
        install(venv, chosen_lock(venv, LOCKS[2 if args.dev else 1 if args.extras else 0]))
        ensure_openmp()
        fetch_model(venv)
    except (BootstrapError, OSError) as error:
        print(f"setup: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("setup: interrupted; make setup goes on where it stopped", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
