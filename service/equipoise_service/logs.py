"""The service's log lines: each with the comparison that it belongs to, none with a secret; as text, or as JSON.

The comparison is a context variable, so whatever runs for it names it, in tasks and in threads of
``asyncio.to_thread``; a line about a comparison from elsewhere says ``extra={"comparison": id}``.
"""

import json
import logging
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Literal, TextIO

from equipoise_service.access.secrets import redacted

Format = Literal["text", "json"]

comparison: ContextVar[str | None] = ContextVar("comparison", default=None)
"""Id of the comparison for which the current code runs."""

_OWN = set(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "comparison", "taskName"}


class TextFormatter(logging.Formatter):
    """``2026-11-30T09:00:00.000Z INFO equipoise_service.worker [id] message``, and the traceback below."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, or more with a traceback."""
        named = _comparison(record)
        about = f" [{named}]" if named else ""
        line = f"{_time(record)} {record.levelname} {record.name}{about} {record.getMessage()}"
        trace = _trace(self, record)
        return redacted(f"{line}\n{trace}" if trace else line)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: ``time``, ``level``, ``logger``, ``message``, ``comparison``, and any ``extra``."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        fields: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if (named := _comparison(record)) is not None:
            fields["comparison"] = named
        fields |= {name: value for name, value in record.__dict__.items() if name not in _OWN}
        if trace := _trace(self, record):
            fields["exception"] = trace
        return redacted(json.dumps(fields, default=str, ensure_ascii=False))


def configure(level: str, form: Format, stream: TextIO | None = None) -> None:
    """Send every log line of this process to standard error, or to ``stream``, in one format."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # Its lines at INFO hold whole addresses, those of webhooks among them.
    logging.getLogger("httpx").setLevel(max(logging.WARNING, logging.getLogger().level))


def _comparison(record: logging.LogRecord) -> str | None:
    named: str | None = getattr(record, "comparison", None)
    return named or comparison.get()


def _time(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return formatter.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""
