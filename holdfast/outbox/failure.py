"""What can be wrong with a delivery, for whoever wants it and for the job that makes it."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.errors import HoldfastError, NotFound, Permanent


class InvalidDelivery(HoldfastError):
    """What is to be told to whom is wrong; *fields* maps each bad field to what is wrong."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        self.fields = dict(fields)
        listed = "; ".join(f"{name}: {problem}" for name, problem in self.fields.items())
        super().__init__(f"Nothing was done. {listed}.")


class DeliveryNotFound(NotFound):
    """There is no such delivery, or it is another tenant's."""

    def __init__(self, delivery_id: str) -> None:
        super().__init__(f"No delivery {delivery_id[:100]} for this tenant. Check the id.")


class DeliveryFailed(Permanent):
    """Somebody who must be told cannot be reached; the delivery says why."""

    error_class = "DELIVERY_FAILED"
