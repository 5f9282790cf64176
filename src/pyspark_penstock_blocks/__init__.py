"""Found by Spark through its name: the format `penstock-blocks` needs no registration."""

from penstock.spark.files.blocks_source import PenstockBlocks as DefaultSource

__all__ = ["DefaultSource"]
