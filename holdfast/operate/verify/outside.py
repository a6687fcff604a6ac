"""I15 to I21: what leaves the house by deliveries. Declared, and checked with them."""

from __future__ import annotations

from holdfast.operate.verify.check import Check

_DELIVERIES = ("deliveries",)

CHECKS = (
    Check("I15", "A delivery is sent if and only if it has a time and an id.", needs=_DELIVERIES),
    Check("I16", "What was sent was first intended, under the key of its kind.", needs=_DELIVERIES),
    Check("I17", "An intent without an outcome is being looked into.", needs=_DELIVERIES),
    Check("I18", "A delivery has one id at the provider, unless it is flagged.", needs=_DELIVERIES),
    Check("I19", "A job succeeded when all its required recipients are served.", needs=_DELIVERIES),
    Check("I20", "A delivery fails for good only after it was looked into.", needs=_DELIVERIES),
    Check("I21", "What was sent again says why.", needs=_DELIVERIES),
)
