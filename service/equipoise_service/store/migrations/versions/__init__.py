"""The revisions, from 0001; a released one is never edited."""
