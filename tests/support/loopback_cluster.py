"""A Ray cluster on the loopback: a head that runs nothing, and nodes that are processes of this machine.

Each node is a raylet of its own with logical resources; ending one is what the loss of a machine is.
"""

import contextlib
import os
from collections.abc import Iterator, Sequence

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # before Ray is imported: nothing is told to anybody

from ray.cluster_utils import Cluster

STORE_BYTES = 80 * 1024 * 1024
"""Ray's least object store; comparisons send a few kilobytes through it."""


@contextlib.contextmanager
def loopback_cluster(nodes: Sequence[float]) -> Iterator[Cluster]:
    """A cluster whose nodes have so many logical cores each; all of it ends with the context."""
    small = {"object_store_memory": STORE_BYTES, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **small})
    try:
        for cores in nodes:
            cluster.add_node(num_cpus=cores, object_store_memory=STORE_BYTES)
        cluster.wait_for_nodes()
        yield cluster
    finally:
        cluster.shutdown()
