"""``python -m equipoise_service.api FOLDER`` writes the OpenAPI document into a folder, as it is committed."""

import sys
from pathlib import Path

from equipoise_service.api import create_app
from equipoise_service.api.openapi import text_of
from equipoise_service.settings import Settings

Path(sys.argv[1], "openapi.json").write_text(text_of(create_app(Settings(device="simulated")).openapi()))
