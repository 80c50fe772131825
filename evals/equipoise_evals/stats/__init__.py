"""Statistics of paired accuracy and launch-level latency. Pure functions of numbers."""
