"""Builds the image and runs a task in it on a machine where no Docker engine runs (`make docker-check`).

Debian's buildah builds the Dockerfile in a chroot, over a base made with debootstrap that stands in for the
Dockerfile's own: no registry of images is asked. What this proves: the build's steps, the hash-checked installation,
the image's user, entrypoint and mounted traces/ work on a bare Debian 12, and docker-compose.yml meets the Compose
specification's schema. What it cannot: that Docker itself, the real base image and the ollama service behave.

Needs root on Debian. Everything is made in one scratch folder (about 3 GB in /var/tmp) and removed at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RELEASE = "bookworm"
BASE_PACKAGES = "python3,python3-venv,ca-certificates"
TASK = ["python", "main.py", "--backend", "embedded", "What is 12*7?", "--json"]
LAST_LINES = 15
# What of a machine's pip settings makes sense inside the build; paths of this machine do not, but for certificates.
PIP_URLS = {"index-url", "extra-index-url", "find-links"}
PIP_FILES = {"cert", "client-cert"}
PIP_PLAIN = {"proxy", "trusted-host", "timeout", "default-timeout", "retries"}


class CheckError(Exception):
    """The check could not be made or did not hold; one line says which and why."""


def say(text: str) -> None:
    """One line of progress."""
    print(f"docker-check: {text}", flush=True)


def run(command: list[str], what: str, *, log: Path) -> None:
    """Run a long step with its output in a log, whose end is shown when the step fails."""
    with log.open("ab") as file:
        code = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, check=False, cwd=ROOT).returncode
    if code != 0:
        tail = log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        print("\n".join(f"    {line}" for line in tail), file=sys.stderr)
        raise CheckError(f"{what} failed with exit {code} (its last lines are above)")


def os_id(path: Path) -> str:
    """The distribution's ID of an os-release file, or nothing."""
    fields = dict(line.split("=", 1) for line in path.read_text().splitlines() if "=" in line) if path.is_file() else {}
    return fields.get("ID", "").strip('"')


def refuse_elsewhere(os_release: Path, uid: int) -> None:
    """Say why, where the check cannot work.

    Raises:
        CheckError: this is no Debian, or not root.
    """
    if os_id(os_release) != "debian":
        raise CheckError("needs Debian (its buildah and debootstrap); with Docker at hand: docker compose build")
    if uid != 0:
        raise CheckError("needs root, for debootstrap and a build in a chroot: sudo make docker-check")


def install_tools(log: Path) -> None:
    """buildah and debootstrap, where they are missing."""
    missing = [tool for tool in ("buildah", "debootstrap") if shutil.which(tool) is None]
    if not missing:
        return
    say(f"installing {' and '.join(missing)} with apt-get")
    os.environ["DEBIAN_FRONTEND"] = "noninteractive"
    run(["apt-get", "update", "-qq"], "apt-get update", log=log)
    run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing], "apt-get install", log=log)


def apt_mirror() -> str:
    """The Debian archive that this machine's apt uses."""
    command = ["apt-get", "indextargets", "--format", "$(CODENAME) $(REPO_URI)", "Created-By: Packages"]
    targets = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    archives = [line.split(" ", 1) for line in targets if " " in line]
    # Suites such as bookworm-updates and -security live beside the archive proper; security has another address.
    for codename, uri in archives:
        if "-" not in codename and codename:
            return uri
    raise CheckError("apt names no Debian archive: add one to /etc/apt/sources.list.d and run apt-get update")


def base_image(dockerfile: Path) -> str:
    """The one image that every stage of the Dockerfile starts from, by its full name."""
    names = set(re.findall(r"^FROM\s+(\S+)", dockerfile.read_text(), flags=re.MULTILINE))
    if len(names) != 1:
        raise CheckError(f"{dockerfile.name}: expected one base image, found {sorted(names)}")
    name: str = names.pop()
    return name if "/" in name else f"docker.io/library/{name}"


def pip_settings() -> dict[str, str]:
    """This machine's pip settings, the environment's over the files', by plain name."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    settings: dict[str, str] = {}
    for line in sorted(listed.splitlines(), key=lambda text: text.startswith(":env:")):
        key, _, value = line.partition("=")
        if value:
            settings[key.rpartition(".")[2]] = "".join(shlex.split(value))
    return settings


def pip_for_build(settings: dict[str, str]) -> tuple[str, list[str]]:
    """The pip.conf to build with, and the files that it needs at their places."""
    lines, files = [], []
    for key, value in sorted(settings.items()):
        if key in PIP_URLS:
            urls = [part for part in value.split() if re.match(r"https?://", part)]
            lines += [f"{key} = {' '.join(urls)}"] if urls else []
        elif key in PIP_FILES and Path(value).is_file():
            lines.append(f"{key} = {value}")
            files.append(value)
        elif key in PIP_PLAIN:
            lines.append(f"{key.removeprefix('default-')} = {value}")
    return "\n".join(["[global]", *dict.fromkeys(lines), ""]), files


class Image:
    """The image under check, in a container store of its own that leaves the machine's alone."""

    def __init__(self, scratch: Path, log: Path) -> None:
        self.scratch = scratch
        self.log = log
        # vfs copies, which needs no kernel feature; the store is small and short-lived.
        self.buildah = ["buildah", "--root", str(scratch / "store"), "--runroot", str(scratch / "run")]
        self.buildah += ["--storage-driver", "vfs"]
        self.container = ""

    def ask(self, *arguments: str) -> str:
        """A short buildah command's answer."""
        done = subprocess.run([*self.buildah, *arguments], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CheckError(f"buildah {arguments[0]}: {(done.stderr.strip() or 'no reason given').splitlines()[-1]}")
        return done.stdout.strip()

    def make_base(self, name: str) -> None:
        """A minimal Debian with Python 3.11, under the name that the Dockerfile asks for."""
        rootfs = self.scratch / "rootfs"
        debootstrap = ["debootstrap", "--variant=minbase", f"--include={BASE_PACKAGES}", RELEASE, str(rootfs)]
        run([*debootstrap, apt_mirror()], "debootstrap", log=self.log)
        # Debian names it python3 only; the image that this stands in for has both.
        (rootfs / "usr/local/bin/python").symlink_to("/usr/bin/python3")
        container = self.ask("from", "scratch")
        self.ask("add", container, str(rootfs), "/")
        self.ask("config", "--env", "PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin", container)
        self.ask("commit", "--quiet", "--rm", container, name)
        shutil.rmtree(rootfs)

    def build(self) -> None:
        """Build the Dockerfile as it stands, with this machine's pip settings mounted for the build alone."""
        conf = self.scratch / "pip.conf"
        text, files = pip_for_build(pip_settings())
        conf.write_text(text)
        mounts = [f"{conf}:/etc/pip.conf:ro", *(f"{file}:{file}:ro" for file in files)]
        command = [*self.buildah, "bud", "--isolation", "chroot", "--pull-never", "--format", "docker"]
        for mount in mounts:
            command += ["--volume", mount]
        run([*command, "--tag", "shoestring:check", str(ROOT)], "building the image", log=self.log)
        self.container = self.ask("from", "--pull-never", "shoestring:check")

    def config(self) -> dict[str, Any]:
        """The image's configuration: user, entrypoint, command, environment."""
        found: dict[str, Any] = json.loads(self.ask("inspect", "--type", "image", "shoestring:check"))["Docker"][
            "config"
        ]
        return found

    def execute(
        self, command: list[str], traces: Path, user: str, timeout: float = 900
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the image as Docker would: its entrypoint, a user, and traces/ mounted."""
        entrypoint: list[str] = self.config()["Entrypoint"]
        mounted = ["--isolation", "chroot", "--user", user, "--volume", f"{traces}:/app/traces:rw"]
        full = [*self.buildah, "run", *mounted, self.container, "--", *entrypoint, *command]
        return subprocess.run(full, capture_output=True, text=True, check=False, timeout=timeout)


def new_traces(folder: Path, owner: int) -> Path:
    """An empty traces folder that belongs to one user alone."""
    folder.mkdir()
    os.chown(folder, owner, owner)
    folder.chmod(0o755)
    return folder


def check_config(image: Image) -> str:
    """The image does not run as root, and its default command writes the report where the mount is."""
    config = image.config()
    user: str = config.get("User", "")
    if user.partition(":")[0] in {"", "0", "root"}:
        raise CheckError("the image runs as root")
    command: list[str] = config["Cmd"]
    if command[command.index("--report") + 1] != "traces/test_results.md":
        raise CheckError(f"the image's command writes its report outside the mounted folder: {command}")
    usage = image.execute([*command[:2], "--help"], image.scratch, "0:0")
    if "--report" not in usage.stdout:
        raise CheckError(f"run_tests.py in the image knows no --report: {usage.stderr.strip()[-200:]}")
    return user


def check_task(image: Image, user: str, name: str, *flags: str) -> None:
    """One task on the embedded model leaves one whole trace on the host, owned by the user it ran as."""
    uid = int(user.partition(":")[0])
    traces = new_traces(image.scratch / name, uid)
    done = image.execute([*TASK, *flags], traces, user)
    # A weak model may spend its budget; only a machine at fault (3) or a usage error (2) is a fault of the image.
    if done.returncode not in {0, 1}:
        raise CheckError(f"the task ended with exit {done.returncode}: {(done.stderr or done.stdout).strip()[-400:]}")
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    found = sorted(traces.glob("*.json"))
    if len(found) != 1:
        raise CheckError(f"expected one trace on the host, found {[path.name for path in found]}")
    trace = json.loads(found[0].read_text())
    if found[0].stat().st_uid != uid:
        raise CheckError(f"{found[0].name} belongs to UID {found[0].stat().st_uid}, not {uid}")
    if trace["run_id"] != answer["run_id"] or answer["calls"] < 1:
        raise CheckError(f"{found[0].name} is not the run that was reported: {answer}")
    say(f"as {user}: {answer['status']}, {answer['calls']} calls, trace {found[0].name}")


def check_refusal(image: Image) -> None:
    """A traces folder of another user is refused with the line that mends it, before any work."""
    traces = new_traces(image.scratch / "traces-of-another", 4321)
    done = image.execute(["true"], traces, "1000:1000")
    if done.returncode != 2 or "UID=4321" not in done.stderr:  # buildah passes the command's exit code on
        raise CheckError(f"a foreign traces folder is not refused: exit {done.returncode}, {done.stderr.strip()!r}")


def check_compose() -> None:
    """docker-compose.yml against the Compose specification's schema, which check-jsonschema carries."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*command, str(ROOT / "docker-compose.yml")], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(done.stdout, done.stderr, file=sys.stderr)
        raise CheckError("docker-compose.yml does not meet the Compose specification's schema (see above)")


def check(scratch: Path) -> None:
    """All of it, in the order in which a mistake is cheapest to find."""
    log = scratch / "log"
    check_compose()
    say("docker-compose.yml meets the Compose specification's schema")
    install_tools(log)
    image = Image(scratch, log)
    base = base_image(ROOT / "Dockerfile")
    say(f"making a base that stands in for {base}")
    image.make_base(base)
    say("building the Dockerfile (isolation: chroot)")
    image.build()
    user = check_config(image)
    say(f"the image runs as {user}, never as root")
    check_refusal(image)
    say("a traces folder that is not the user's is refused with the line that mends it")
    check_task(image, user, "traces")
    # Compose runs it as whoever the host's user is, a stranger to the image; one call shows as much as ten.
    check_task(image, "12345:12345", "traces-of-host-user", "--max-calls", "1")
    say("all held")


def main(argv: list[str] | None = None) -> int:
    """0 when all held, 2 with one line on stderr otherwise."""
    parser = argparse.ArgumentParser(description="Build the image without Docker and run a task in it.")
    parser.add_argument("--compose-only", action="store_true", help="only validate docker-compose.yml")
    args = parser.parse_args(argv)
    try:
        if args.compose_only:
            check_compose()
            return 0
        refuse_elsewhere(Path("/etc/os-release"), os.geteuid())
        # /var/tmp, not /tmp: on many machines /tmp lies in memory.
        with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="shoestring-docker-check-") as scratch:
            check(Path(scratch))
    except (CheckError, OSError, subprocess.TimeoutExpired, ValueError, KeyError) as error:
        print(f"docker-check: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("docker-check: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
