"""What can be wrong with a delivery, for whoever wants it and for the job that makes it."""

from __future__ import annotations

from holdfast.errors import InvalidArgument, NotFound, Permanent


class InvalidDelivery(InvalidArgument):
    """What is to be told to whom is wrong; *fields* maps each bad field to what is wrong."""


class DeliveryNotFound(NotFound):
    """There is no such delivery, or it is another tenant's."""

    def __init__(self, delivery_id: str) -> None:
        super().__init__(f"No delivery {delivery_id[:100]} for this tenant. Check the id.")


class DeliveryFailed(Permanent):
    """Somebody who must be told cannot be reached; the delivery says why."""

    error_class = "DELIVERY_FAILED"
