"""What keeps it alive: processes, links, the client library and the command line."""
