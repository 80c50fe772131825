"""Comparisons on the nodes of a Ray cluster. Ray is an extra: nothing else imports this package before it is asked for.

The database stays the only truth: a slot of the service claims a comparison there, an actor on some node gets its id
and the settings, and what it measures goes into the database by the store. Ray knows resources and places, no queue.
"""
