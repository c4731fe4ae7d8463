"""Packages that the peers' suites import and a machine may lack, as far as the suites use them: HTTP clients over the standard library,
the classes of fastapi that errors and streams come in, a ray whose actors are objects, names of torch, safetensors' reader, asyncio tests."""
import asyncio
import concurrent.futures
import contextlib
import http.client
import importlib.util
import inspect
import json
import struct
import sys
import threading
import types
from urllib.parse import urlsplit

import numpy


def module(name, **members):
    """A module of that name with these members, unless the real one is installed; its parents, too."""
    if name not in sys.modules and not _is_installed(name):
        made = types.ModuleType(name)
        made.__path__ = []
        made.__spec__ = importlib.util.spec_from_loader(name, None, is_package=True)
        sys.modules[name] = made
    if getattr(sys.modules.get(name), "__file__", None) is None and name in sys.modules:
        for key, value in members.items():
            setattr(sys.modules[name], key, value)
        parent, _, own = name.rpartition(".")
        if parent:
            module(parent)
            if parent in sys.modules:
                setattr(sys.modules[parent], own, sys.modules[name])


def _is_installed(name):
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


# --- HTTP clients ---

class Headers(dict):
    def __getitem__(self, name):
        return super().__getitem__(name.lower())

    def get(self, name, default=None):
        return super().get(name.lower(), default)


class Response:
    def __init__(self, status, headers, body):
        self.status_code, self.headers, self.content = status, headers, body

    @property
    def text(self):
        return self.content.decode("utf-8", "replace")

    def json(self):
        return json.loads(self.content)


def send(method, url, body=None, headers=None, timeout=30.0):
    """One request on its own connection."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=4 * (timeout or 30))
    try:
        connection.request(method, parts.path + ("?" + parts.query if parts.query else ""), body=body, headers=headers or {})
        answer = connection.getresponse()
        return Response(answer.status, Headers({k.lower(): v for k, v in answer.getheaders()}), answer.read())
    finally:
        connection.close()


def _request(method):
    def call(url, json=None, data=None, headers=None, timeout=30.0):
        body, headers = _body(json, data, headers)
        return send(method, url, body, headers, timeout)
    return call


def _body(value, data, headers):
    headers = dict(headers or {})
    if value is not None:
        data = json.dumps(value)
        headers.setdefault("Content-Type", "application/json")
    return data, headers


class ASGITransport:
    def __init__(self, app, raise_app_exceptions=True):
        self.app = app


class AsyncClient:
    """`transport` names the app of a port, whose gateway and session ids take the place of the base URL and its ids."""

    def __init__(self, transport=None, base_url="", timeout=30.0, **_):
        self.app, self.base_url, self.timeout = transport.app if transport else None, base_url, timeout

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    async def post(self, url, json=None, content=None, headers=None):
        body, headers = _body(json, content, headers)
        url = self.app.url_of(url) if self.app else self.base_url + url
        return await asyncio.to_thread(send, "POST", url, body, headers, self.timeout)

    @contextlib.asynccontextmanager
    async def stream(self, method, url, json=None):
        body, headers = _body(json, None, None)
        yield StreamedResponse(await asyncio.to_thread(send, method, url, body, headers, self.timeout))


class StreamedResponse:
    def __init__(self, whole):
        self.status_code, self.headers, self._whole = whole.status_code, whole.headers, whole

    async def aread(self):
        return self._whole.content

    async def aiter_lines(self):
        for line in self._whole.text.splitlines():
            yield line


# --- fastapi ---

class HTTPException(Exception):
    def __init__(self, status_code, detail=None):
        super().__init__(status_code, detail)
        self.status_code, self.detail = status_code, detail

    def __str__(self):
        return f"{self.status_code}: {self.detail}"


class PlainResponse:
    def __init__(self, content=None, status_code=200, headers=None, media_type=None, **_):
        self.body, self.status_code, self.headers = content, status_code, headers or {}


class JSONResponse(PlainResponse):
    def __init__(self, content=None, status_code=200, **more):
        super().__init__(json.dumps(content).encode(), status_code, **more)


class StreamingResponse(PlainResponse):
    def __init__(self, content, **more):
        super().__init__(None, **more)
        self.body_iterator = content


# --- ray: an actor is an object, whose coroutines run in a loop of their own ---

_loop = None


def actor_loop():
    global _loop
    if _loop is None:
        _loop = asyncio.new_event_loop()
        threading.Thread(target=_loop.run_forever, daemon=True).start()
    return _loop


class ActorMethod:
    def __init__(self, function):
        self.function = function

    def remote(self, *args, **kwargs):
        if inspect.iscoroutinefunction(self.function):
            return asyncio.run_coroutine_threadsafe(self.function(*args, **kwargs), actor_loop())
        done = concurrent.futures.Future()
        done.set_result(self.function(*args, **kwargs))
        return done


class Actor:
    def __init__(self, inner):
        self._inner = inner

    def __getattr__(self, name):
        return ActorMethod(getattr(self._inner, name))


def actor_class(made):
    class Remote:
        @staticmethod
        def remote(*args, **kwargs):
            return Actor(made(*args, **kwargs))
    return Remote


# --- safetensors ---

DTYPES = {"I64": numpy.int64, "I32": numpy.int32, "U8": numpy.uint8, "F64": numpy.float64, "F32": numpy.float32, "F16": numpy.float16}


def load_safetensors(raw):
    (size,) = struct.unpack_from("<Q", raw)
    head = json.loads(raw[8:8 + size])
    out = {}
    for name, of in head.items():
        if name != "__metadata__":
            begin, end = of["data_offsets"]
            out[name] = numpy.frombuffer(raw[8 + size + begin:8 + size + end], DTYPES[of["dtype"]]).reshape(of["shape"])
    return out


def install():
    module("requests", Response=Response, get=_request("GET"), post=_request("POST"), delete=_request("DELETE"), put=_request("PUT"))
    module("httpx", AsyncClient=AsyncClient, ASGITransport=ASGITransport, Response=Response, HTTPError=OSError)
    module("fastapi", HTTPException=HTTPException, FastAPI=type("FastAPI", (), {}), Request=type("Request", (), {}))
    module("fastapi.responses", JSONResponse=JSONResponse, StreamingResponse=StreamingResponse, Response=PlainResponse)
    module("ray", init=lambda *_, **__: None, shutdown=lambda: None, get=lambda f: f.result(120), remote=actor_class)
    module("torch", Tensor=numpy.ndarray, dtype=numpy.dtype, __getattr__=lambda name: type(name, (), {}))
    module("safetensors")
    module("safetensors.numpy", load=load_safetensors)


def pytest_pyfunc_call(pyfuncitem):
    """Tests that are coroutines run, with or without pytest-asyncio."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}))
    return True


def pytest_configure(config):
    config.addinivalue_line("markers", "asyncio: a coroutine")
