"""Result files of other benchmarks, read for judgement only."""

from equipoise_service.results.read import ResultFileError, read_runs

__all__ = ["ResultFileError", "read_runs"]
