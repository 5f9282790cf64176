"""Configuration tree -> options, one file per part of the file; the way in is `configure`."""
