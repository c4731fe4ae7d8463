"""rollgate from Python: a client of the gateway, trajectories, executors, and adapters of trainers.

    import rollgate
    gateway = rollgate.Client("http://127.0.0.1:8600")
    with gateway.create_session() as session:
        ...                              # an agent talks to session.base_url
    batch = rollgate.pad(session.finalize())

The core needs the standard library alone; arrays need numpy; a trainer's adapter (rollgate.verl, .miles, ...)
imports its trainer. docs/python.md tells all of it.
"""
from .aio import AsyncClient
from .calls import Calls
from .client import Client
from .datasets import Dataset, StreamDataset, dataset
from .errors import Ended, NotFound, Retryable, RollgateError
from .records import Export, Tensors
from .session import AsyncSession, Session
from .trajectory import Trajectory, diff, pack, pad, to_torch

__version__ = "0.1.0"
__all__ = ["AsyncClient", "AsyncSession", "Calls", "Client", "Dataset", "Ended", "Export", "NotFound", "Retryable", "RollgateError", "Session",
           "StreamDataset", "Tensors", "Trajectory", "dataset", "diff", "pack", "pad", "to_torch"]
