"""The handlers of the JetStream API, one module per kind of asset, and the table of all of them."""

from penstock.jetstream.handlers import (
    account_handlers,
    archive_handlers,
    consumer_handlers,
    message_handlers,
    stream_handlers,
)

ENDPOINTS = {
    **account_handlers.ENDPOINTS,
    **stream_handlers.ENDPOINTS,
    **message_handlers.ENDPOINTS,
    **consumer_handlers.ENDPOINTS,
    **archive_handlers.ENDPOINTS,
}
