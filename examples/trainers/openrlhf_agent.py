# docs/trainers/openrlhf.md explains it.
from rollgate.openrlhf import RollgateExecutor

class AgentExecutor(RollgateExecutor):
    def __init__(self):
        super().__init__("swe", "http://gateway:8600", group={"run_timeout_s": 1800, "attempts": 2})
