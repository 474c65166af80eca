"""One union of messages per conversation: with the broker, the ledger, the root and a worker."""
