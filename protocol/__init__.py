"""What is said: pure types and rules. No sockets, files, threads, clocks or randomness in here."""
