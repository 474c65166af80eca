"""`covey keys new|allow|list|revoke`: who may reach the fleet over the network."""

from __future__ import annotations

import argparse
from pathlib import Path

from ...protocol.errors import UsageError
from ..home import Home
from ..keys import PUBLIC, SECRET, SERVER, KeyRing, check_name, new_pair, public_key, write_secret
from .common import add_home, add_json
from .output import console, print_json, print_line, table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare new, allow, list and revoke."""
    actions = parser.add_subparsers(required=True, metavar="ACTION", dest="keys_action")
    new = actions.add_parser("new", help="make a key pair: the fleet's own, or with --client one for a client")
    new.add_argument("name", metavar="NAME", help="`server` for the fleet's own pair; any other name needs --client")
    new.add_argument("--client", action="store_true", help="make a pair for a client of some fleet, on its own host")
    new.add_argument("--out", metavar="FILE", help="where the client's secret goes (default: keys/NAME.secret)")
    allow = actions.add_parser("allow", help="let a client in")
    allow.add_argument("name", metavar="NAME", help="how it is called from now on")
    allow.add_argument("public", metavar="PUBLIC", help="its public key, or the file with it")
    listing = actions.add_parser("list", help="show the fleet's public key and the clients that are allowed")
    revoke = actions.add_parser("revoke", help="let a client in no more; it is cut off within a second")
    revoke.add_argument("name", metavar="NAME")
    for action in (new, allow, listing, revoke):
        add_home(action)
        add_json(action)


def run(args: argparse.Namespace) -> int:
    """Do what was asked; the exit code."""
    home = Home.locate(args.home)
    match args.keys_action:
        case "new" if args.client:
            return _new_client(home, args.name, args.out, as_json=args.json)
        case "new":
            return _new_server(home, args.name, args.out, as_json=args.json)
        case "allow":
            return _allow(home, args.name, args.public, as_json=args.json)
        case "revoke":
            return _revoke(home, args.name, as_json=args.json)
        case action:
            assert action == "list", f"argparse let {action} through"
            return _list(home, as_json=args.json)


def _new_server(home: Home, name: str, out: str | None, *, as_json: bool) -> int:
    if name != SERVER:
        raise UsageError(f"the fleet's own pair is called {SERVER}; for a client say `covey keys new {name} --client`")
    if out is not None:
        raise UsageError("the fleet's own secret stays in its home; --out is for clients")
    ring = KeyRing(home)
    pair = ring.new_server()
    _say(as_json, {"name": SERVER, "public": pair.public}, f"the fleet's public key: {pair.public}")
    return 0


def _new_client(home: Home, name: str, out: str | None, *, as_json: bool) -> int:
    check_name(name)
    secret = Path(out).expanduser() if out is not None else _own_secret(home, name)
    pair = new_pair()
    write_secret(secret, pair)
    public = secret.with_name(secret.name.removesuffix(SECRET) + PUBLIC)
    public.write_text(f"{pair.public}\n")
    said = {"name": name, "public": pair.public, "secret_file": str(secret), "public_file": str(public)}
    text = (
        f"secret key in {secret}, public key in {public}\nwhere the fleet runs: covey keys allow {name} '{pair.public}'"
    )
    _say(as_json, said, text)
    return 0


def _own_secret(home: Home, name: str) -> Path:
    ring = KeyRing(home)
    ring.prepare()
    return ring.folder / f"{name}{SECRET}"


def _allow(home: Home, name: str, public: str, *, as_json: bool) -> int:
    key = public_key(public)
    KeyRing(home).allow(name, key)
    _say(as_json, {"name": name, "public": key}, f"{name} is allowed: {key}")
    return 0


def _revoke(home: Home, name: str, *, as_json: bool) -> int:
    KeyRing(home).revoke(name)
    _say(as_json, {"name": name}, f"{name} is not allowed any more")
    return 0


def _list(home: Home, *, as_json: bool) -> int:
    ring = KeyRing(home)
    server = ring.server().public if ring.has_server() else None
    clients = ring.known()
    if as_json:
        print_json({"server": server, "clients": clients})
        return 0
    print_line(
        f"the fleet's public key: {server}" if server else "the fleet has no key; `covey keys new server` makes one"
    )
    if not clients:
        print_line("no client is allowed")
        return 0
    from rich.text import Text

    rows = table("client", "public key")
    for client in clients:
        rows.add_row(client.name, Text(client.public))  # as a string its brackets would be markup
    console().print(rows)
    return 0


def _say(as_json: bool, said: dict[str, str], text: str) -> None:
    if as_json:
        print_json(said)
    else:
        print_line(text)
