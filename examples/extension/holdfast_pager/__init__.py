"""Pages on-call engineers: an example of a package that extends Holdfast."""
