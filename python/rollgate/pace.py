"""How many groups a trainer submits, and which it keeps: pacing by staleness, over-sampling, filters of groups."""
from __future__ import annotations

import logging
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence

from .client import Client
from .errors import GroupLost, UnknownGroup

log = logging.getLogger("rollgate.pace")
Group = Mapping[str, Any]           # a result of GET /groups/{id}
Keep = Callable[[Group], bool]


def capacity(version: int, batch: int, max_staleness: int, accepted: int, running: int) -> int:
    """Returns how many more groups may be submitted so that none is older than max_staleness updates when it is
    trained. version: the policy's current version; batch: groups of a step; accepted: groups taken since version 0;
    running: groups submitted and not taken. The rule of AReaL's staleness manager: (max_staleness + version + 1) *
    batch - (accepted + running)."""
    return max(0, (max_staleness + version + 1) * batch - (accepted + running))


class Pace:
    """capacity() with a queue's own counts: room(version) returns the number of groups to submit. Groups that its
    collect and oversample drop do not count as accepted, because they are not trained.

    version: the policy's version at the start. A trainer that continues from a checkpoint has used a batch for each
    earlier one."""

    def __init__(self, client: Client, queue: str, batch: int, max_staleness: int = 1, version: int = 0):
        if batch < 1 or max_staleness < 0:
            raise ValueError(f"batch must be at least 1 and max_staleness at least 0, not {batch} and {max_staleness}")
        self.client, self.queue, self.batch, self.max_staleness = client, queue, batch, max_staleness
        self._accepted = version * batch
        self._acked = client.queue(queue)["acked_total"]

    def room(self, version: int) -> int:
        """Returns how many groups may be submitted now, for the policy's version."""
        counts = self.client.queue(self.queue)
        if counts["acked_total"] < self._acked:
            log.warning("queue %s counts %d acknowledged groups, %d before: its dispatcher was started anew; those acknowledged since this was last "
                        "asked are not counted", self.queue, counts["acked_total"], self._acked)
        running = counts["waiting"] + counts["running"] + counts["settled"] + counts["taken"]
        self._accepted += max(0, counts["acked_total"] - self._acked)
        self._acked = counts["acked_total"]
        return capacity(version, self.batch, self.max_staleness, self._accepted, running)

    def collect(self, n: int, keep: Sequence[Keep] = (), **collecting: Any) -> tuple[list[Group], list[Group]]:
        """Like the function collect, for this queue."""
        return collect(self.client, self.queue, n, keep, refused=self._refused, **collecting)

    def oversample(self, groups: Iterable[Mapping[str, Any]], n: int, keep: Sequence[Keep] = (),
                   **collecting: Any) -> tuple[list[Group], list[Group], list[str]]:
        """Like the function oversample, for this queue."""
        return oversample(self.client, self.queue, groups, n, keep, refused=self._refused, **collecting)

    def _refused(self, n: int) -> None:
        self._accepted -= n


# --- filters ---

def rewards(group: Group) -> list[float]:
    """Returns the rewards of the members that count."""
    return [m["reward"] for m in group["members"] if m["state"] == "succeeded" and m["reward"] is not None]


def varied(group: Group) -> bool:
    """Keeps groups with different rewards: equal ones have no advantage (DAPO's dynamic sampling)."""
    known = rewards(group)
    return len(known) >= 2 and bool(max(known) > min(known))


def at_least(n: int) -> Keep:
    """Keeps groups with at least n succeeded members."""
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
    """Takes settled groups of the queue until n pass every filter. Returns (kept, dropped). Dropped ones are
    acknowledged. The caller acknowledges the kept ones within lease_s (600 by default) of their last delivery;
    afterwards they are offered again, here or to another trainer of the queue. progress(queue's counts, kept so far)
    is called after every answer, refused(number) after every acknowledgement of dropped ones. Raises RuntimeError if
    nothing waits or runs any longer, and too few were kept."""
    kept: dict[str, Group] = {}
    dropped: list[Group] = []
    while len(kept) < n:
        answer = client.next(queue, max=min(256, n - len(kept)), wait_s=wait_s, lease_s=lease_s)
        unwanted = []
        for group in answer["groups"]:
            # if the lease of a kept group ends before enough have arrived, it is delivered again, with a new lease
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
    """Submits all of the groups, takes the queue's first n that pass the filters, and cancels the other submitted
    ones. Returns (kept, dropped, cancelled ids). Other groups of the queue stay. Favours fast groups, as every
    over-sampling does: the caller can submit the cancelled ids again."""
    given: list[Any] = [{**g, "queue": queue} for g in groups]
    submitted = client.submit(given)["groups"]
    kept, dropped = collect(client, queue, n, keep, **collecting)
    taken = {g["id"] for g in (*kept, *dropped)}
    cancelled: list[str] = []
    for group in submitted:
        if group["id"] not in taken:
            try:
                cancelled += client.cancel_group(group["id"])["cancelled"]
            except (UnknownGroup, GroupLost):   # another trainer took and acknowledged it
                pass
    return kept, dropped, cancelled
