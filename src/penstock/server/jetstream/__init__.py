"""The edge of JetStream: what its machines decide is carried out here."""
