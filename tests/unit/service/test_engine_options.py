import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise_service.access.engine_options import FLAGS, VARIABLES, flag_faults, variable_faults
from equipoise_service.engines.presets import CPU_ENVIRONMENT, CPU_FLAGS, CUDA_FLAGS

PLUGIN = Path(__file__).resolve().parents[3] / "docs" / "plugin.md"
HARMLESS = re.compile(r"(--[a-z0-9-]+(=[A-Za-z0-9_.+-]+)?|[A-Za-z0-9_.+-]+)")


def reasons(*flags: str) -> list[str]:
    return [fault.detail for fault in flag_faults(flags, "/f", {})]


@pytest.mark.parametrize("flags", [CPU_FLAGS, CUDA_FLAGS, ("--cuda-graph-bs-decode", "1", "16")])
def test_what_a_preset_sets_a_request_may_change(flags: tuple[str, ...]) -> None:
    assert flag_faults(flags, "/f", {}) == []
    assert variable_faults(CPU_ENVIRONMENT, "/e", {}) == []


def test_what_the_plugin_documents_for_arms_may_be_set() -> None:
    rows = re.findall(r"^\| `(EQUIPOISE_[A-Z_]+)`", PLUGIN.read_text(), re.M)
    own = {"EQUIPOISE_ARM", "EQUIPOISE_STEP_LOG", "EQUIPOISE_LAUNCH_ID", "EQUIPOISE_START_GATE"}
    assert own < set(rows)
    assert set(rows) - own <= set(VARIABLES)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--page-size",), "needs a whole number"),
        (("--page-size", "x"), "needs a whole number, not 'x'"),
        (("--page-size", "6.4"), "needs a whole number"),
        (("--page-size", "1", "2"), "takes one value, not 2"),
        (("--mem-fraction-static", "0.3.1"), "needs a number"),
        (("--mem-fraction-static", "nan"), "needs a number"),
        (("--sleep-on-idle=1",), "takes no value"),
        (("--sleep-on-idle=",), "takes no value"),
        (("--dtype", "a b"), "one word"),
        (("--dtype", "../x"), "one word"),
        (("--dtype", "a/b"), "one word"),
        (("--cuda-graph-bs", "1", "x"), "whole numbers, not 'x'"),
        (("64",), "'64' is not among the flags"),
        (("--trust-remote-code",), "EQUIPOISE_REMOTE_CODE"),
        (("--trust-remote-code=true",), "EQUIPOISE_REMOTE_CODE"),
        (("--trust-remote",), "EQUIPOISE_ALLOW_FLAGS"),
    ],
)
def test_a_refused_flag_says_why(flags: tuple[str, ...], says: str) -> None:
    (why,) = reasons(*flags)
    assert says in why


def test_every_fault_is_named_at_its_place() -> None:
    faults = flag_faults(("--sleep-on-idle", "--nothing", "x", "--page-size", "64", "--dtype="), "/f", {})
    assert [fault.pointer for fault in faults] == ["/f/1", "/f/5"]


def test_negative_numbers_are_values() -> None:
    assert reasons("--chunked-prefill-size", "-1") == []
    assert reasons("--schedule-conservativeness", "-0.5") == []


def test_a_switch_is_no_variable() -> None:
    assert "is a switch" in variable_faults({"X": "1"}, "/e", {"X": "switch"})[0].detail


@given(st.lists(st.one_of(st.sampled_from(sorted(FLAGS)), st.text(max_size=20), st.integers().map(str)), max_size=6))
def test_nothing_that_passes_means_anything_to_a_shell(flags: list[str]) -> None:
    if not flag_faults(flags, "/f", {}):
        assert all(HARMLESS.fullmatch(flag) for flag in flags)


@given(st.dictionaries(st.one_of(st.sampled_from(sorted(VARIABLES)), st.text(max_size=12)), st.text(max_size=12)))
def test_no_variable_that_passes_means_anything_to_a_shell(variables: dict[str, str]) -> None:
    if not variable_faults(variables, "/e", {}):
        assert set(variables) <= set(VARIABLES)
        assert all(HARMLESS.fullmatch(value) for value in variables.values())
