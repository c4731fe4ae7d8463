"""rollgate from Python: a client of the gateway, trajectories, executors, and adapters of trainers.

    import rollgate
    gateway = rollgate.Client("http://127.0.0.1:8600")
    session = gateway.create_session()
    ...                                  # an agent talks to session["base_url"]
    export = gateway.finalize(session["session_id"])
    batch = rollgate.pad(export)

The core needs the standard library alone; arrays need numpy; a trainer's adapter (rollgate.verl, .miles, ...)
imports its trainer. docs/python.md tells all of it.
"""
from .aio import AsyncClient
from .calls import Calls
from .client import Client
from .errors import RollgateError
from .records import Export, Tensors
from .trajectory import Trajectory, diff, pack, pad, to_torch

__version__ = "0.1.0"
__all__ = ["AsyncClient", "Calls", "Client", "Export", "RollgateError", "Tensors", "Trajectory", "diff", "pack", "pad", "to_torch"]
