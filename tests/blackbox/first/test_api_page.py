"""docs/api.md: every route has an example, and the gateway gives the answers of the examples."""
import sys

import gateway as g
from test_docs import page

sys.path.insert(0, str(g.ROOT / "scripts"))
import reference  # noqa: E402


def test_the_examples_are_played_and_the_page_shows_them(start, tmp_path):
    gateway = start(engine="builtin:echo", workers=1, routers=1, sink=f"file:{tmp_path}/out")
    api = gateway.get("/openapi.json").json()
    routes = {f"{method.upper()} {path}" for path, item in api["paths"].items() for method in item}
    assert {step["route"] for step in reference.steps()} == routes
    played = reference.play(f"http://127.0.0.1:{gateway.port}", reference.steps())
    assert reference.api_page(api, played) == page("api.md")
