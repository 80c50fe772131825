"""Addresses that a request may lead the service to, and those that it may not."""

import pytest

from equipoise_service.access.addresses import address_fault, endpoint

ALLOWED = ("GPU7", "10.0.0.7:30000")


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1:30000", "http://127.9.9.9:1", "http://localhost:30000", "http://[::1]:30000",
        "https://gpu7:443", "http://gpu7:30000", "http://Gpu7:30000", "http://10.0.0.7:30000",
    ],
)  # fmt: skip
def test_the_loopback_and_what_is_allowed(address: str) -> None:
    assert address_fault(address, ALLOWED) is None


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("http://10.0.0.7:30001", "neither this machine's loopback nor among EQUIPOISE_ATTACH_HOSTS"),
        ("http://169.254.169.254:80", "neither this machine's loopback"),
        ("http://localhost.evil.example:80", "neither this machine's loopback"),
        ("http://0.0.0.0:80", "neither this machine's loopback"),
        ("http://2130706433:80", "neither this machine's loopback"),
        ("http://127.0.0.1", "a host and a port, and nothing else"),
        ("http://127.0.0.1:30000/", "nothing else"),
        ("http://127.0.0.1:30000/generate", "nothing else"),
        ("http://127.0.0.1:30000?x", "nothing else"),
        ("http://a@127.0.0.1:30000", "nothing else"),
        ("http://127.0.0.1:30000\n", "nothing else"),
        ("http://127.0.0.1:30000\\@10.0.0.8", "nothing else|is no address"),
        ("http://:30000", "nothing else"),
        ("file:///etc/passwd", "must be http"),
        ("127.0.0.1:30000", "must be http|is no address"),
        ("http://127.0.0.1:port", "is no address"),
        ("http://[::1:30000", "is no address"),
        ("", "must be http"),
    ],
)
def test_every_other_address_is_refused_with_the_reason(address: str, says: str) -> None:
    fault = address_fault(address, ALLOWED)
    assert fault is not None
    assert any(one in fault for one in says.split("|"))


def test_one_engine_has_one_endpoint_by_whatever_name() -> None:
    names = ("http://127.0.0.1:30000", "http://localhost:30000", "http://LOCALHOST:30000", "http://[::1]:30000")
    assert {endpoint(name) for name in names} == {("localhost", 30000)}
    assert endpoint("http://GPU7:30000") == endpoint("https://gpu7:30000") == ("gpu7", 30000)
    assert endpoint("http://127.0.0.1:30001") != endpoint("http://127.0.0.1:30000")
