"""A fleet of gateways on a Ray cluster: one on each of several nodes, with one store.

    with rollgate.ray.Fleet(nodes=8, store="redis://10.0.0.7/0?name=run42", cpus=4, model="/models/Qwen3-8B",
                            engines=["sglang:http://gpu1:30000"]) as fleet:
        client = fleet.client()

Ray places and restarts the gateways. They keep nothing in Ray: the store has a second copy of every record, so a
restarted actor is a new node, and the sessions of the lost one continue elsewhere (docs/fleet.md).
"""
from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Iterable, Optional

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from .calls import Call, read_json
from .client import Client
from .errors import RollgateError
from .testing import SERVES, STARTS, TAKEN, WATCH, find_binary, settings_flags

__all__ = ["Fleet"]

CHOSEN = ("listen", "state_dir", "fleet", "fleet_node", "fleet_address", "admin_key_file", "key_secret_file", "engine")
ASK_S = 10.0    # time in which a living actor answers


class Node:
    """The work of one actor: a gateway, which ends with the actor. If the gateway fails, so does the actor, and Ray
    restarts it."""

    def __init__(self, name: str, store: str, keys: dict[str, str], binary: Optional[str], settings: dict[str, Any], start_s: float):
        self.name = f"{name}-{secrets.token_hex(4)}"
        self.host = ray.util.get_node_ip_address()
        self.folder = Path(tempfile.mkdtemp(prefix="rollgate-ray-"))
        for file, text in keys.items():
            (self.folder / file).touch(mode=0o600)
            (self.folder / file).write_text(text + "\n")
        flags = settings_flags({**settings, "fleet": store, "fleet_node": self.name, "state_dir": self.folder / "state",
                                "admin_key_file": self.folder / "admin", "key_secret_file": self.folder / "secret"})
        until, self.stopping = time.monotonic() + start_s, False
        try:
            for last in range(STARTS - 1, -1, -1):
                if self._starts(binary or find_binary(), flags, until, last == 0):
                    break
        except RuntimeError:
            if ray.get_runtime_context().was_current_actor_reconstructed:
                time.sleep(1.0)
                os._exit(1)     # Ray starts it again; after an error of its start it would not
            raise
        threading.Thread(target=self._watch, daemon=True).start()

    def _starts(self, binary: str, flags: list[str], until: float, is_last: bool) -> bool:
        """Starts the gateway. Returns False if a different program has taken the port, and more attempts are allowed."""
        with socket.socket() as s:
            s.bind((self.host, 0))
            self.address = f"{self.host}:{s.getsockname()[1]}"
        log = self.folder / "log"
        with open(log, "wb") as f:
            self.process = subprocess.Popen([binary, "serve", f"--listen={self.address}", f"--fleet-address={self.address}", *flags],
                                            stdout=f, stderr=f, stdin=subprocess.DEVNULL)
        self.watcher = subprocess.Popen(["/bin/sh", "-c", WATCH, str(self.process.pid), str(self.folder)], stdin=subprocess.PIPE,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        while self.process.poll() is None and time.monotonic() < until:
            if SERVES in log.read_text("utf-8", "replace"):
                return True
            time.sleep(0.02)
        text = log.read_text("utf-8", "replace")
        self.watcher.kill()
        self.watcher.communicate()
        self.process.kill()
        self.process.wait()
        if TAKEN in text and not is_last:
            return False
        shutil.rmtree(self.folder, ignore_errors=True)
        raise RuntimeError(f"the gateway of node {self.name} does not serve:\n{text[-4000:]}")

    def _watch(self) -> None:
        """Ends the actor with a gateway that fails. A drained one has ended well."""
        if self.process.wait() != 0 and not self.stopping:
            os._exit(1)

    def describe(self) -> tuple[str, str]:
        """Returns the node's name and address."""
        return self.name, self.address

    def has_ended(self) -> bool:
        """Reports whether the gateway has ended by itself, as a drained one does."""
        return self.process.poll() is not None

    def stop(self, grace_s: float) -> None:
        """Ends the gateway (SIGTERM, then SIGKILL after `grace_s`) and removes its folder."""
        self.stopping = True
        self.process.terminate()
        try:
            self.process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.watcher.kill()
        self.watcher.communicate()
        shutil.rmtree(self.folder, ignore_errors=True)


class Fleet:
    """One gateway on each of `nodes` nodes of the Ray cluster, with `cpus` processors each.

    store: the setting --fleet. engines, model: those of every node. name: what the nodes' names begin with.
    binary: the program; default: ROLLGATE, or `rollgate` on the path of each node.
    start_s: time until all serve. Other settings of docs/settings.md by name: workers=4, sink="redis://...".
    key: an admin key of all nodes, which `client()` uses. secret: what session keys are made from (--key-secret-file).
    Default: random ones, in fleet.key and fleet.secret. Keep both: a later Fleet needs them to continue with the
    sessions of this one's store.
    RuntimeError: the cluster has too few nodes, or a gateway does not serve."""

    def __init__(self, nodes: int, store: str, *, cpus: float = 4, model: Optional[str] = None, engines: Iterable[str] = (),
                 name: str = "ray", key: Optional[str] = None, secret: Optional[str] = None, binary: Optional[str] = None, start_s: float = 120.0,
                 **settings: Any):
        if nodes < 1:
            raise ValueError(f"nodes is {nodes}: a fleet has at least one")
        for setting in settings:
            if setting in CHOSEN:
                raise ValueError(f"{setting}: the fleet chooses it")
        self.key = key or secrets.token_hex(24)
        self.secret = secret or secrets.token_hex(32)
        given: dict[str, Any] = {"workers": max(1, int(cpus) - 1), "fleet_leave": True, **settings}
        if model is not None:
            given["model"] = model
        if engines:
            given["engine"] = list(engines)
        settings_flags(given)       # a setting without a value is an error here, not in an actor
        self._actors: list[Any] = []
        self._group = placement_group([{"CPU": cpus}] * nodes, strategy="STRICT_SPREAD")
        try:
            ray.get(self._group.ready(), timeout=start_s)
            self._start(nodes, cpus, (name, store, {"admin": self.key, "secret": self.secret}, binary, given, start_s))
        except ray.exceptions.GetTimeoutError as e:
            self.close()
            raise RuntimeError(f"{nodes} nodes with {cpus:g} free processors each do not serve after {start_s:g} s") from e
        except ray.exceptions.RayError as e:
            self.close()
            raise RuntimeError(f"a node of the fleet does not start: {e}") from e
        except BaseException:
            self.close()
            raise

    def _start(self, nodes: int, cpus: float, arguments: tuple[Any, ...]) -> None:
        actor, name, rest = ray.remote(Node), arguments[0], arguments[1:]
        for i in range(nodes):
            strategy = PlacementGroupSchedulingStrategy(placement_group=self._group, placement_group_bundle_index=i)
            self._actors.append(actor.options(num_cpus=cpus, max_restarts=-1, scheduling_strategy=strategy).remote(f"{name}-{i}", *rest))
        ray.get([one.describe.remote() for one in self._actors], timeout=arguments[-1])

    def __enter__(self) -> "Fleet":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _living(self) -> dict[str, tuple[str, Any]]:
        """Returns name -> (address, actor) of the actors that answer."""
        found = {}
        for actor in self._actors:
            with contextlib.suppress(ray.exceptions.RayError):
                name, address = ray.get(actor.describe.remote(), timeout=ASK_S)
                found[name] = address, actor
        return found

    def _ask(self, address: str, method: str, path: str) -> Any:
        with contextlib.closing(Client(f"http://{address}", self.key, timeout=ASK_S, retry_s=0)) as client:
            return client.send(Call(method, path, b"{}" if method == "POST" else None, read_json))

    def _view(self) -> dict[str, Any]:
        """Returns GET /fleet of the first node that answers."""
        why: Optional[BaseException] = None
        for address, _ in self._living().values():
            try:
                view: dict[str, Any] = self._ask(address, "GET", "/fleet")
                return view
            except RollgateError as e:
                why = e
        raise RuntimeError("no node of the fleet answers") from why

    @property
    def url(self) -> str:
        """The address of a node that is up. Every node answers for every session."""
        return self.endpoints()[0]

    def endpoints(self) -> list[str]:
        """Returns the addresses of all nodes that are up. RuntimeError: there is none."""
        found = [f"http://{node['address']}" for node in self._view()["nodes"] if node["state"] == "up"]
        if not found:
            raise RuntimeError("no node of the fleet is up")
        return found

    def client(self, **options: Any) -> Client:
        """Returns a client of a node that is up, with the admin key."""
        return Client(self.url, self.key, **options)

    def nodes(self) -> list[str]:
        """Returns the names of the nodes whose actors live."""
        return sorted(self._living())

    def drain(self, node: str, timeout_s: float = 120.0) -> None:
        """Gives a node's sessions to the others, waits until its gateway has ended, and ends its actor for good. The
        gateway passes requests on to the others for one --fleet-lease before it ends. RuntimeError: it did not end in
        that time."""
        living = self._living()
        if node not in living:
            raise ValueError(f"no node has the name {node!r}; known: {', '.join(sorted(living))}")
        address, actor = living.pop(node)
        self._ask(address, "POST", "/fleet/drain")
        until = time.monotonic() + timeout_s
        try:
            while not ray.get(actor.has_ended.remote(), timeout=ASK_S):
                if time.monotonic() > until:
                    raise RuntimeError(f"the gateway of node {node} has not ended after {timeout_s:g} s")
                time.sleep(0.1)
        except ray.exceptions.RayError as e:
            raise RuntimeError(f"node {node} failed while it was drained") from e
        self._actors.remove(actor)
        ray.kill(actor, no_restart=True)

    def close(self, grace_s: float = 30.0) -> None:
        """Ends all gateways, their actors, and the placement group. The store keeps the sessions."""
        actors, self._actors = self._actors, []
        with contextlib.suppress(ray.exceptions.RayError):
            ray.get([actor.stop.remote(grace_s) for actor in actors], timeout=grace_s + ASK_S)
        for actor in actors:
            ray.kill(actor, no_restart=True)
        group, self._group = self._group, None
        if group is not None:
            remove_placement_group(group)
