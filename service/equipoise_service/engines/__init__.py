"""Engines: SGLang processes of one arm each, from command line to the last process gone.

It owns processes, ports, the wire and the model's files; it knows nothing about verdicts, storage or the API.
"""

from equipoise_service.engines.environment import EngineEnvironment
from equipoise_service.engines.launcher import SGLangLauncher
from equipoise_service.engines.limits import Limits
from equipoise_service.engines.presets import persistent_buffer

__all__ = ["EngineEnvironment", "Limits", "SGLangLauncher", "persistent_buffer"]
