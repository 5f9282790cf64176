"""Monitoring: what the server knows of itself, as JSON, text and HTML."""
