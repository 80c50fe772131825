"""Comparisons on their way from one database to another, or into other programs: exports, imports, tables.

An export is a folder, or the same folder as one ``.tar.zst``. The same comparisons give the same bytes.
"""
