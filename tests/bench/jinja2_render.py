#!/usr/bin/python3
"""Times Python jinja2 as transformers sets it up on bench_template's conversation.

    bench_template TEMPLATE.jinja 200 500 --context | jinja2_render.py TEMPLATE.jinja
"""
import json
import sys
import time

from jinja2.sandbox import ImmutableSandboxedEnvironment

env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
env.filters["tojson"] = lambda x, **kw: json.dumps(x, ensure_ascii=False, **kw)
template = env.from_string(open(sys.argv[1], encoding="utf-8").read())
context = json.load(sys.stdin)
best, end = 1e9, time.process_time() + 2
while time.process_time() < end:
    start = time.process_time()
    out = template.render(**context)
    best = min(best, time.process_time() - start)
print(f"jinja2 {len(out.encode())} bytes: {best * 1e6:.1f} us")
