"""Measurements of the library's own code; `make bench` runs them."""
