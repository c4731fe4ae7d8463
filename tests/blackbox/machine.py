"""Measures the time that a virtual machine's host takes away. Measurements with much of it say nothing about a
program."""

STOLEN_MAX = 0.03   # largest share of all processors' time in a valid measurement


def ticks():
    with open("/proc/stat", encoding="ascii") as f:
        parts = [int(x) for x in f.readline().split()[1:9]]
    return sum(parts), parts[7]


class Stolen:
    """The share of all processors' time that the host has taken since this object was made, while a process could
    have run."""

    def __init__(self):
        self.before = ticks()

    def share(self):
        total, stolen = (now - then for now, then in zip(ticks(), self.before))
        return stolen / max(total, 1)
