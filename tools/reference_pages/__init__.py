"""One module per generated page of docs/reference/. Each has build(), which returns a Page."""
