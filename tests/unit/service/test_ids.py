import uuid

from equipoise_service.ids import new_id

# RFC 9562, appendix A.6: the UUIDv7 of 2022-02-22 14:22:22.00 GMT-05:00 begins with its milliseconds, 017F22E279B0.
RFC_TIME_NS = 1_645_557_742_000_000_000


def test_layout_is_that_of_the_rfc() -> None:
    made = uuid.UUID(new_id(RFC_TIME_NS))
    assert made.hex[:12].upper() == "017F22E279B0"
    assert (made.version, made.variant) == (7, uuid.RFC_4122)


def test_ids_sort_by_time_within_a_millisecond() -> None:
    times = range(RFC_TIME_NS, RFC_TIME_NS + 2_000_000, 500)
    ids = [new_id(time_ns) for time_ns in times]
    assert ids == sorted(ids)


def test_ids_of_one_instant_differ() -> None:
    assert len({new_id(RFC_TIME_NS) for _ in range(1000)}) == 1000
