"""`penstock context`: named servers and logins, so that commands need not repeat them.

Each context is a file below `$XDG_CONFIG_HOME/penstock/context`, readable only by its owner,
because it may hold a password. `selected` names the default context of commands. A file is replaced
atomically. Secrets are written only there; the output shows only that they are set.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.cli.cli_errors import Failure, Misuse
from penstock.cli.command_spec import Argument, Command, Noun, argument, connection_arguments
from penstock.cli.output import Facts, TableListing
from penstock.cli.server_target import ServerTarget, given

if TYPE_CHECKING:
    from argparse import Namespace

    from penstock.cli.output import Screen

PRIVATE_FILE: Final = 0o600
PRIVATE_DIRECTORY: Final = 0o700
NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")


def directory() -> Path:
    """Return the directory of contexts."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "penstock" / "context"


def names() -> list[str]:
    """Return the names of all contexts."""
    return sorted(path.stem for path in directory().glob("*.json"))


def selected() -> str:
    """Return the name of the selected context; empty if none is selected."""
    try:
        name = (directory() / "selected").read_text("utf-8").strip()
    except OSError:
        return ""
    return name if name and _path(name).exists() else ""


def load(name: str) -> ServerTarget:
    """Return the context with this name."""
    path = _path(name)
    try:
        content = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise Failure(f"there is no context {name!r}; `penstock context ls` lists them") from None
    except (OSError, ValueError):
        raise Failure(f"{path}: not a context") from None
    if not isinstance(content, dict):
        raise Failure(f"{path}: not a context")
    return ServerTarget(**{word: str(content.get(word, "")) for word in ServerTarget.names()})


def _path(name: str) -> Path:
    if not NAME.fullmatch(name):
        raise Misuse(f"{name!r} is not a name for a context: use letters, digits, '-', '_', '.'")
    return directory() / f"{name}.json"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=PRIVATE_DIRECTORY)
    beside = path.with_name(f".{path.name}.new")
    # Create a new file, so that the mode is ours: an old file could be readable by others.
    beside.unlink(missing_ok=True)
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE), "w") as out:
        out.write(text)
    beside.replace(path)


# -- commands


def _add(screen: Screen, options: Namespace) -> None:
    path, target = _path(options.name), given(options)
    if path.exists() and not options.replace:
        raise Failure(f"context {options.name!r} exists; --replace replaces it")
    values = {word: getattr(target, word) for word in ServerTarget.names()}
    _write(path, json.dumps({word: value for word, value in values.items() if value}, indent=2))
    if options.select or not selected():
        _write(directory() / "selected", options.name)
    _answer(screen, options.name, f"Context {options.name} is kept in {path}")


def _ls(screen: Screen, options: Namespace) -> None:
    chosen = selected()
    found = [_document(name, chosen) for name in names()]
    rows = [
        (
            f"{one['name']}{' *' if one['selected'] else ''}",
            one["settings"].get("server", ""),
            one["settings"].get("description", ""),
        )
        for one in found
    ]
    title = f"Contexts in {directory()} (* is selected)"
    screen.answer(found, TableListing(title, ("name", "server", "description"), rows))


def _select(screen: Screen, options: Namespace) -> None:
    load(options.name)
    _write(directory() / "selected", options.name)
    _answer(screen, options.name, f"Context {options.name} is selected")


def _show(screen: Screen, options: Namespace) -> None:
    name = options.name or selected()
    if not name:
        raise Failure("no context is selected")
    document = _document(name, selected())
    screen.answer(document, Facts(f"Context {name}", list(document["settings"].items())))


def _rm(screen: Screen, options: Namespace) -> None:
    load(options.name)
    _path(options.name).unlink()
    screen.answer({"name": options.name, "removed": True}, f"Context {options.name} was deleted")


def _answer(screen: Screen, name: str, text: str) -> None:
    screen.answer(_document(name, selected()), text)


def _document(name: str, chosen: str) -> dict[str, Any]:
    return {"name": name, "selected": name == chosen, "settings": load(name).shown()}


def _name(**settings: Any) -> Argument:
    return argument("name", help="name of the context", **settings)


def _add_arguments() -> tuple[Argument, ...]:
    return (
        _name(),
        argument("--description", default="", help="for people"),
        argument("--select", action="store_true", help="select it, too; the first one is anyway"),
        argument("--replace", action="store_true", help="replace one of that name"),
        *connection_arguments(of_a_context=True),
    )


NOUN: Final = Noun(
    "context",
    "servers and logins under a name",
    (
        Command("add", "keep a server and a login", _add_arguments, local=_add),
        Command("ls", "list contexts", local=_ls),
        Command("select", "take this one from now on", lambda: (_name(),), local=_select),
        Command("show", "show one, without its secrets", lambda: (_name(nargs="?"),), local=_show),
        Command("rm", "remove one", lambda: (_name(),), local=_rm),
    ),
)
