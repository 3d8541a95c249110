"""Which files of this machine a program may read: the system's own, and this project's Python where it stands outside
of them. Folders of a person are never among them, only what Python itself needs."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

from agent.sandbox.base import Sandbox

PROJECT = Path(__file__).resolve().parent.parent.parent
SYSTEM = (Path("/usr"), Path("/nix/store"))
# Each is a link into /usr on most systems, and a folder of its own on some.
ROOTS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
SYSTEM_FILES = (Path("/etc/alternatives"), Path("/etc/ld.so.cache"))


def base_python() -> Path:
    """The interpreter that this project's environment was made from, without the packages of that environment."""
    return Path(os.path.realpath(sys.executable))


def base_python_files() -> tuple[Path, ...]:
    """What `base_python` reads where it is not the system's: itself, its library and its standard library."""
    shared = Path(sysconfig.get_config_var("LIBDIR") or "/usr/lib", sysconfig.get_config_var("INSTSONAME") or "-")
    files = (base_python(), shared, Path(os.__file__).resolve().parent)
    return tuple(path for path in files if path.exists() and not is_system(path))


def python_for(sandbox: Sandbox) -> tuple[Path, tuple[Path, ...]]:
    """An interpreter for programs in a sandbox, with no package of this project's, and what it reads beside the system.

    It is the one that the harness runs on, unless only root may enter its folder.
    """
    files = base_python_files()
    if all(sandbox.can_read(path) for path in files):
        return base_python(), files
    return Path("/usr/bin/python3"), ()


def packages() -> tuple[Path, ...]:
    """The folders that hold the packages of this project's environment."""
    return tuple(Path(entry) for entry in sys.path if Path(entry).name in {"site-packages", "dist-packages"})


def project_files() -> tuple[Path, ...]:
    """What `base_python` reads to run a module of ours: its packages too, and our sources."""
    return (*base_python_files(), *filter(lambda folder: not is_system(folder), packages()), PROJECT / "agent")


def is_system(path: Path) -> bool:
    """Whether every program can read it anyway."""
    return any(path.is_relative_to(folder) for folder in SYSTEM)
