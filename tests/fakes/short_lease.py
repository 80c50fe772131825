"""``equipoise serve`` with a lease of two seconds, so that no test waits a minute until a service is given up."""

import sys
from unittest import mock

from equipoise_service import service
from equipoise_service.cli import main

LEASE_S = 2.0

if __name__ == "__main__":
    with mock.patch.dict(service.running.__wrapped__.__kwdefaults__, lease_s=LEASE_S):  # type: ignore[attr-defined] # contextlib's
        sys.exit(main(["serve"]))
