"""prime-rl and verifiers: an environment's episode, and the samples that prime-rl's orchestrator makes of its trace."""
import types

import own

own.use("verifiers", "prime-rl", without=["ray", "transformers", "datasets", "wandb", "prime_sandboxes", "renderers", "mcp", "anthropic", "pydantic_config",
                                          "tyro", "textual", "prime_tunnel", "jaxtyping", "math_verify"])

import pydantic     # noqa: E402
import pydantic._internal._generate_schema as schemas     # noqa: E402
import pydantic_config     # noqa: E402

pydantic_config.BaseConfig = pydantic.BaseModel
unsubstituted = schemas.GenerateSchema._unsubstituted_typevar_schema


def by_default(self, typevar):
    """Debian's pydantic takes no TypeVar with a bound and a default, as verifiers has: by its default, then."""
    try:
        return unsubstituted(self, typevar)
    except NotImplementedError:
        return self.generate_schema(typevar.__default__)


schemas.GenerateSchema._unsubstituted_typevar_schema = by_default

import verifiers.v1 as vf     # noqa: E402
from prime_rl.orchestrator.trajectories import trace_to_samples     # noqa: E402

import rollgate.prime_rl     # noqa: E402
from test_adapters import ONCE, run     # noqa: E402


def test_samples_are_what_the_engine_sampled(place, monkeypatch):
    monkeypatch.setattr(vf.Env, "__init__", lambda self, config: setattr(self, "config", config))     # which loads a taskset's packages
    config = rollgate.prime_rl.RollgateEnvConfig(id="rollgate-prime-rl", runner="agent", url=place.url, group=ONCE)
    env = rollgate.prime_rl.RollgateEnv(config)
    data = vf.TaskData(idx=1, prompt="shares")
    ctx = types.SimpleNamespace(model="m", client=None, sampling=None)
    episode = run(env.run_episode(types.SimpleNamespace(data=data, key="k", hash="h"), ctx))
    assert type(episode) is vf.Episode and episode.ok
    (trace,) = episode.traces
    samples = trace_to_samples(trace)
    assert len(samples) == 2
    place.check([(s.token_ids, [int(m) for m in s.mask], s.logprobs) for s in samples])
