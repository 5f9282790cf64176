"""Shared helpers of the tests, one module per noun."""
