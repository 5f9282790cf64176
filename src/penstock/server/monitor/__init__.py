"""Monitoring: the state of the server as JSON, text and HTML."""
