"""What a simulated engine notes about the device memory that it takes; ``tests.fakes.device`` reads it.

It imports nothing of the service, so that a simulated engine starts in a moment.
"""

import os
from pathlib import Path

ENGINE_BYTES = 4 * 1024 * 1024 * 1024


def take_memory(folder: Path, *, kept: bool) -> None:
    """Take an engine's memory in the name of this process."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{os.getpid()}{'.kept' if kept else ''}").write_text(str(ENGINE_BYTES))
