"""Where messages go: one adapter per channel, and what each of them can be asked."""
