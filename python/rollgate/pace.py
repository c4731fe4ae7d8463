"""How much a trainer submits, and what it keeps: pacing by staleness, over-sampling, filters of groups."""
from __future__ import annotations

import logging
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence

from .client import Client
from .errors import UnknownGroup

log = logging.getLogger("rollgate.pace")
Group = Mapping[str, Any]           # a result, as GET /groups/{id} gives it
Keep = Callable[[Group], bool]


def capacity(version: int, batch: int, max_staleness: int, accepted: int, running: int) -> int:
    """How many more groups may be submitted so that none is older than max_staleness updates when it is trained.
    version: of the policy now; batch: groups of a step; accepted: those taken since version 0; running: those
    submitted and not taken. The rule of AReaL's staleness manager:
    (max_staleness + version + 1) * batch - (accepted + running)."""
    return max(0, (max_staleness + version + 1) * batch - (accepted + running))


class Pace:
    """The same over a queue's own counts: room(version) asks the gateway and says how many groups to submit. Groups that
    its collect and oversample drop are not counted as accepted: nobody trains them, and others may take their places.

    version: of the policy at the start. A trainer that goes on from a checkpoint has used a batch for each before it."""

    def __init__(self, client: Client, queue: str, batch: int, max_staleness: int = 1, version: int = 0):
        if batch < 1 or max_staleness < 0:
            raise ValueError(f"batch must be at least 1 and max_staleness at least 0, not {batch} and {max_staleness}")
        self.client, self.queue, self.batch, self.max_staleness = client, queue, batch, max_staleness
        self._accepted = version * batch
        self._acked = client.queue(queue)["acked_total"]

    def room(self, version: int) -> int:
        """How many groups may be submitted now, for the policy's version."""
        counts = self.client.queue(self.queue)
        if counts["acked_total"] < self._acked:
            log.warning("queue %s counts %d acknowledged groups, %d before: its dispatcher was started anew; those acknowledged since this was last "
                        "asked are not counted", self.queue, counts["acked_total"], self._acked)
        running = counts["waiting"] + counts["running"] + counts["settled"] + counts["taken"]
        self._accepted += max(0, counts["acked_total"] - self._acked)
        self._acked = counts["acked_total"]
        return capacity(version, self.batch, self.max_staleness, self._accepted, running)

    def collect(self, n: int, keep: Sequence[Keep] = (), **collecting: Any) -> tuple[list[Group], list[Group]]:
        """As the function of that name, of this queue."""
        return collect(self.client, self.queue, n, keep, refused=self._refused, **collecting)

    def oversample(self, groups: Iterable[Mapping[str, Any]], n: int, keep: Sequence[Keep] = (),
                   **collecting: Any) -> tuple[list[Group], list[Group], list[str]]:
        """As the function of that name, of this queue."""
        return oversample(self.client, self.queue, groups, n, keep, refused=self._refused, **collecting)

    def _refused(self, n: int) -> None:
        self._accepted -= n


# --- filters ---

def rewards(group: Group) -> list[float]:
    """Of the members that count."""
    return [m["reward"] for m in group["members"] if m["state"] == "succeeded" and m["reward"] is not None]


def varied(group: Group) -> bool:
    """Keeps groups whose rewards differ: equal ones have no advantage (DAPO's dynamic sampling)."""
    known = rewards(group)
    return len(known) >= 2 and bool(max(known) > min(known))


def at_least(n: int) -> Keep:
    """Keeps groups with n members that succeeded."""
    return lambda group: bool(group["succeeded"] >= n)


def fresh(version: Callable[[], int], max_staleness: int) -> Keep:
    """Keeps groups whose oldest token is at most max_staleness versions behind version()."""
    def keep(group: Group) -> bool:
        oldest = group["min_version"] if group["min_version"] is not None else group["version"]
        return oldest is None or version() - oldest <= max_staleness
    return keep


def collect(client: Client, queue: str, n: int, keep: Sequence[Keep] = (), *, wait_s: float = 30.0,
            lease_s: Optional[float] = None,
            progress: Optional[Callable[[Mapping[str, Any], int], None]] = None,
            refused: Optional[Callable[[int], None]] = None) -> tuple[list[Group], list[Group]]:
    """(kept, dropped): takes settled groups of the queue until n pass every filter. The dropped ones are acknowledged, the
    kept ones are the caller's to acknowledge, within lease_s (600 by default) of their last delivery: afterwards they are
    offered again, here or to another trainer of the queue. progress(queue's counts, kept so far) after every answer,
    refused(how many) after every acknowledgement of dropped ones.
    RuntimeError when nothing can come any more: nothing waits or runs, and too few were kept."""
    kept: dict[str, Group] = {}
    dropped: list[Group] = []
    while len(kept) < n:
        answer = client.next(queue, max=min(256, n - len(kept)), wait_s=wait_s, lease_s=lease_s)
        unwanted = []
        for group in answer["groups"]:
            # one that is kept comes again when its lease runs out before enough have come; that leases it anew
            if group["id"] in kept or all(k(group) for k in keep):
                kept[group["id"]] = group
            else:
                dropped.append(group)
                unwanted.append(group["id"])
        if unwanted:
            client.ack(queue, unwanted)
            if refused:
                refused(len(unwanted))
        counts = answer["queue"]
        if progress:
            progress(counts, len(kept))
        if len(kept) < n and not (counts["waiting"] or counts["running"] or counts["settled"]):
            client.give_back(queue, list(kept))
            raise RuntimeError(f"queue {queue} has nothing left: {len(kept)} of {n} groups kept, {len(dropped)} dropped")
    return list(kept.values()), dropped


def oversample(client: Client, queue: str, groups: Iterable[Mapping[str, Any]], n: int, keep: Sequence[Keep] = (),
               **collecting: Any) -> tuple[list[Group], list[Group], list[str]]:
    """(kept, dropped, cancelled ids): submits all of the groups, takes the queue's first n that pass the filters, cancels the
    rest of those submitted here; what else is in the queue stays. Biased to what is fast, as every over-sampling is: the
    cancelled ids are for who submits them again."""
    given: list[Any] = [{**g, "queue": queue} for g in groups]
    submitted = client.submit(given)["groups"]
    kept, dropped = collect(client, queue, n, keep, **collecting)
    taken = {g["id"] for g in (*kept, *dropped)}
    cancelled: list[str] = []
    for group in submitted:
        if group["id"] not in taken:
            try:
                cancelled += client.cancel_group(group["id"])["cancelled"]
            except UnknownGroup:    # somebody else took and acknowledged it
                pass
    return kept, dropped, cancelled
