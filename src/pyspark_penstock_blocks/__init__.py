"""Registers the format `penstock-blocks`: Spark discovers this module by its name."""

from penstock.spark.files.blocks_source import PenstockBlocks as DefaultSource

__all__ = ["DefaultSource"]
