"""The commands ``holdfast batches`` and ``holdfast costs``."""
