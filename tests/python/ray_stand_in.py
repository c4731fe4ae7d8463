"""The calls of Ray that rollgate.ray makes, with one process for each actor: placement groups, actors that Ray restarts, get and kill.
install() puts it in the place of the package."""
import multiprocessing
import os
import sys
import threading
import time
import types

FORK = multiprocessing.get_context("fork")


class RayError(Exception):
    pass


class RayActorError(RayError):
    pass


class GetTimeoutError(RayError, TimeoutError):
    pass


class Context:
    was_current_actor_reconstructed = False


CONTEXT = Context()


def serve(kind, arguments, far, again):
    """An actor's process: makes the object, then answers one call after the other."""
    CONTEXT.was_current_actor_reconstructed = again
    try:
        made = kind(*arguments)
    except Exception as e:
        far.send((0, "error", f"{type(e).__name__}: {e}"))
        os._exit(0)
    far.send((0, "value", None))
    while True:
        try:
            number, method, given = far.recv()
        except EOFError:
            os._exit(1)
        try:
            far.send((number, "value", getattr(made, method)(*given)))
        except Exception as e:
            far.send((number, "error", f"{type(e).__name__}: {e}"))


class Ref:
    def __init__(self, wait):
        self.wait = wait


class Method:
    def __init__(self, actor, name):
        self.actor, self.name = actor, name

    def remote(self, *arguments):
        return Ref(lambda timeout: self.actor.call(self.name, arguments, timeout))


class Actor:
    """A handle. A process that ends is replaced, as max_restarts=-1 says."""

    def __init__(self, cluster, kind, arguments, bundle):
        self.cluster, self.kind, self.arguments, self.bundle = cluster, kind, arguments, bundle
        self.lock, self.killed, self.calls, self.starts = threading.Lock(), False, 0, 0
        self.begin(False)
        self.watcher = threading.Thread(target=self.watch, daemon=True)
        self.watcher.start()

    def begin(self, again):
        self.near, far = FORK.Pipe()
        self.process = FORK.Process(target=serve, args=(self.kind, self.arguments, far, again), daemon=True)
        self.process.start()
        far.close()
        self.starts, self.made, self.failed = self.starts + 1, False, None

    def watch(self):
        while True:
            self.process.join()
            with self.lock:
                if self.killed or self.failed or self.process.exitcode == 0:
                    return
                self.near.close()
                self.begin(True)

    def receive(self, number, until):
        while True:
            if not self.near.poll(max(0, until - time.monotonic())):
                raise GetTimeoutError("get timed out")
            found, kind, value = self.near.recv()
            if found == 0:
                self.made, self.failed = kind == "value", value
            if found == number:
                if kind == "error":
                    raise RayActorError(value)
                return value

    def call(self, method, arguments, timeout):
        until = time.monotonic() + (timeout or 60)
        with self.lock:
            if self.killed or self.failed:
                raise RayActorError(self.failed or "the actor was killed")
            try:
                if not self.made:
                    self.receive(0, until)
                self.calls += 1
                self.near.send((self.calls, method, arguments))
                return self.receive(self.calls, until)
            except (EOFError, OSError) as e:
                if isinstance(e, GetTimeoutError):
                    raise
                raise RayActorError("the actor died") from e

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return Method(self, name)


class Remote:
    def __init__(self, cluster, kind, options=None):
        self.cluster, self.kind, self.given = cluster, kind, options or {}

    def options(self, *, num_cpus, max_restarts, scheduling_strategy):
        assert max_restarts == -1 and num_cpus > 0
        return Remote(self.cluster, self.kind, {"strategy": scheduling_strategy})

    def remote(self, *arguments):
        strategy = self.given["strategy"]
        actor = Actor(self.cluster, self.kind, arguments, strategy.placement_group_bundle_index)
        assert strategy.placement_group in self.cluster.groups
        self.cluster.actors.append(actor)
        return actor


class Strategy:
    def __init__(self, placement_group, placement_group_bundle_index):
        self.placement_group, self.placement_group_bundle_index = placement_group, placement_group_bundle_index


class Group:
    def __init__(self, cluster, bundles, strategy):
        assert strategy == "STRICT_SPREAD", strategy
        self.cluster, self.bundles = cluster, bundles

    def ready(self):
        def wait(timeout):
            if len(self.bundles) > self.cluster.nodes:
                time.sleep(min(timeout, 0.2))
                raise GetTimeoutError("get timed out")
            return self
        return Ref(wait)


class Cluster:
    """A Ray cluster of so many nodes, all on this machine."""

    def __init__(self, nodes):
        self.nodes, self.groups, self.actors = nodes, [], []

    def placement_group(self, bundles, strategy):
        self.groups.append(Group(self, bundles, strategy))
        return self.groups[-1]

    def get(self, refs, timeout=None):
        if isinstance(refs, list):
            return [ref.wait(timeout) for ref in refs]
        return refs.wait(timeout)

    def kill(self, actor, no_restart=True):
        assert no_restart
        with actor.lock:
            actor.killed = True
            actor.process.kill()
        actor.watcher.join(20)
        actor.near.close()
        actor.process.close()

    def install(self, monkeypatch):
        """Makes `import ray` find this cluster."""
        def module(name, **members):
            made = types.ModuleType(name)
            made.__dict__.update(members)
            monkeypatch.setitem(sys.modules, name, made)
            return made
        errors = module("ray.exceptions", RayError=RayError, RayActorError=RayActorError, GetTimeoutError=GetTimeoutError)
        group = module("ray.util.placement_group", placement_group=self.placement_group, remove_placement_group=self.groups.remove)
        strategies = module("ray.util.scheduling_strategies", PlacementGroupSchedulingStrategy=Strategy)
        util = module("ray.util", placement_group=group, scheduling_strategies=strategies, get_node_ip_address=lambda: "127.0.0.1")
        module("ray", exceptions=errors, util=util, get=self.get, kill=self.kill, remote=lambda kind: Remote(self, kind),
               get_runtime_context=lambda: CONTEXT)
