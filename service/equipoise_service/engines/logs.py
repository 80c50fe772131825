"""Engine logs: the tail that goes into errors, the lines whose meaning is known, and secrets, which are taken out.

Logs are files written by the engine itself, so that no pipe can fill up and block it; its supervisor keeps them short.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple

from equipoise_service.access.secrets import redacted

TAIL_BYTES = 32_768
TAIL_LINES = 40
LIMIT_BYTES = 32 * 1024 * 1024
SECRET_NAMES = ("TOKEN", "SECRET", "PASSWORD", "CREDENTIAL", "API_KEY")
"""A variable whose name holds one of these holds a secret."""
SHORTEST_SECRET = 8
"""Shorter values, such as ``1`` or ``true``, are no secrets and stand in every log."""
REMOVED = "[removed]"


class KnownReason(NamedTuple):
    """A log line that names the cause of a failed start.

    Attributes:
        name: Short name, by which others tell it.
        pattern: What the line looks like.
        remedy: One sentence: what happened and what to do.
        stage: The stage that failed, where that is not the one in which the engine ended.
        of_memory: Whether the device's memory did not suffice.
    """

    name: str
    pattern: re.Pattern[str]
    remedy: str
    stage: str | None = None
    of_memory: bool = False


KNOWN_REASONS: tuple[KnownReason, ...] = (
    KnownReason(
        "oom_at_graph_capture",
        re.compile(r"capture cuda graph failed.*out of memory|out of memory.*capture cuda graph", re.I | re.S),
        "the device ran out of memory while CUDA graphs were captured; give both arms a smaller --max-total-tokens",
        of_memory=True,
    ),
    KnownReason(
        "no_memory_for_kv_cache",
        re.compile(r"leave(?:s)? no (?:GPU )?memory for the KV cache|Not enough memory\. Please try to increase", re.I),
        "the weights leave no memory for the KV cache; free the device or use a smaller model",
        of_memory=True,
    ),
    KnownReason(
        "address_in_use",
        re.compile(r"address already in use|EADDRINUSE", re.I),
        "a port that was free when it was chosen was taken before the engine bound it",
    ),
    KnownReason(
        "unknown_flag",
        re.compile(r"unrecognized arguments?: .*|error: argument [^\n]*: invalid choice: [^\n]*", re.I),
        "this SGLang version does not know a flag of the arm",
    ),
    KnownReason(
        "plugin_missing",
        # On a CPU SGLang cannot even start without the plugin, so that it never gets to be asked for its attestation.
        re.compile(r"SGLANG_PLATFORM=\S+ not found in discovered platform plugins"),
        "the engine cannot attest its arm: the Equipoise plugin is missing from its environment",
        stage="attest",
    ),
    KnownReason(
        "interpreter_missing",
        re.compile(r"^supervisor: cannot run ", re.M),
        "the engine's interpreter cannot be run; EQUIPOISE_ENGINE_PYTHON must name one that has SGLang",
    ),
    KnownReason(
        "module_missing",
        re.compile(r"No module named \S+"),
        "the engine's environment is not complete",
    ),
    KnownReason(
        "out_of_memory",
        re.compile(r"CUDA out of memory|MemoryError|std::bad_alloc", re.I),
        "the engine ran out of memory",
        of_memory=True,
    ),
    KnownReason(
        "scheduler_crashed",
        re.compile(r"Subprocess scheduler_\d+ \(pid=\d+\) crashed with exit code -?\d+"),
        "the engine's scheduler process ended unexpectedly; its log says with which exit code",
    ),
)
"""In order of precedence: the first that matches names the failure."""


def create(path: Path) -> BinaryIO:
    """A new log that only its owner can read, opened for appending, since it is cut short while it is written to."""
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600), "r+b", buffering=0)


def is_secret(name: str) -> bool:
    """Whether a variable of this name holds a secret."""
    return any(word in name.upper() for word in SECRET_NAMES)


def secrets_of(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The values that must stand in no log."""
    return tuple(v for name, v in environment.items() if is_secret(name) and len(v) >= SHORTEST_SECRET)


def without_secrets(text: str, secrets: tuple[str, ...]) -> str:
    """A text in which these secrets, and whatever has the form of a token, are replaced by a mark."""
    for secret in secrets:
        text = text.replace(secret, REMOVED)
    return redacted(text)


def remove_secrets(path: Path, secrets: tuple[str, ...]) -> None:
    """Take secrets out of a log that nobody writes to any more, and out of what was rotated away from it."""
    for log in (path, path.with_name(f"{path.name}.1")):
        if size(log) == 0:
            continue
        # Latin-1 gives every byte back as it was, whatever an engine printed.
        text = log.read_bytes().decode("latin-1")
        clean = without_secrets(text, tuple(secret.encode().decode("latin-1") for secret in secrets))
        if clean != text:
            with log.open("r+b") as stream:  # over the old text, for which a full disk has room
                stream.write(clean.encode("latin-1"))
                stream.truncate()


def size(path: Path) -> int:
    """Bytes written so far; 0 before the file exists, which is the state just after a start."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def mentions(path: Path, text: str) -> bool:
    """Whether a log holds a text; False before the file exists."""
    return size(path) > 0 and text.encode() in path.read_bytes()


def tail(path: Path, *, lines: int = TAIL_LINES, limit_bytes: int = TAIL_BYTES) -> str:
    """The last lines of a log, reading at most ``limit_bytes`` of it however long it is."""
    if size(path) == 0:
        return ""
    with path.open("rb") as log:
        log.seek(0, os.SEEK_END)
        log.seek(max(0, log.tell() - limit_bytes))
        text = log.read().decode("utf-8", errors="replace")
    return "\n".join(text.splitlines()[-lines:])


def known_reason(text: str) -> KnownReason | None:
    """The first known reason that a log names."""
    return next((reason for reason in KNOWN_REASONS if reason.pattern.search(text)), None)
