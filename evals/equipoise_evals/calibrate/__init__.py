"""Calibration: the production judge on simulated records whose truth is known, and the table of how often it errs."""
