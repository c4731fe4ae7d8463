"""What a virtual machine's host takes from it: figures of times that it disturbed are no figures of a program."""

STOLEN_MAX = 0.03   # of all processors' time: more disturbs


def ticks():
    with open("/proc/stat", encoding="ascii") as f:
        parts = [int(x) for x in f.readline().split()[1:9]]
    return sum(parts), parts[7]


class Stolen:
    """The share of all processors' time that the host has taken since this was made, while somebody here could have run."""

    def __init__(self):
        self.before = ticks()

    def share(self):
        total, stolen = (now - then for now, then in zip(ticks(), self.before))
        return stolen / max(total, 1)
