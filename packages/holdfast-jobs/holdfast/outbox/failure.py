"""Errors of deliveries, for callers and for the jobs that deliver."""

from __future__ import annotations

from holdfast.errors import InvalidArgument, NotFound, Permanent


class InvalidDelivery(InvalidArgument):
    """A message is invalid, or data that its template names is missing. Correct the fields that the
    message names. Nothing was written."""


class DeliveryNotFound(NotFound):
    """The delivery does not exist, or belongs to another tenant. List the deliveries: `holdfast
    deliveries list --all`."""

    def __init__(self, delivery_id: str) -> None:
        super().__init__(f"No delivery {delivery_id[:100]} for this tenant. Check the id.")


class DeliveryFailed(Permanent):
    """A required recipient cannot be reached; the delivery says why.

    Fault: the recipient or the channel. Remedy: correct the address or the channel, then `holdfast
    deliveries resend`. The job continues when all deliveries are sent.
    """

    error_class = "DELIVERY_FAILED"
