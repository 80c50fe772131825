"""The gate: what a verdict means for a release, under a policy that a team keeps in its repository.

Owns the policy, the decision and the documents that pipelines read. It starts nothing and measures nothing.
"""

from equipoise_service.gate.checks import Check
from equipoise_service.gate.decide import GateResult, decide
from equipoise_service.gate.policy import Policy, PolicyError, Waiver, load_policy

__all__ = ["Check", "GateResult", "Policy", "PolicyError", "Waiver", "decide", "load_policy"]
