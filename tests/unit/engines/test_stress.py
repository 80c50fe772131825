"""How the ends of stress requests are counted, and what of an engine decides their size."""

import pytest

from equipoise_service.engines.stress import Capacity, Ended, UnknownCapacity, capacity, stressed


def test_the_size_is_what_the_scheduler_reports() -> None:
    # Of SmolLM2 on SGLang 0.5.17 and later: a context of 8,192 tokens, less one, less five (`get_worker_info`).
    info = {"max_total_num_tokens": 65_536, "max_req_input_len": 8_186, "max_total_tokens": 1}
    assert capacity(info) == Capacity(65_536, 8_186)


@pytest.mark.parametrize("missing", ["max_total_num_tokens", "max_req_input_len"])
def test_an_engine_that_does_not_say_its_size_is_refused(missing: str) -> None:
    info = {"max_total_num_tokens": 65_536, "max_req_input_len": 8_186}
    del info[missing]
    with pytest.raises(UnknownCapacity, match=f"{missing} None"):
        capacity(info)


def test_each_request_is_counted_by_how_the_engine_ended_it() -> None:
    ends = [Ended("length"), Ended("abort"), Ended(None, "HTTP 500"), Ended("length"), Ended(None, "reset")]
    phase = stressed("aborts", ends, {"guard": {"state": "clean", "checks": 4}})
    assert (phase.requests, phase.finished, phase.aborted, phase.failed) == (5, 2, 1, 2)
    assert (phase.guard, phase.guard_checks, phase.first_error) == ("clean", 4, "HTTP 500")
    assert stressed("full_pool", [Ended("length")], {"guard": {"state": "clean", "checks": 4}}).first_error is None


def test_a_guard_that_says_nothing_is_no_clean_guard() -> None:
    with pytest.raises(ValueError, match="guard"):
        stressed("aborts", [Ended("length")], {})
