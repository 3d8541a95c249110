"""Which files of this machine a program may read: the system's own, and this project's Python where it stands outside
of them. Folders of a person are never among them, only what Python itself needs."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

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


def project_python_files() -> tuple[Path, ...]:
    """What this project's own interpreter reads to run a module of ours: its packages too, and our sources."""
    environment = Path(sys.prefix)
    own = () if is_system(environment) or sys.prefix == sys.base_prefix else (environment,)
    return (*base_python_files(), *own, PROJECT / "agent")


def is_system(path: Path) -> bool:
    """Whether every program can read it anyway."""
    return any(path.is_relative_to(folder) for folder in SYSTEM)
