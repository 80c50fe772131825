"""What of a command's output is kept as evidence, and under which circumstances it was printed.

``COMMAND | python -m tests.support.kept PATTERN`` prints the date, cores and load, then the lines in which the pattern
is found; all others go to standard error.
"""

import re
import sys
from datetime import UTC, datetime

import psutil


def circumstances() -> str:
    """Today, and what the machine was: cores, and how many processes wanted one in the last minute."""
    return f"{datetime.now(UTC):%Y-%m-%d}, {psutil.cpu_count()} cores, load {psutil.getloadavg()[0]:.1f} at the end"


def main(pattern: str) -> int:
    """Filter standard input; 0 if any line is kept."""
    found = []
    for line in sys.stdin:
        if re.search(pattern, line):
            found.append(line)
        else:
            sys.stderr.write(line)
    sys.stdout.write("".join([circumstances() + "\n", *found]))
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
