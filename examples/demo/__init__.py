"""The whole story in a minute: a server, a change feed, a fold that follows it, Spark, an edge."""
