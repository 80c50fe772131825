"""The command line ``equipoise``. Light to import: what a command needs is imported when it is called."""

from equipoise_service.cli.main import main

__all__ = ["main"]
