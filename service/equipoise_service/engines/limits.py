"""Time limits of an engine's life, by stage. Every wait in this package has one."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Seconds.

    Attributes:
        start_idle_s: A starting engine whose log does not grow for this long hangs.
        start_s: The longest start, however much it logs.
        first_generation_s: The first answer, kernel compilation included.
        request_s: One request, a whole decode block included.
        trace_s: From the end of the traced steps to a complete trace file.
        stop_grace_s: From SIGTERM to SIGKILL. An engine has nothing left to save then, and SGLang would take the end of
            its scheduler for a crash and sleep 5 s before its own end.
        memory_s: From the end of an engine's last process until its device memory is free again.
    """

    start_idle_s: float = 300.0
    start_s: float = 1200.0
    first_generation_s: float = 300.0
    request_s: float = 600.0
    trace_s: float = 300.0
    stop_grace_s: float = 1.0
    memory_s: float = 60.0
