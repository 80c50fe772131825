import sys

from equipoise_service.cli import main

sys.exit(main())
