"""Key-value buckets: values, errors, reading, writing and watching; a client, never a server."""
