from __future__ import annotations

import re
import stat
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from repository import ROOT, files, name_of

# Joined here so that this file does not name them either.
REGISTRY_HOSTS = tuple(
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("yarnpkg", "com"),
        ("crates", "io"),
        ("deb", "debian", "org"),
    )
)
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)


def _text_files() -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for path in files():
        try:
            found.append((name_of(path), path.read_text(encoding="utf-8")))
        except UnicodeDecodeError:
            continue  # a picture or an office file
    return found


def test_no_file_names_a_package_registry() -> None:
    naming = [
        (name, host) for name, text in _text_files() for host in REGISTRY_HOSTS if host in text
    ]
    assert naming == []


def test_no_file_names_the_folder_it_happens_to_lie_in() -> None:
    assert [name for name, text in _text_files() if f"{ROOT}/" in text] == []


def test_no_file_is_a_lock_of_another_tool() -> None:
    assert [name_of(path) for path in files() if path.name in {"uv.lock", "poetry.lock"}] == []


def _locked(name: str) -> dict[str, str]:
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    return {canonicalize_name(package): version for package, version in PINNED.findall(text)}


def _declared(group: str | None) -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lines = project["dependency-groups"][group] if group else project["project"]["dependencies"]
    return [Requirement(line) for line in lines]


@pytest.mark.parametrize(
    ("lock", "group"), [("runtime.txt", None), ("dev.txt", None), ("dev.txt", "dev")]
)
def test_a_lock_satisfies_what_the_project_declares(lock: str, group: str | None) -> None:
    locked = _locked(lock)
    for requirement in _declared(group):
        version = locked.get(canonicalize_name(requirement.name))
        assert version, f"{requirement.name} is not in requirements/{lock}: run `just lock`"
        assert requirement.specifier.contains(version), f"{requirement}: run `just lock`"


def test_both_locks_agree() -> None:
    runtime, dev = _locked("runtime.txt"), _locked("dev.txt")
    assert {name: dev.get(name) for name in runtime} == runtime


@pytest.mark.parametrize("lock", ["runtime.txt", "dev.txt"])
def test_a_lock_has_a_hash_for_every_package_and_no_address(lock: str) -> None:
    text = (ROOT / "requirements" / lock).read_text(encoding="utf-8")
    assert "://" not in text
    for entry in re.split(r"\n(?=\S)", text.strip()):
        assert "--hash=sha256:" in entry, entry


@pytest.mark.parametrize("script", [".ci/run", "tools/lint", "tools/lock", "tools/setup"])
def test_a_script_can_be_run(script: str) -> None:
    path = ROOT / script
    assert path.read_text(encoding="utf-8").startswith("#!")
    assert path.stat().st_mode & stat.S_IXUSR


def test_the_licence_is_apache_2() -> None:
    text = Path(ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
