"""--listen with a name of several addresses: localhost is 127.0.0.1 and ::1. The gateway always answers on both."""
import http.client
import os
import signal
import socket

import pytest

import gateway as g


def answers(gateway, host):
    c = http.client.HTTPConnection(host, gateway.port, timeout=20)
    try:
        c.request("GET", "/health")
        return c.getresponse().status == 200
    finally:
        c.close()


def both(gateway):
    return all(answers(gateway, host) for host in ("127.0.0.1", "::1") for _ in range(4))


@pytest.fixture(name="ipv6")
def fixture_ipv6():
    with socket.socket(socket.AF_INET6) as s:
        try:
            s.bind(("::1", 0))
        except OSError:
            pytest.skip("no IPv6 on the loopback here")


@pytest.fixture(name="local")
def fixture_local(start, ipv6):
    assert start
    gateway = g.Gateway(workers=1, routers=2)
    gateway.settings["listen"] = f"localhost:{gateway.port}"
    return gateway.start()


def test_localhost_is_both_addresses(local):
    assert both(local)
    assert local.has_line(f"serving .*listen=127.0.0.1:{local.port}")


def test_both_stay_when_routers_come_and_go(local):
    os.kill(local.child("router-0"), signal.SIGKILL)
    local.allow("process died", "router-0")
    local.wait_line("process died process=router-0")
    assert both(local)
    g.wait_until(lambda: local.child("router-0"), 20, "a successor")
    assert both(local)


def test_both_stay_through_an_upgrade(local):
    before = set(local.family()) - {local.process.pid}      # it execs itself
    local.signal(signal.SIGUSR2)
    g.wait_until(lambda: local.log().count(" serving ") == 2, 60, "the successor serves")
    g.wait_until(lambda: not before & set(local.family()), 30, "the old processes end")
    assert both(local)


def test_the_address_that_is_taken_is_named(start, ipv6):
    assert start
    gateway = g.Gateway(workers=1)
    gateway.settings["listen"] = f"localhost:{gateway.port}"
    gateway.allow("cannot listen")
    with socket.socket(socket.AF_INET6) as s:
        s.bind(("::1", gateway.port))
        s.listen()
        gateway.start(wait=False)
        assert gateway.wait() != 0
    assert f"cannot listen on [::1]:{gateway.port}: Address already in use" in gateway.log()


def test_a_name_without_keys_listens_on_loopback_alone(start):
    """A name is exposed when any of its addresses is."""
    assert start
    gateway = g.Gateway(workers=1, listen=f"0.0.0.0:{g.free_port()}")
    gateway.allow("keys")
    gateway.start(wait=False)
    assert gateway.wait() != 0 and "listening beyond loopback needs keys" in gateway.log()
